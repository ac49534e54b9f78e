from __future__ import annotations

from dataclasses import asdict

import pytest
from PySide6.QtGui import QTextDocument
from PySide6.QtWidgets import QApplication

from app.theme import DARK, LIGHT, Theme, Tokens, contrast, icon_pixmap
from app.views.controls import IconButton
from app.views.labels import ElidedLabel, tip_of
from app.wording import DASH, verdict
from engine.paths import resource

SURFACES = ("window", "sidebar", "panel", "raised", "field", "bubble", "code", "hover", "selected", "accent_soft")
TEXTS = ("text", "text_2", "text_3", "accent", "danger", "warning", "success")
BOTH = pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=["light", "dark"])


@BOTH
@pytest.mark.parametrize("surface", SURFACES)
def test_every_text_is_readable_on_every_surface(tokens: Tokens, surface: str) -> None:
    low = {name: contrast(getattr(tokens, name), getattr(tokens, surface)) for name in TEXTS}
    assert min(low.values()) >= 4.5, low


@BOTH
def test_code_tints_and_filled_controls_are_readable(tokens: Tokens) -> None:
    values = asdict(tokens)
    for name in values:
        if name.startswith("syntax_"):
            assert contrast(values[name], tokens.code) >= 4.5, name
    for tint in (tokens.tint_a, tokens.tint_b, tokens.bonus, tokens.selection, tokens.found, tokens.found_now):
        assert contrast(tokens.text, tint) >= 4.5
    for fill in (tokens.accent_fill, tokens.accent_hover):
        assert contrast(tokens.on_accent, fill) >= 4.5
    assert contrast(tokens.danger, tokens.danger_soft) >= 4.5
    assert contrast(tokens.warning, tokens.warning_soft) >= 4.5
    # Controls that are no text need 3:1 against what they stand on.
    assert contrast(tokens.track, tokens.window) >= 3


def test_icons_take_the_colour_they_are_asked_for(theme: Theme) -> None:
    names = sorted(path.stem for path in resource("icons").glob("*.svg"))
    assert len(names) > 20
    for name in names:
        if name.endswith(("-light", "-dark")):
            continue
        image = icon_pixmap(name, "#ff0000", 32, 1.0).toImage()
        solid = [image.pixelColor(x, y) for x in range(32) for y in range(32) if image.pixelColor(x, y).alpha() > 250]
        assert solid, name
        # Premultiplied alpha costs a few steps at soft edges.
        assert all(color.red() > 245 and color.green() == color.blue() == 0 for color in solid), name
    assert theme.pixmap("send", "accent", 16, 2.0).width() == 32


def test_a_change_is_told_once_and_only_when_something_changes(theme: Theme) -> None:
    told: list[str] = []
    theme.changing.connect(lambda: told.append("changing"))
    theme.changed.connect(lambda: told.append("changed"))
    theme.set(mode="dark", base=15)
    assert told == ["changing", "changed"]
    theme.set(mode="dark", base=15)
    assert len(told) == 2
    assert theme.font(1).pixelSize() == 16


@pytest.mark.parametrize(
    ("length", "even", "text"),
    [
        (2.6, 1.9, "2.6 tokens/round, break-even 1.9: MTP is 1.37x faster"),
        (1.5, 3.0, "1.5 tokens/round, break-even 3.0: MTP is slower, 0.50x of plain"),
        (2.0, 2.0, "2.0 tokens/round, break-even 2.0: MTP makes no difference"),
        (None, 1.9, ""),
        (2.6, None, ""),
    ],
)
def test_verdict(length: float | None, even: float | None, text: str) -> None:
    assert verdict(length, even) == text
    assert DASH not in text


def test_names_of_others_are_text_in_tooltips_too(theme: Theme, qapp: QApplication) -> None:
    name = "<img src='file:///etc/hostname'>&amp;\n<b>bold</b>"
    label = ElidedLabel(theme)
    label.set_text(name)
    button = IconButton(theme, "close", name)
    for widget in (label, button):
        document = QTextDocument()
        document.setHtml(widget.toolTip())
        assert document.toPlainText().replace("\u2028", "\n") == name
        widget.deleteLater()
    assert tip_of("Kadıköy & a > b") == "Kadıköy & a > b"
