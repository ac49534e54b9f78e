"""Fonts, colours and distances of rendered text, taken from the theme once per render."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtGui import QColor, QFont

from app.theme import Theme, Tokens

CODE_PAD = 12
CODE_HEAD = 28
"""Height of the band above code that holds the language and the copy button."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the Markdown renderer needs to know; `key` tells whether a rendered document is out of date."""

    body: QFont
    mono: QFont
    tokens: Tokens
    indent: int

    @classmethod
    def of(cls, theme: Theme, *, quiet: bool = False) -> Look:
        """Of the transcript, or `quiet` for reasoning and other asides."""
        return cls(
            body=theme.font(0 if quiet else 1),
            mono=theme.font(-1, mono=True),
            tokens=theme.tokens,
            indent=round(theme.base * 1.6),
        )

    def color(self, name: str) -> QColor:
        return QColor(getattr(self.tokens, name))

    def heading(self, level: int) -> QFont:
        font = QFont(self.body)
        font.setPixelSize(self.body.pixelSize() + max(0, (9, 5, 2, 0)[min(level, 4) - 1]))
        font.setWeight(QFont.Weight.DemiBold)
        return font

    def line_height(self, heading: int = 0) -> int:
        """Distance of two baselines in logical pixels."""
        size = self.heading(heading).pixelSize() if heading else self.body.pixelSize()
        return round(size * (1.3 if heading else 1.54))

    @property
    def code_line_height(self) -> int:
        return round(self.mono.pixelSize() * 1.58)
