"""The Qt application, and the files that the system asks it to open: on macOS a double click arrives as an event."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, Signal
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtWidgets import QApplication


class Application(QApplication):
    """Signals: file_opened (the path of a file)."""

    file_opened = Signal(Path)

    # A filter would do as well, but gets the events of every widget.
    def event(self, event: QEvent) -> bool:
        if isinstance(event, QFileOpenEvent) and event.file():
            self.file_opened.emit(Path(event.file()))
            return True
        return super().event(event)
