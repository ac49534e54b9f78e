"""Colours, sizes and type from one set of tokens; light and dark differ in nothing but the colours."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from PySide6.QtCore import QObject, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QIcon, QPainter, QPalette, QPixmap
from PySide6.QtSvg import QSvgRenderer

from engine.paths import resource

GRID = 8
"""Every margin and gap is a multiple or a half of this many logical pixels."""
COLUMN = 720
"""The widest a column of text may be, in logical pixels."""
Mode = Literal["system", "light", "dark"]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Named colours. Every `text*`, `accent`, `danger`, `warning` and `success` is readable (AA) on every surface."""

    window: str
    sidebar: str
    panel: str
    raised: str
    field: str
    bubble: str
    code: str
    hairline: str
    border: str
    hover: str
    pressed: str
    selected: str
    selection: str
    text: str
    text_2: str
    text_3: str
    accent: str
    accent_fill: str
    accent_hover: str
    on_accent: str
    accent_soft: str
    danger: str
    danger_soft: str
    warning: str
    warning_soft: str
    success: str
    track: str
    knob: str
    tint_a: str
    tint_b: str
    bonus: str
    found: str
    """Behind what was looked for; `found_now` behind the one that was gone to."""
    found_now: str
    syntax_keyword: str
    syntax_string: str
    syntax_number: str
    syntax_name: str
    syntax_type: str
    syntax_comment: str


LIGHT = Tokens(
    window="#ffffff",
    sidebar="#f4f4f6",
    panel="#fafafb",
    raised="#ffffff",
    field="#ffffff",
    bubble="#eff1f6",
    code="#f6f6f8",
    hairline="#e5e5ea",
    border="#c9c9d1",
    hover="#ebebef",
    pressed="#dfdfe5",
    selected="#e1e4f0",
    selection="#c6d2fb",
    text="#1d1d20",
    text_2="#55555e",
    text_3="#61616a",
    accent="#3a4fc4",
    accent_fill="#3f55cf",
    accent_hover="#3247b8",
    on_accent="#ffffff",
    accent_soft="#e9ecfb",
    danger="#b3261e",
    danger_soft="#fcefee",
    warning="#7d5200",
    warning_soft="#fdf4e1",
    success="#1b6e38",
    track="#8a8a94",
    knob="#ffffff",
    tint_a="#dfe6ff",
    tint_b="#d5f0ea",
    bonus="#ffe2a8",
    found="#fff0b8",
    found_now="#ffc861",
    syntax_keyword="#8a2fa8",
    syntax_string="#1f6b38",
    syntax_number="#9a4a00",
    syntax_name="#2b4fb0",
    syntax_type="#0d6672",
    syntax_comment="#61616a",
)
DARK = Tokens(
    window="#1b1b1f",
    sidebar="#232327",
    panel="#1f1f23",
    raised="#2a2a2f",
    field="#242428",
    bubble="#2b2d37",
    code="#242429",
    hairline="#34343a",
    border="#4b4b54",
    hover="#303036",
    pressed="#3a3a42",
    selected="#34374a",
    selection="#3d4c8f",
    text="#ececf0",
    text_2="#b4b4bf",
    text_3="#a3a3ae",
    accent="#9dadff",
    accent_fill="#5167e0",
    accent_hover="#465bd0",
    on_accent="#ffffff",
    accent_soft="#2a2f4d",
    danger="#ff8f86",
    danger_soft="#3a2426",
    warning="#eabb54",
    warning_soft="#352c1a",
    success="#74d192",
    track="#76767f",
    knob="#ffffff",
    tint_a="#2f3a6b",
    tint_b="#1f4d47",
    bonus="#6b4e12",
    found="#4d431c",
    found_now="#7a5a10",
    syntax_keyword="#d79bf0",
    syntax_string="#8fd19e",
    syntax_number="#f0b27a",
    syntax_name="#9db4ff",
    syntax_type="#7fd0dc",
    syntax_comment="#a3a3ae",
)


def luminance(color: str) -> float:
    """Relative luminance of an opaque `#rrggbb` colour as WCAG 2.1 defines it, in [0, 1]."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """WCAG 2.1 contrast ratio of two opaque colours; 4.5 and more is AA for text."""
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@cache
def _families() -> tuple[str, str]:
    """Families of the interface and of code: the system's, or Inter where Linux offers nothing better."""
    known = set(QFontDatabase.families())
    general = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont).family()
    fixed = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()
    if sys.platform not in ("darwin", "win32"):
        general = next((name for name in ("Inter", "Cantarell", "Noto Sans") if name in known), general)
    fixed = next((name for name in ("SF Mono", "Menlo", "JetBrains Mono", "Consolas") if name in known), fixed)
    return general, fixed


