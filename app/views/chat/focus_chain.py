"""Keyboard focus goes through widgets in the order of what is seen, whatever order they were made in."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget


def chain_focus(start: QWidget, widgets: Iterable[QWidget]) -> None:
    """Tab leads from `start` through whatever takes it inside of `widgets`, one widget after the other."""
    previous = start
    for widget in widgets:
        for child in widget.findChildren(QWidget):
            if child.focusPolicy() & Qt.FocusPolicy.TabFocus:
                QWidget.setTabOrder(previous, child)
                previous = child
