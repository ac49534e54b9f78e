"""One row of the model manager: what it is, how it is, its main button, and everything else in a menu."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QGridLayout, QHBoxLayout, QMenu, QPushButton, QVBoxLayout, QWidget

from app.model_rows import ACTIVE, TITLES, Action, Row
from app.theme import GRID, Theme
from app.views.controls import IconButton, TextButton
from app.views.labels import ElidedLabel, Hairline, Label
from app.views.menus import slot
from app.views.models.meters import Meter
from engine.cli.units import size

BUTTON = 12 * GRID
MAIN: tuple[Action, ...] = ("download", "resume", "pause", "load", "add-head", "look-again", "repair")
"""What the main button can be."""
NARROW = 62 * GRID
"""Width below which size and buttons go below the text, at the usual size of type."""
FILES = 200
"""More files than this are not listed one by one."""
_BREAKS: frozenset[Action] = frozenset({"delete", "forget", "discard"})


class Push(QPushButton):
    """A button that Return presses as well."""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)


class FileLine(QWidget):
    """One file of a download."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.name = ElidedLabel(theme, self, color="text_2", delta=-2)
        self.meter = Meter(theme, "", self, height=4)
        self.meter.setFixedWidth(16 * GRID)
        self.figures = Label(theme, "", self, color="text_2", delta=-2, tabular=True)
        self.figures.setFixedWidth(round(18 * GRID * max(1.0, theme.base / 13)))
        self.figures.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(GRID + 4)
        layout.addWidget(self.name, 1)
        layout.addWidget(self.meter)
        layout.addWidget(self.figures)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.meter.setVisible(self.width() >= 55 * GRID)

    def show_file(self, path: str, done: int, total: int, state: str) -> None:
        words = {"ready": "ready", "verifying": "verifying", "failed": "failed", "queued": "waiting"}
        color = {"ready": "success", "failed": "danger"}.get(state, "accent_fill")
        self.name.set_text(path)
        self.meter.setAccessibleName(f"{path}, downloaded")
        self.meter.show_fraction(done / total if total else 1.0, color)
        self.figures.set_text(f"{size(total)} {words[state]}" if state in words else f"{size(done)} of {size(total)}")