@lru_cache(maxsize=64)
def _svg(name: str, color: str) -> bytes:
    return (resource("icons") / f"{name}.svg").read_text(encoding="utf-8").replace("currentColor", color).encode()


@lru_cache(maxsize=512)
def icon_pixmap(name: str, color: str, size: int, ratio: float) -> QPixmap:
    """The icon `name` in `color`, `size` logical pixels square, for a screen of `ratio` device pixels per pixel."""
    pixmap = QPixmap(QSize(round(size * ratio), round(size * ratio)))
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    QSvgRenderer(_svg(name, color)).render(painter, QRectF(pixmap.rect()))
    painter.end()
    pixmap.setDevicePixelRatio(ratio)
    return pixmap


class Theme(QObject):
    """The look in force. Widgets read it when they paint and repaint on `changed`."""

    changing = Signal()
    """Comes first, for the application's palette, font and style sheet: setting those undoes what widgets set."""
    changed = Signal()

    def __init__(self, mode: Mode = "system", base: int = 13, reduce_motion: bool = False) -> None:
        super().__init__()
        self._mode: Mode = mode
        self.base = base
        """Size of the interface type in points of 1/72 inch on a Mac, that is in logical pixels."""
        self.reduce_motion = reduce_motion
        hints = QGuiApplication.styleHints()
        self._system_dark = hints.colorScheme() == Qt.ColorScheme.Dark
        hints.colorSchemeChanged.connect(self._system_changed)

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def dark(self) -> bool:
        return self._system_dark if self._mode == "system" else self._mode == "dark"

    @property
    def tokens(self) -> Tokens:
        return DARK if self.dark else LIGHT

    def set(self, *, mode: Mode | None = None, base: int | None = None, reduce_motion: bool | None = None) -> None:
        """Change what is given and tell everyone once."""
        before = (self.dark, self.base, self.reduce_motion)
        self._mode = self._mode if mode is None else mode
        self.base = self.base if base is None else max(9, min(base, 28))
        self.reduce_motion = self.reduce_motion if reduce_motion is None else reduce_motion
        if (self.dark, self.base, self.reduce_motion) != before:
            self.changing.emit()
            self.changed.emit()

    def _system_changed(self, scheme: Qt.ColorScheme) -> None:
        before = self.dark
        self._system_dark = scheme == Qt.ColorScheme.Dark
        if self.dark != before:
            self.changing.emit()
            self.changed.emit()

    def color(self, name: str) -> QColor:
        return QColor(getattr(self.tokens, name))

    def font(self, delta: int = 0, *, weight: int = 400, mono: bool = False, tabular: bool = False) -> QFont:
        """The interface font, `delta` steps larger or smaller than the base."""
        font = QFont(_families()[1 if mono else 0])
        font.setPixelSize(max(9, self.base + delta))
        font.setWeight(QFont.Weight(weight))
        if mono:
            font.setStyleHint(QFont.StyleHint.Monospace)
            # Code must show the characters that are there, not an arrow for "->".
            for feature in ("calt", "liga"):
                font.setFeature(QFont.Tag(feature), 0)
        if tabular:
            font.setFeature(QFont.Tag("tnum"), 1)
        return font

    def pixmap(self, name: str, color: str, size: int, ratio: float) -> QPixmap:
        """Icon `name` in the token `color`."""
        return icon_pixmap(name, getattr(self.tokens, color), size, ratio)

    def icon(self, name: str, color: str = "text_2", size: int = 16) -> QIcon:
        """The icon for menus and item views, sharp at 1x, 2x and 3x."""
        icon = QIcon()
        for ratio in (1.0, 2.0, 3.0):
            icon.addPixmap(self.pixmap(name, color, size, ratio))
        return icon

    def palette(self) -> QPalette:
        """The same tokens for everything that Qt paints itself."""
        role, group = QPalette.ColorRole, QPalette.ColorGroup
        palette = QPalette()
        pairs = {
            role.Window: "window",
            role.WindowText: "text",
            role.Base: "field",
            role.AlternateBase: "sidebar",
            role.Text: "text",
            role.Button: "raised",
            role.ButtonText: "text",
            role.ToolTipBase: "raised",
            role.ToolTipText: "text",
            role.PlaceholderText: "text_3",
            role.Highlight: "selection",
            role.HighlightedText: "text",
            role.Link: "accent",
            role.LinkVisited: "accent",
            role.Accent: "accent_fill",
            role.Light: "raised",
            role.Midlight: "hairline",
            role.Mid: "border",
            role.Dark: "border",
            role.Shadow: "border",
        }
        for key, name in pairs.items():
            palette.setColor(key, self.color(name))
        for key in (role.Text, role.WindowText, role.ButtonText):
            palette.setColor(group.Disabled, key, self.color("text_3"))
        return palette
