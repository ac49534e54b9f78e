"""What this program is, under which licence, and where the demo model comes from."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

import engine
from app.licences import components
from app.theme import GRID, Theme
from app.views.labels import Label
from app.views.licences_dialog import LicencesDialog

WHAT = "A chat for Inkling checkpoints on MLX, sped up by their own multi-token-prediction head."
LICENCE = "Inkstand and the demo model that comes with it are licensed under the Apache License 2.0."
DEMO = (
    "The demo model was trained from scratch for Inkstand, on conversations sampled from SmolLM2-135M-Instruct "
    "(Hugging Face TB, Apache-2.0). The scripts that made it are part of the source."
)
PARTS = "The window uses Qt for Python under the LGPL 3, the engine MLX under the MIT licence."


class AboutDialog(QDialog):
    """Name, version, licence, and the way to the licences of all parts."""

    def __init__(self, theme: Theme, parent: QWidget | None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setWindowTitle("About Inkstand")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setMinimumWidth(60 * GRID)
        close = QPushButton("Close", self)
        close.setDefault(True)
        close.clicked.connect(self.accept)
        licences = QPushButton("Licences…", self)
        licences.setAutoDefault(False)
        licences.clicked.connect(self._show_licences)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(3 * GRID, 3 * GRID, 3 * GRID, 2 * GRID)
        layout.setSpacing(GRID + 4)
        layout.addWidget(Label(theme, f"Inkstand {engine.__version__}", self, delta=7, weight=600))
        layout.addWidget(Label(theme, WHAT, self, wrap=True))
        for text in (LICENCE, DEMO, PARTS):
            layout.addWidget(Label(theme, text, self, color="text_2", wrap=True))
        line = QHBoxLayout()
        line.addWidget(licences)
        line.addStretch(1)
        line.addWidget(close)
        layout.addLayout(line)

    def _show_licences(self) -> None:
        # Beside the main window, so that it stays when this is closed.
        LicencesDialog(self._theme, components(), self.parentWidget()).show()
