"""A drawing in the theme's colours: an SVG file whose classes are named after the theme's tokens."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

from PySide6.QtCore import QByteArray, QRectF
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QWidget

from app.theme import Theme, Tokens

_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)


def style_rules(tokens: Tokens) -> str:
    """CSS rules of a drawing: class `fill-NAME` and `line-NAME` for each token, with hyphens for underscores."""
    return "".join(
        f".fill-{name}{{fill:{color}}}.line-{name}{{stroke:{color}}}"
        for name, color in ((key.replace("_", "-"), value) for key, value in asdict(tokens).items())
    )


def drawn_in(svg: str, tokens: Tokens, family: str) -> str:
    """`svg` with the style it has for readers elsewhere replaced by the theme's."""
    style = f"<style>{style_rules(tokens)}text{{font-family:'{family}'}}</style>"
    return _STYLE.sub(lambda _match: style, svg, count=1)


class Figure(QWidget):
    """Paints an SVG file as wide as there is room, never wider than it was drawn.

    Args:
        text: what the drawing shows, for those who do not see it.
    """

    def __init__(self, theme: Theme, file: Path, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._svg = file.read_text(encoding="utf-8")
        self._renderer = QSvgRenderer(self)
        self.setAccessibleName(text)
        self.restyle()

    def restyle(self) -> None:
        """Draw in the theme's present colours."""
        drawing = drawn_in(self._svg, self._theme.tokens, self._theme.font().family())
        self._renderer.load(QByteArray(drawing.encode()))
        self.update()

    def height_for(self, width: int) -> int:
        """Height in logical pixels when `width` wide."""
        size = self._renderer.defaultSize()
        return round(size.height() * min(1.0, width / max(1, size.width())))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        size = self._renderer.defaultSize()
        scale = self.height() / max(1, size.height())
        self._renderer.render(painter, QRectF(0, 0, size.width() * scale, self.height()))