class ModelRow(QWidget):
    """Signal: chosen(key, action)."""

    chosen = Signal(str, str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.row: Row | None = None
        self._narrow = self._stacked = False
        self.title = ElidedLabel(theme, self, weight=600)
        self.state = Label(theme, "", self, delta=-1, tabular=True)
        self.detail = Label(theme, "", self, color="text_2", delta=-1, tabular=True, wrap=True)
        self.size_label = Label(theme, "", self, color="text_2", tabular=True)
        self.size_label.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.main = Push("", self)
        self.more = IconButton(theme, "more", "More", self)
        self.head = TextButton(theme, "", "Add MTP head", self, color="accent", delta=-1, link=True)
        self.meter = Meter(theme, "Progress", self)
        self.note = Label(theme, "", self, delta=-1, wrap=True)
        self.cure = Push("", self)
        self.files_button = TextButton(theme, "Show files", "Show files", self, color="accent", delta=-1, link=True)
        self.files_button.setCheckable(True)
        self.files = QWidget(self)
        self._file_column = QVBoxLayout(self.files)
        self._file_column.setContentsMargins(0, 0, 0, 4)
        self._file_column.setSpacing(2)
        self._lines: list[FileLine] = []
        self._build()
        theme.changed.connect(self._scale)
        self._scale()
        self.main.clicked.connect(lambda: self._choose(self.row.main if self.row else None))
        self.head.clicked.connect(lambda: self._choose(self.row.head_action if self.row else None))
        self.cure.clicked.connect(lambda: self._choose(self.row.note.action if self.row and self.row.note else None))
        self.more.clicked.connect(self._pop)
        self.files_button.toggled.connect(self._toggle_files)

    def _build(self) -> None:
        top = self._top = QHBoxLayout()
        top.addWidget(self.title)
        top.addWidget(self.state)
        top.addStretch(1)
        second = self._second = QHBoxLayout()
        second.addWidget(self.detail, 1)
        links = QHBoxLayout()
        links.setSpacing(2 * GRID)
        links.addWidget(self.head)
        links.addWidget(self.files_button)
        links.addStretch(1)
        second.addLayout(links)
        third = QHBoxLayout()
        third.setSpacing(GRID + 4)
        third.addWidget(self.note, 1)
        third.addWidget(self.cure)
        text = QVBoxLayout()
        text.setSpacing(3)
        text.addLayout(top)
        text.addLayout(second)
        below = QVBoxLayout()
        below.setSpacing(GRID - 2)
        below.addWidget(self.meter)
        below.addLayout(third)
        below.addWidget(self.files)
        for widget in (self.main, self.more):
            # The columns stay where they are in rows without these buttons.
            policy = widget.sizePolicy()
            policy.setRetainSizeWhenHidden(True)
            widget.setSizePolicy(policy)
        grid = self._grid = QGridLayout(self)
        grid.setContentsMargins(0, GRID + 2, 0, 0)
        grid.setHorizontalSpacing(GRID)
        grid.setVerticalSpacing(4)
        grid.addLayout(text, 0, 0)
        grid.addLayout(below, 2, 0, 1, 4)
        grid.addWidget(Hairline(self._theme, self), 4, 0, 1, 4)
        grid.setRowMinimumHeight(3, 2)
        grid.setColumnStretch(0, 1)
        self._text = text
        self._arrange()

    def _scale(self) -> None:
        """The columns are as wide as the longest button and the longest size in the type that is set."""
        scale = max(1.0, self._theme.base / 13)
        metrics = QFontMetrics(self._theme.font())
        widest = max(metrics.horizontalAdvance(TITLES[action]) for action in MAIN)
        self.main.setFixedWidth(max(BUTTON, widest + 26))
        self.size_label.setFixedWidth(round(9 * GRID * scale))
        self._fit()

    def _fit(self) -> None:
        narrow = self.width() < NARROW * max(1.0, self._theme.base / 13)
        beside = sum(widget.width() + GRID for widget in (self.size_label, self.main, self.more))
        wanted = self.title.sizeHint().width() + self.state.sizeHint().width() + GRID + 4
        # A name cut to a few letters says nothing: what state it is in goes below it then.
        stacked = narrow or wanted > self.width() - beside
        if (narrow, stacked) != (self._narrow, self._stacked) and self.testAttribute(Qt.WidgetAttribute.WA_Resized):
            self._narrow, self._stacked = narrow, stacked
            self._arrange()
            # The list is being laid out now, with the height that the row had before.
            QTimer.singleShot(0, self, self.updateGeometry)

    def _arrange(self) -> None:
        """Size and buttons beside the text, or below it where there is no room for both."""
        grid, narrow = self._grid, self._narrow
        down, across = QBoxLayout.Direction.TopToBottom, QBoxLayout.Direction.LeftToRight
        self._top.setDirection(down if self._stacked else across)
        self._top.setSpacing(2 if self._stacked else GRID + 4)
        self._second.setDirection(down if narrow else across)
        self._second.setSpacing(0 if narrow else 2 * GRID)
        grid.removeItem(self._text)
        for widget in (self.size_label, self.main, self.more):
            grid.removeWidget(widget)
        top, left = Qt.AlignmentFlag.AlignTop, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        grid.addLayout(self._text, 0, 0, 1, 4 if narrow else 1)
        grid.addWidget(self.size_label, 1 if narrow else 0, 0 if narrow else 1, left if narrow else top)
        grid.addWidget(self.main, 1 if narrow else 0, 2, top)
        grid.addWidget(self.more, 1 if narrow else 0, 3, top)
        self.size_label.setAlignment(left if narrow else Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def show_row(self, row: Row) -> None:
        """Show a row; what did not change is not painted again."""
        if row == self.row:
            return
        self.row = row
        self.setAccessibleName(f"{row.title}, {row.state}, {row.size}")
        self.title.set_text(row.title)
        self.state.set_text(row.state)
        self.state.set_color(row.tone)
        self.detail.set_text(row.detail)
        self.detail.setVisible(bool(row.detail))
        self.size_label.set_text(row.size)
        self.main.setVisible(row.main is not None)
        if row.main is not None:
            title = TITLES[row.main]
            self.main.setText(title)
            self.main.setAccessibleName(f"{title}: {row.title}")
        self.more.set_name(f"More for {row.title}")
        self.more.setVisible(bool(row.menu))
        self.head.setVisible(bool(row.head_offer))
        self.head.set_text(row.head_offer)
        self.head.set_name(f"{row.head_offer}: {row.title}")
        self._show_note(row)
        self._show_progress(row)
        self._fit()

    def _show_note(self, row: Row) -> None:
        note = row.note
        self.note.setVisible(note is not None)
        self.cure.setVisible(note is not None and note.action is not None)
        if note is not None:
            self.note.set_text(note.text)
            self.note.set_color(note.tone)
            if note.action is not None:
                self.cure.setText(TITLES[note.action])
                self.cure.setAccessibleName(f"{TITLES[note.action]}: {row.title}")

    def _show_progress(self, row: Row) -> None:
        progress = row.progress
        self.meter.setVisible(progress is not None or row.fraction is not None)
        self.files_button.setVisible(progress is not None)
        self.files.setVisible(progress is not None and self.files_button.isChecked())
        self.meter.setAccessibleName(f"{row.title}: {row.state}")
        if progress is None:
            self.meter.show_fraction(row.fraction or 0.0)
            return
        share = progress.done / progress.total if progress.total else 1.0
        if progress.state == "verifying" and progress.total:
            share = progress.verified / progress.total
        resting = "warning" if progress.state == "stalled" else "accent_fill" if progress.state in ACTIVE else "track"
        self.meter.show_fraction(share, resting)
        if self.files_button.isChecked():
            self._show_files()

    def _show_files(self) -> None:
        progress = self.row.progress if self.row else None
        files = () if progress is None else progress.files[:FILES]
        while len(self._lines) < len(files):
            line = FileLine(self._theme, self.files)
            self._lines.append(line)
            self._file_column.addWidget(line)
        for line in self._lines[len(files) :]:
            line.hide()
        for line, file in zip(self._lines, files, strict=False):
            line.show_file(file.path, file.done, file.size, file.state)
            line.show()

    def _toggle_files(self, on: bool) -> None:
        text = "Hide files" if on else "Show files"
        self.files_button.set_text(text)
        self.files_button.set_name(text)
        self._show_files()
        self.files.setVisible(on)

    def _choose(self, action: Action | None) -> None:
        if action is not None and self.row is not None:
            self.chosen.emit(self.row.key, action)

    def menu(self) -> QMenu:
        """Everything but the main action."""
        menu = QMenu(self)
        for action in self.row.menu if self.row else ():
            if action in _BREAKS and menu.actions():
                menu.addSeparator()
            menu.addAction(TITLES[action]).triggered.connect(slot(lambda action=action: self._choose(action)))
        return menu

    def _pop(self) -> None:
        menu = self.menu()
        menu.exec(self.more.mapToGlobal(QPoint(self.more.width() - menu.sizeHint().width(), self.more.height() + 2)))
        menu.deleteLater()
