"""Rows of a settings page: a name, a control, a line that says what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QComboBox,
    QDoubleSpinBox,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QScrollArea,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.theme import GRID, Theme
from app.views.labels import Label
from app.views.scrolling import scrolling

FIELD = 26 * GRID


class Form(QWidget):
    """A page of rows."""

    def __init__(self, theme: Theme, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.title = title
        outer = QVBoxLayout(self)
        outer.setContentsMargins(3 * GRID, 2 * GRID, 3 * GRID, 2 * GRID)
        outer.setSpacing(2 * GRID)
        outer.addWidget(Label(theme, title, self, delta=4, weight=600))
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(2 * GRID)
        self._grid.setVerticalSpacing(GRID)
        self._grid.setColumnMinimumWidth(0, 19 * GRID)
        self._grid.setColumnStretch(1, 1)
        outer.addLayout(self._grid)
        outer.addStretch(1)

    def row(self, name: str, control: QWidget, note: str = "", *, wide: bool = False) -> None:
        """Add a row; the control takes the row's name for screen readers, and all the width if `wide`."""
        line = self._grid.rowCount()
        label = Label(self._theme, name, self)
        label.setBuddy(control)
        vertical = Qt.AlignmentFlag.AlignTop if wide else Qt.AlignmentFlag.AlignVCenter
        self._grid.addWidget(label, line, 0, Qt.AlignmentFlag.AlignRight | vertical)
        if wide:
            label.setContentsMargins(0, 6, 0, 0)  # level with the first line of what is beside it
            self._grid.addWidget(control, line, 1)
        else:
            self._grid.addWidget(control, line, 1, Qt.AlignmentFlag.AlignLeft)
        if not control.accessibleName():
            control.setAccessibleName(name)
        if note:
            text = Label(self._theme, note, self, color="text_3", delta=-2, wrap=True)
            self._grid.addWidget(text, line + 1, 1)
            control.setToolTip(note)

    def wide(self, widget: QWidget) -> None:
        """Add something over both columns."""
        self._grid.addWidget(widget, self._grid.rowCount(), 0, 1, 2)

    def choice(
        self, name: str, options: Mapping[str, str], current: str, act: Callable[[str], object], note: str = ""
    ) -> QComboBox:
        """A row with a menu; `options` maps values to titles."""
        box = QComboBox(self)
        for value, title in options.items():
            box.addItem(title, value)
        box.setCurrentIndex(max(0, box.findData(current)))
        box.setFixedWidth(FIELD)

        def chosen(_index: int) -> None:
            act(box.currentData())

        box.activated.connect(chosen)
        self.row(name, box, note)
        return box

    def integer(
        self,
        name: str,
        value: int | None,
        limits: tuple[int, int],
        act: Callable[[int | None], object],
        *,
        none: str = "",
        suffix: str = "",
        note: str = "",
    ) -> QSpinBox:
        """A row with a whole number. With `none` the value below the lowest is shown as that text and means None."""
        box = QSpinBox(self)
        low, high = limits
        box.setRange(low - (1 if none else 0), min(high, 2**31 - 1))
        if none:
            box.setSpecialValueText(none)
        box.setSuffix(suffix)
        box.setGroupSeparatorShown(True)
        box.setValue(box.minimum() if value is None else value)
        box.setFixedWidth(FIELD)
        box.lineEdit().setTextMargins(6, 0, 6, 0)
        box.editingFinished.connect(lambda: act(None if none and box.value() == box.minimum() else box.value()))
        self.row(name, box, note)
        return box

    def real(
        self, name: str, value: float, limits: tuple[float, float], act: Callable[[float], object], note: str = ""
    ) -> QDoubleSpinBox:
        """A row with a number of two decimals."""
        box = QDoubleSpinBox(self)
        box.setRange(*limits)
        box.setDecimals(2)
        box.setSingleStep(0.05)
        box.setValue(value)
        box.setFixedWidth(FIELD)
        box.lineEdit().setTextMargins(6, 0, 6, 0)
        box.editingFinished.connect(lambda: act(box.value()))
        self.row(name, box, note)
        return box

    def text(
        self, name: str, value: str, act: Callable[[str], object], *, placeholder: str = "", note: str = ""
    ) -> QLineEdit:
        """A row with a line of text."""
        edit = QLineEdit(value, self)
        edit.setPlaceholderText(placeholder)
        edit.setMinimumWidth(FIELD + 8 * GRID)
        edit.editingFinished.connect(lambda: act(edit.text().strip()))
        self.row(name, edit, note)
        return edit

    def beside(self, *widgets: QWidget) -> QWidget:
        """Several controls in one row."""
        box = QWidget(self)
        layout = QHBoxLayout(box)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(GRID)
        for widget in widgets:
            layout.addWidget(widget)
        return box

    def button(self, text: str, act: Callable[[], object]) -> QPushButton:
        button = QPushButton(text, self)
        button.setAutoDefault(False)
        button.clicked.connect(lambda _checked=False: act())
        return button


def scrolled(form: Form) -> QScrollArea:
    """A form in an area that scrolls where the screen is low."""
    area = scrolling(form)
    area.setMinimumWidth(form.minimumSizeHint().width() + 2 * GRID)
    return area
