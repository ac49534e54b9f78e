"""The model manager: what there is on this machine, what is being fetched, and what could be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.model_rows import CATALOG_NOTE, Row
from app.theme import GRID, Theme
from app.views.controls import IconButton, TextButton
from app.views.labels import ElidedLabel, Hairline, Label, Surface
from app.views.models.row import NARROW, ModelRow, Push
from app.views.scrolling import scrolling
from engine.cli.units import size

COLUMN = 920
_TOLD_MS = 12_000
SECTIONS = {
    "Models": "",
    "MTP heads": "Used by the models that they fit.",
    "Catalog": CATALOG_NOTE,
}


class ModelsPage(Surface):
    """Signals: chosen(key, action), typed(owner/name), choose_folder, look_again, back."""

    chosen = Signal(str, str)
    typed = Signal(str)
    choose_folder = Signal()
    look_again = Signal()
    back = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "window", parent)
        self._theme = theme
        self.views: dict[str, ModelRow] = {}
        self._order: list[str] = []
        self.setAccessibleName("Models")
        column = QWidget(self)
        column.setMaximumWidth(COLUMN)
        self._column = QVBoxLayout(column)
        self._column.setContentsMargins(3 * GRID, 2 * GRID, 3 * GRID, 3 * GRID)
        self._column.setSpacing(0)
        self._head()
        self.message = Label(theme, "", column, color="success", wrap=True)
        self.message.setContentsMargins(0, GRID, 0, 0)
        self.message.hide()
        self._column.addWidget(self.message)
        self._list = QVBoxLayout()
        self._list.setSpacing(0)
        self._column.addLayout(self._list)
        self._waiting = Label(theme, "Looking for models…", column, color="text_2")
        self._waiting.setContentsMargins(0, 2 * GRID, 0, 0)
        self._column.addWidget(self._waiting)
        self._column.addStretch(1)
        self._sections: dict[str, QWidget] = {name: self._section(name, note) for name, note in SECTIONS.items()}
        holder = Surface(theme, "window")
        across = QHBoxLayout(holder)
        across.setContentsMargins(0, 0, 0, 0)
        across.addStretch(1)
        across.addWidget(column, 1000)
        across.addStretch(1)
        self.area = scrolling(holder, self)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(self.area)
        self._quiet = QTimer(self)
        self._quiet.setSingleShot(True)
        self._quiet.setInterval(_TOLD_MS)
        self._quiet.timeout.connect(self.message.hide)

    def _head(self) -> None:
        theme = self._theme
        top = QHBoxLayout()
        top.addWidget(Label(theme, "Models", self, delta=9, weight=600))
        top.addStretch(1)
        close = IconButton(theme, "close", "Back to the chat", self)
        close.clicked.connect(self.back)
        leave = QShortcut(QKeySequence(Qt.Key.Key_Escape), self)
        leave.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        leave.activated.connect(self.back)
        top.addWidget(close)
        self._column.addLayout(top)
        where = self._where = QHBoxLayout()
        where.setSpacing(2 * GRID)
        self.folder = ElidedLabel(theme, self, color="text_2", delta=-1)
        choose = TextButton(
            theme, "Choose folder…", "Choose the folder for downloads", self, color="accent", delta=-1, link=True
        )
        again = TextButton(theme, "Look again", "Look for models again", self, color="accent", delta=-1, link=True)
        choose.clicked.connect(self.choose_folder)
        again.clicked.connect(self.look_again)
        where.addWidget(self.folder, 1)
        links = QHBoxLayout()
        links.setSpacing(2 * GRID)
        links.addWidget(choose)
        links.addWidget(again)
        links.addStretch(1)
        where.addLayout(links)
        self._column.addLayout(where)
        add = QHBoxLayout()
        add.setContentsMargins(0, GRID + 4, 0, 0)
        add.setSpacing(GRID)
        self.field = QLineEdit(self)
        self.field.setPlaceholderText("owner/name on the hub, or the address of its page")
        self.field.setAccessibleName("Checkpoint to download, as owner/name")
        self.field.setMinimumHeight(30)
        self.go = Push("Download…", self)
        self.go.setAccessibleName("Download the checkpoint typed here")
        self.go.setEnabled(False)
        self.field.textChanged.connect(self._typing)
        self.field.returnPressed.connect(self._go)
        self.go.clicked.connect(self._go)
        add.addWidget(self.field, 1)
        add.addWidget(self.go)
        self._column.addLayout(add)
        self.field_note = Label(theme, "", self, color="danger", delta=-1, wrap=True)
        self.field_note.setContentsMargins(0, 4, 0, 0)
        self.field_note.hide()
        self._column.addWidget(self.field_note)

    def _section(self, name: str, note: str) -> QWidget:
        box = QWidget(self)
        layout = QVBoxLayout(box)
        layout.setContentsMargins(0, 3 * GRID, 0, GRID - 2)
        layout.setSpacing(2)
        layout.addWidget(Label(self._theme, name, box, color="text_2", delta=-1, weight=600))
        if note:
            layout.addWidget(Label(self._theme, note, box, color="text_3", delta=-1, wrap=True))
        layout.addWidget(Hairline(self._theme, box))
        box.hide()
        return box

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < NARROW * max(1.0, self._theme.base / 13)
        down, across = QBoxLayout.Direction.TopToBottom, QBoxLayout.Direction.LeftToRight
        self._where.setDirection(down if narrow else across)
        self._where.setSpacing(2 if narrow else 2 * GRID)
        side = 2 * GRID if narrow else 3 * GRID
        self._column.setContentsMargins(side, 2 * GRID, side, 3 * GRID)

    # -- what is shown ------------------------------------------------------------------------

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Bring the list up to date; rows that stay keep their widgets, and with them the keyboard focus."""
        self._waiting.setVisible(not rows)
        order = [row.key for row in rows]
        for row in rows:
            if row.key not in self.views:
                view = self.views[row.key] = ModelRow(self._theme, self)
                view.chosen.connect(self.chosen)
            self.views[row.key].show_row(row)
        if order != self._order or any(self._place(row) for row in rows):
            self._arrange(rows)
            self._order = order

    def _place(self, row: Row) -> bool:
        """Whether a row's section is not shown yet."""
        return self._sections[row.section].isHidden()

    def _arrange(self, rows: Sequence[Row]) -> None:
        # Not `takeAt`: the item that it hands over lives on and is told of new heights in place of the next one.
        for widget in (*self._sections.values(), *self.views.values()):
            self._list.removeWidget(widget)
        for key in [key for key in self.views if key not in {row.key for row in rows}]:
            view = self.views.pop(key)
            view.hide()
            view.deleteLater()
        used = {row.section for row in rows}
        previous: QWidget = self.go
        for name, box in self._sections.items():
            box.setVisible(name in used)
            if name not in used:
                continue
            self._list.addWidget(box)
            for row in rows:
                if row.section == name:
                    view = self.views[row.key]
                    self._list.addWidget(view)
                    view.show()
                    for widget in (view.head, view.files_button, view.cure, view.main, view.more):
                        QWidget.setTabOrder(previous, widget)
                        previous = widget

    def show_folder(self, folder: Path, free: int | None) -> None:
        room = "not there at the moment" if free is None else f"{size(free)} free"
        self.folder.set_text(f"Downloads go to {folder}  ·  {room}")

    def say(self, text: str, *, error: bool = False) -> None:
        """A line under the head: what was done, or what went wrong."""
        self.message.set_text(text)
        self.message.set_color("danger" if error else "success")
        self.message.show()
        if error:
            self._quiet.stop()
        else:
            self._quiet.start()

    def refuse(self, text: str) -> None:
        """What is wrong with what was typed."""
        self.field_note.set_text(text)
        self.field_note.show()
        self.field.setFocus()

    def _typing(self, text: str) -> None:
        self.go.setEnabled(bool(text.strip()))
        self.field_note.hide()

    def _go(self) -> None:
        if self.field.text().strip():
            self.typed.emit(self.field.text().strip())
