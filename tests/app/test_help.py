"""The help: every page is true of the program, and its window is searched, linked and reached by the keyboard."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QColor, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton
from test_layout import check, settle
from test_window import controls

from app.composition import Gui
from app.help_pages import ORDER, FigurePart, HelpPage, load_pages, page_of
from app.licences import installed, read_index
from app.theme import DARK, LIGHT, Theme
from app.views.about import AboutDialog
from app.views.chat.markdown import safe_link
from app.views.figure import Figure, drawn_in
from app.views.help_page import native_keys
from app.views.help_window import HelpWindow
from app.views.labels import Label
from app.views.licences_dialog import LicencesDialog
from app.views.menus import COMMANDS, MENUS
from app.views.settings_dialog import SettingsDialog
from engine.cli.main import build_parser
from engine.paths import resource

ROOT = Path(__file__).parents[2]
PAGES = {page.name: page for page in load_pages()}
FIXED_KEYS = {"Return", "Shift+Return", "Shift+F10", "Tab"}
"""Keys that need no command of the menus."""
EVERY_PAGE = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


def spans(page: HelpPage) -> Iterator[str]:
    """What stands in code type inside the text."""
    for token in MarkdownIt("commonmark").enable("table").parse(page.source):
        yield from (child.content for child in token.children or () if child.type == "code_inline")


def quoted(page: HelpPage) -> list[str]:
    """What is set in bold, which is what the window says."""
    return re.findall(r"\*\*([^*]+?)\*\*", " ".join(page.source.split()))


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next((dict(a.choices) for a in parser._actions if isinstance(a, argparse._SubParsersAction)), {})


def check_line(line: str) -> None:
    """Parse a command line as the program does."""
    program, *arguments = shlex.split(line, comments=True)
    assert program == "inkstand"
    if arguments:
        build_parser().parse_args(arguments)


def test_every_file_is_a_page() -> None:
    assert {path.stem for path in resource("help").glob("*.md")} == set(ORDER)
    assert all(page.title and page.source.startswith("# ") for page in PAGES.values())


@EVERY_PAGE
def test_links_lead_somewhere(page: HelpPage) -> None:
    for target in re.findall(r"(?<!!)\[[^\]]+\]\(([^)]+)\)", page.source):
        assert page_of(target) in PAGES or safe_link(target), target
    for part in page.parts:
        if isinstance(part, FigurePart):
            assert part.file.is_file()
            assert len(part.text) > 40
    assert "![" not in "".join(part for part in page.parts if isinstance(part, str))


@EVERY_PAGE
def test_commands_exist_and_their_options_too(page: HelpPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"\b\w+\.json\b", page.source):
        (tmp_path / name).touch()  # the command line names only files that are there
    for block in re.findall(r"```console\n(.*?)```", page.source, re.DOTALL):
        for line in block.strip().split("\n"):
            check_line(line)
    commands = subcommands(build_parser())
    known = {option for parser in commands.values() for action in parser._actions for option in action.option_strings}
    chat = (ROOT / "engine/cli/conversation.py").read_text(encoding="utf-8")
    for span in spans(page):
        words = span.split()
        if words[0] == "inkstand" and len(words) > 1:
            assert words[1] in {*commands, "--self-test"}, span
            if len(words) > 2:
                check_line(span)
        elif words[0].startswith("-"):
            assert words[0] in known, span
        elif re.fullmatch(r"/[a-z]+", span):
            assert f'"{span}": (' in chat, span


@EVERY_PAGE
def test_keys_are_those_of_the_menus(page: HelpPage) -> None:
    known = {keys for command in COMMANDS for keys in (command.keys, command.other_keys) if keys} | FIXED_KEYS
    for span in spans(page):
        if re.fullmatch(r"(Ctrl|Alt|Shift)\+\S+|F\d+|Return|Tab", span):
            assert span in known, span
    for title, keys in re.findall(r"\*\*\w+ › ([^*]+?)\*\* \(`([^`]+)`\)", page.source.replace("\n", " ")):
        assert keys in {c.keys for c in COMMANDS if c.title.rstrip("…") == title}, title
    for keys, title in re.findall(r"^\| `([^`]+)` \| \*\*\w+ › ([^*]+)\*\* \|$", page.source, re.MULTILINE):
        assert keys in {c.keys for c in COMMANDS if c.title.rstrip("…") == title}, title


def test_menus_settings_and_buttons_are_called_so(gui: Gui) -> None:
    settings = SettingsDialog(gui.services.theme, gui.services.preferences, gui.window)
    labels = {label.text() for label in settings.findChildren(Label)}
    sections = {settings.list.item(row).text() for row in range(settings.list.count())}
    menus = {menu: {c.title.rstrip("…") for c in commands if c is not None} for menu, commands in MENUS}
    program = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "app").rglob("*.py"))
    for page in PAGES.values():
        for text in quoted(page):
            place, *rest = text.split(" › ")
            if not rest:
                explained = re.search(rf"^(\d\. |- )?\*\*{re.escape(text)}\*\*", page.source, re.MULTILINE)
                said = f'"{text.split(": ")[0]}' in program or text in labels
                assert said or (explained and text.endswith(".")), f"{page.name}: {text}"
            elif place == "Settings":
                assert rest[0] in sections, f"{page.name}: {text}"
                assert rest[1:] == [] or rest[1] in labels, f"{page.name}: {text}"
            else:
                assert rest[0] in menus[place], f"{page.name}: {text}"
    settings.deleteLater()


def test_every_setting_is_explained(gui: Gui) -> None:
    settings = SettingsDialog(gui.services.theme, gui.services.preferences, gui.window)
    explained = {text.split(" › ")[-1] for text in quoted(PAGES["settings"])}
    for row in range(settings.list.count()):
        page = settings.pages.widget(row)
        names = {label.text() for label in page.findChildren(Label) if label.buddy() is not None and label.text()}
        assert names <= explained, names - explained
    settings.deleteLater()


def test_every_figure_of_the_panel_is_explained(gui: Gui) -> None:
    panel = gui.window.panel
    explained = set(re.findall(r"^\| ([^|]+?) \|", PAGES["statistics"].source, re.MULTILINE))
    named = {panel.rows.names[key] for key in panel.rows.names}
    named |= {figure.unit for figure in (panel.length, panel.rate, panel.accepted)}
    assert named <= explained, named - explained
    assert len(named) > 8


# -- the window -----------------------------------------------------------------------------------


@pytest.fixture
def pages(theme: Theme) -> HelpWindow:
    window = HelpWindow(theme, None)
    window.show()
    return window


@pytest.mark.parametrize("keys", ["F1", "Ctrl+?"])
def test_it_opens_from_the_menu_and_by_key_once(gui: Gui, qapp: QApplication, keys: str) -> None:
    assert QKeySequence(keys) in gui.window.menus.actions["help"].shortcuts()
    gui.window.menus.actions["help"].trigger()
    gui.window.menus.actions["help"].trigger()
    (window,) = gui.window.findChildren(HelpWindow)
    assert window.isVisible()
    assert window.page == ORDER[0]
    for control in controls(window):
        assert control.accessibleName()
        assert control.focusPolicy() & Qt.FocusPolicy.TabFocus
    window.close()
    settle(qapp)


def test_pages_are_listed_read_and_left_by_keyboard(pages: HelpWindow, qapp: QApplication) -> None:
    assert pages.titles == [page.title for page in PAGES.values()]
    for name in ORDER[1:]:
        QTest.keyClick(pages.list, Qt.Key.Key_Down)
        assert pages.page == name
        assert all(passage.plain_text().strip() for passage in pages.view.passages)
    bar = pages.view.verticalScrollBar()
    QTest.keyClick(pages.search, Qt.Key.Key_Return)
    pages.view.passages[0].setFocus()
    QTest.keyClick(pages.view.passages[0], Qt.Key.Key_PageDown)
    assert bar.value() > 0
    pages.go_back()
    assert pages.page == ORDER[-2]
    assert bar.value() == 0
    assert pages.list.currentRow() == len(ORDER) - 2


def test_links_lead_to_pages_and_out_of_the_program(theme: Theme) -> None:
    opened: list[QUrl] = []
    window = HelpWindow(theme, None, open_url=opened.append)
    window.open_page("getting-started")
    assert "drafter.md" in [link for passage in window.view.passages for link in passage.markdown.links()]
    window.view.link_clicked.emit("drafter.md")
    assert window.page == "drafter"
    window.view.link_clicked.emit("https://huggingface.co")
    assert [url.toString() for url in opened] == ["https://huggingface.co"]
    window.go_back()
    assert window.page == "getting-started"


def test_the_search_lists_marks_and_says_when_there_is_nothing(pages: HelpWindow) -> None:
    QTest.keyClicks(pages.search, "BREAK-even")
    assert pages.page == "statistics"
    assert any(passage.marks for passage in pages.view.passages)
    assert pages.view.verticalScrollBar().value() > 0
    assert PAGES["statistics"].title in pages.titles
    assert PAGES["checkpoints"].title not in pages.titles
    pages.search.setText("zzz")
    assert pages.titles == []
    assert pages.nothing.isVisible()
    pages.go_back()
    assert (pages.page, pages.search.text()) == ("getting-started", "")
    assert len(pages.titles) == len(ORDER)


@pytest.mark.parametrize(("width", "height"), [(560, 380), (1200, 800)])
def test_nothing_is_cut_off(pages: HelpWindow, qapp: QApplication, width: int, height: int) -> None:
    pages.resize(width, height)
    for name in ORDER:
        pages.open_page(name)
        settle(qapp)
        check(pages)
        for passage in pages.view.passages:
            assert passage.x() + passage.width() <= pages.view.viewport().width()
            assert passage.height() == passage.height_for(passage.width())


def test_shortcuts_are_written_as_the_system_writes_them() -> None:
    native = QKeySequence("Ctrl+Shift+R").toString(QKeySequence.SequenceFormat.NativeText)
    assert native_keys("`Ctrl+Shift+R`, `F1`, `--effort`") == f"`{native}`, `F1`, `--effort`"


def test_the_figure_has_the_colours_of_the_theme(qapp: QApplication) -> None:
    file = resource("help") / "speculation.svg"
    source = file.read_text(encoding="utf-8")
    names = {name.replace("-", "_") for name in re.findall(r'(?:fill|line)-([a-z0-9-]+)["\s]', source)}
    assert names <= asdict(LIGHT).keys()
    light, dark = source.split("@media (prefers-color-scheme: dark)")
    for tokens, part in ((LIGHT, light), (DARK, dark.split("</style>")[0])):
        rules = dict(re.findall(r"\.(?:fill|line)-([a-z0-9-]+) \{ \w+: (#\w+); \}", part))
        assert rules == {name: getattr(tokens, name.replace("-", "_")) for name in rules}
        assert {name.replace("-", "_") for name in rules} == names
    assert drawn_in(source, DARK, "Inter").count("<style>") == 1
    theme = Theme("light")
    figure = Figure(theme, file, "A round")
    figure.resize(720, figure.height_for(720))
    for mode, tokens in (("light", LIGHT), ("dark", DARK)):
        theme.set(mode=mode)
        figure.restyle()
        assert figure.grab().toImage().pixelColor(160, 140) == QColor(tokens.accent_fill)
    assert figure.height_for(360) == figure.height_for(720) // 2


def test_the_help_follows_the_theme_while_it_is_open(pages: HelpWindow, theme: Theme, qapp: QApplication) -> None:
    pages.open_page("drafter")
    theme.set(mode="dark")
    settle(qapp)
    assert pages.view.grab().toImage().pixelColor(2, 2) == QColor(DARK.window)


def test_the_settings_follow_the_theme_while_they_are_open(gui: Gui, qapp: QApplication) -> None:
    theme = gui.services.theme
    settings = SettingsDialog(theme, gui.services.preferences, gui.window)
    settings.show()
    for mode, tokens in (("light", LIGHT), ("dark", DARK)):
        theme.set(mode=mode)
        settle(qapp)
        picture = settings.list.grab().toImage()
        assert picture.pixelColor(2, picture.height() - 3) == QColor(tokens.sidebar)
    settings.close()
    settings.deleteLater()
    settle(qapp)


def test_the_licences_of_all_parts_are_read_there(
    gui: Gui, qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "licenses" / "Other").mkdir(parents=True)
    (tmp_path / "licenses" / "Other" / "COPYING").write_text("Do what you like.\n")
    parts = [
        {"name": "Inkstand", "version": "1.0", "licence": "Apache-2.0", "texts": ["Inkstand/LICENSE"]},
        {"name": "Other", "version": "2.0", "licence": "", "texts": ["Other/COPYING"]},
    ]
    (tmp_path / "licenses" / "index.json").write_text(json.dumps(parts))
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    about = AboutDialog(gui.services.theme, gui.window)
    next(button for button in about.findChildren(QPushButton) if button.text() == "Licences…").click()
    about.close()
    settle(qapp)
    dialog = gui.window.findChild(LicencesDialog)
    assert dialog is not None
    assert dialog.isVisible()
    assert "cannot be read" in dialog.text.toPlainText()
    QTest.keyClick(dialog.list, Qt.Key.Key_Down)
    assert dialog.title.text() == "Other 2.0"
    assert dialog.text.toPlainText() == "Do what you like."
    for control in controls(dialog):
        assert control.accessibleName()
    check(dialog)
    dialog.close()
    settle(qapp)


def test_licences_are_known_without_a_bundle_too() -> None:
    names = {component.name for component in installed("pytest")}
    assert {"pytest", "pluggy", "iniconfig"} <= names
    assert next(iter(installed("pytest"))).name == "pytest"
    assert installed("there-is-no-such-package") == []
    assert read_index(Path("no index")) == []


def test_about_names_version_licence_and_where_the_demo_comes_from(gui: Gui, qapp: QApplication) -> None:
    gui.window.menus.actions["about"].trigger()
    dialog = gui.window.findChild(AboutDialog)
    assert dialog is not None
    text = " ".join(label.text() for label in dialog.findChildren(Label))
    assert "Apache License 2.0" in text
    assert "SmolLM2-135M-Instruct" in text
    settle(qapp)
    check(dialog)
    dialog.close()
    settle(qapp)
