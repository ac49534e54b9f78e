"""The help: pages at the left with a search over all of them, the page at the right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QKeySequence, QShortcut
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.help_pages import HelpPage, load_pages, page_of
from app.theme import GRID, Theme
from app.views.controls import IconButton
from app.views.help_page import HelpPageView
from app.views.labels import Hairline, Label, Surface
from app.views.page_list import PageList

OpenUrl = Callable[[QUrl], object]
_NOTHING = "No page has these words."


class HelpWindow(QDialog):
    """A window beside the chat; `open_url` takes addresses on the web."""

    def __init__(self, theme: Theme, parent: QWidget | None, *, open_url: OpenUrl = QDesktopServices.openUrl) -> None:
        super().__init__(parent)
        self._theme = theme
        self._open_url = open_url
        self._pages: Sequence[HelpPage] = load_pages()
        self._listed: list[HelpPage] = list(self._pages)
        self._shown = self._pages[0]
        self._before: list[HelpPage] = []
        self.setWindowTitle("Inkstand help")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(980, 680)
        side = Surface(theme, "sidebar", self)
        side.setFixedWidth(round(28 * GRID * max(1.0, theme.base / 13)))
        self.back = IconButton(theme, "chevron-left", "Back", side)
        self.back.setEnabled(False)
        self.back.clicked.connect(lambda _checked=False: self.go_back())
        self.search = QLineEdit(side)
        self.search.setPlaceholderText("Search the help")
        self.search.setAccessibleName("Search the help")
        self.search.textChanged.connect(self._filter)
        self.search.returnPressed.connect(self._to_page)
        self.list = PageList(theme, "Pages", side)
        self.list.currentRowChanged.connect(self._chosen)
        self.nothing = Label(theme, _NOTHING, side, color="text_2", delta=-1, wrap=True)
        self.nothing.hide()
        self.view = HelpPageView(theme, self)
        self.view.link_clicked.connect(self.follow)
        self._lay_out(side)
        for keys in (QKeySequence.StandardKey.Find, QKeySequence("Ctrl+L")):
            QShortcut(keys, self, self._to_search)
        QShortcut(QKeySequence.StandardKey.Back, self, self.go_back)
        QShortcut(QKeySequence.StandardKey.Close, self, self.close)
        self._fill()
        self._show(self._shown)
        self.list.setFocus()

    def _lay_out(self, side: QWidget) -> None:
        top = QHBoxLayout()
        top.setSpacing(GRID // 2)
        top.addWidget(self.back)
        top.addWidget(self.search, 1)
        column = QVBoxLayout(side)
        column.setContentsMargins(GRID, GRID, GRID, GRID)
        column.setSpacing(GRID)
        column.addLayout(top)
        column.addWidget(self.nothing)
        column.addWidget(self.list, 1)
        whole = QHBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        whole.addWidget(side)
        whole.addWidget(Hairline(self._theme, self, vertical=True))
        whole.addWidget(self.view, 1)

    @property
    def page(self) -> str:
        """Name of the page in sight."""
        return self._shown.name

    @property
    def titles(self) -> list[str]:
        """Of the pages that are listed."""
        return [page.title for page in self._listed]

    def open_page(self, name: str) -> None:
        """Show a page by its name, with the whole list beside it."""
        page = next(page for page in self._pages if page.name == name)
        if page not in self._listed:
            self.search.clear()
        self.list.setCurrentRow(self._listed.index(page))

    def follow(self, address: str) -> None:
        """A link: to another page, or out of the program."""
        name = page_of(address)
        if name is None:
            self._open_url(QUrl(address))
        else:
            self.open_page(name)

    def go_back(self) -> None:
        """To the page that was read before."""
        if self._before:
            page = self._before.pop()
            if page not in self._listed:
                self.search.clear()
            self._show(page)

    def _show(self, page: HelpPage) -> None:
        self._shown = page
        self.back.setEnabled(bool(self._before))
        self._select(page)
        self.view.show_page(page)

    # -- list and search ----------------------------------------------------------------------

    def _select(self, page: HelpPage) -> None:
        """Point the list at a page that is listed; nothing else happens."""
        self.list.blockSignals(True)
        self.list.setCurrentRow(self._listed.index(page))
        self.list.blockSignals(False)

    def _fill(self) -> None:
        self.list.blockSignals(True)
        self.list.clear()
        self.list.addItems(self.titles)
        self.list.blockSignals(False)

    def _filter(self, query: str) -> None:
        self._listed = [page for page in self._pages if page.has(query)]
        self.nothing.setVisible(not self._listed)
        self._fill()
        self.view.mark(query)
        if self._shown in self._listed:
            self._select(self._shown)
        elif self._listed:
            self._chosen(0)

    def _chosen(self, row: int) -> None:
        if not 0 <= row < len(self._listed) or self._listed[row] is self._shown:
            return
        self._before.append(self._shown)
        self._show(self._listed[row])

    def _to_search(self) -> None:
        self.search.setFocus()
        self.search.selectAll()

    def _to_page(self) -> None:
        if self.view.passages:
            self.view.passages[0].setFocus()
