"""The settings: every change holds at once and is saved at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import (
    QDialog,
    QFileDialog,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QStackedWidget,
    QWidget,
)

from app import credentials
from app.controllers.preferences import Preferences
from app.settings import LIMITS
from app.theme import GRID, Theme
from app.views.chat_settings import SAMPLING_NOTE
from app.views.folder_list import FolderList
from app.views.forms import Form, scrolled
from app.views.labels import Hairline, Label
from app.views.menus import MENUS
from app.views.page_list import PageList
from app.views.token_field import TokenField
from engine.errors import UserError
from engine.text.effort import EFFORT_LEVELS

SAMPLING_DEFAULTS = (
    "What Inkling was made for: temperature 1, top p 0.95. Each answer then differs. A chat can have its own values."
)
ICONS = ("appearance", "dice", "models", "download", "keyboard")
"""Of the sections."""
CHOOSE_FOLDER = 2
"""Result of the dialog where the user wants to choose another models folder."""
TokenCheck = Callable[[str, str | None], str]
"""(token, endpoint) to the name of its owner; raises UserError."""


def _limits(name: str) -> tuple[int, int]:
    return int(LIMITS[name].low), int(LIMITS[name].high)


def _check(token: str, endpoint: str | None) -> str:
    return credentials.check_token(token, endpoint=endpoint)


class SettingsDialog(QDialog):
    """`check_token` asks the hub who a token belongs to; it runs on a thread."""

    def __init__(
        self, theme: Theme, preferences: Preferences, parent: QWidget | None, *, check_token: TokenCheck = _check
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._preferences = preferences
        self._check_token = check_token
        self.setWindowTitle("Settings")
        self.resize(760, 600)
        self.pages = QStackedWidget(self)
        self.list = PageList(theme, "Sections", self, width=19 * GRID, padding=8)
        self.list.setIconSize(QSize(18, 18))
        for form in (self._general(), self._sampling(), self._model(), self._downloads(), self._shortcuts()):
            self.list.addItem(form.title)
            self.pages.addWidget(scrolled(form))
        self._draw_icons()
        theme.changed.connect(self._draw_icons)
        self.list.currentRowChanged.connect(self.pages.setCurrentIndex)
        self.list.setCurrentRow(0)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.list)
        layout.addWidget(Hairline(theme, self, vertical=True))
        layout.addWidget(self.pages, 1)

    def open_section(self, title: str) -> None:
        """Go to a section; to none where there is none of that title."""
        for item in self.list.findItems(title, Qt.MatchFlag.MatchExactly):
            self.list.setCurrentItem(item)

    def _draw_icons(self) -> None:
        for row, icon in enumerate(ICONS):
            self.list.item(row).setIcon(self._theme.icon(icon))

    def _set(self, **changes: Any) -> None:
        self._preferences.update(**changes)

    def _set_sampling(self, name: str, value: float | None) -> None:
        try:
            self._set(sampling=replace(self._preferences.value.sampling, **{name: value}))
        except UserError as error:
            self._preferences.failed.emit(error)

    # -- pages --------------------------------------------------------------------------------

    def _general(self) -> Form:
        form, value = Form(self._theme, "General", self), self._preferences.value
        themes = {"system": "As the system", "light": "Light", "dark": "Dark"}
        form.choice("Theme", themes, value.theme, lambda v: self._set(theme=v))
        form.integer("Font size", value.font_size, _limits("font_size"), lambda v: self._set(font_size=v), suffix=" pt")
        motion = {"system": "As the system", "on": "On", "off": "Off"}
        form.choice("Reduce motion", motion, value.reduce_motion, lambda v: self._set(reduce_motion=v))
        return form

    def _sampling(self) -> Form:
        form, value = Form(self._theme, "Sampling", self), self._preferences.value.sampling
        form.wide(Label(self._theme, SAMPLING_DEFAULTS, form, color="text_2", delta=-1, wrap=True))
        notes = {
            "temperature": SAMPLING_NOTE,
            "top_p": "Only the likeliest tokens that together have this probability.",
            "min_p": "Only tokens at least this likely, compared with the likeliest.",
            "repetition_penalty": "Above 1, what was said before becomes less likely.",
        }

        def real(name: str) -> None:
            title, limits = name.replace("_", " ").capitalize(), LIMITS[name]
            current = getattr(value, name)
            form.real(title, current, limits, lambda v: self._set_sampling(name, v), notes.get(name, ""))

        real("temperature")
        real("top_p")
        top_k = form.integer("Top k", value.top_k, _limits("top_k"), lambda v: self._set_sampling("top_k", v))
        top_k.setSpecialValueText("All")
        for name in ("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
            real(name)
        form.integer(
            "Longest answer",
            value.max_tokens,
            _limits("max_tokens"),
            lambda v: self._set_sampling("max_tokens", v),
            none="As the context allows",
            suffix=" tokens",
        )
        form.integer(
            "Seed",
            value.seed,
            _limits("seed"),
            lambda v: self._set_sampling("seed", v),
            none="Another for every answer",
        )
        return form

    def _model(self) -> Form:
        form, value = Form(self._theme, "Model", self), self._preferences.value
        form.integer(
            "Context length",
            value.context_length,
            _limits("context_length"),
            lambda v: self._set(context_length=v),
            none="As the model was made for",
            suffix=" tokens",
            note="Holds from the next load on. Shorter contexts need less memory.",
        )
        efforts = {level: level.capitalize() for level in EFFORT_LEVELS}
        if value.effort not in efforts:
            efforts[value.effort] = value.effort
        form.choice("Default effort", efforts, value.effort, lambda v: self._set(effort=v), "Of new chats.")
        return form

    def _downloads(self) -> Form:
        form, value = Form(self._theme, "Downloads", self), self._preferences.value
        folder = QLineEdit("" if value.models_folder is None else str(value.models_folder), form)
        folder.setPlaceholderText("Inkstand's data folder")
        folder.setReadOnly(True)
        folder.setMinimumWidth(30 * GRID)
        folder.setAccessibleName("Models folder")
        form.row("Models folder", form.beside(folder, form.button("Choose…", self._choose_folder)))
        self.further = FolderList(
            "Further folders",
            value.further_folders,
            form,
            ask=self._ask_folder,
            changed=lambda folders: self._set(further_folders=folders),
        )
        form.row("Further folders", self.further, "Searched for models, never written to.", wide=True)
        form.text(
            "Hub address",
            value.endpoint or "",
            lambda v: self._set(endpoint=v or None),
            placeholder="https://huggingface.co",
            note="A mirror that speaks the hub's protocol.",
        )
        self.token = TokenField(
            self._theme, form, check=lambda token: self._check_token(token, self._preferences.value.endpoint)
        )
        form.row("Access token", self.token, "For repositories that ask who you are; stored once the hub accepts it.")
        form.row("", self.token.state, wide=True)
        form.integer(
            "Bandwidth",
            None if value.bandwidth_limit is None else value.bandwidth_limit // 1000,
            (max(1, _limits("bandwidth_limit")[0] // 1000), 2**30),
            lambda v: self._set(bandwidth_limit=None if v is None else v * 1000),
            none="Unlimited",
            suffix=" kB/s",
        )
        return form

    def _shortcuts(self) -> Form:
        form = Form(self._theme, "Shortcuts", self)
        table = QWidget(form)
        grid = QGridLayout(table)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setVerticalSpacing(4)
        grid.setHorizontalSpacing(2 * GRID)
        grid.setColumnStretch(1, 1)
        grid.setColumnStretch(3, 1)
        fixed = (("Send", "Return"), ("Line break", "Shift+Return"), ("Scroll the transcript", "PgUp"))
        known = [(c.title.rstrip("…"), c.keys) for _, commands in MENUS for c in commands if c is not None and c.keys]
        pairs = [*fixed, *known]
        half = (len(pairs) + 1) // 2
        for i, (title, keys) in enumerate(pairs):
            shown = QKeySequence(keys).toString(QKeySequence.SequenceFormat.NativeText)
            column = 2 * (i // half)
            grid.addWidget(Label(self._theme, title, table, delta=-1), i % half, column)
            key = Label(self._theme, shown, table, color="text_2", delta=-1)
            grid.addWidget(key, i % half, column + 1, Qt.AlignmentFlag.AlignLeft)
        form.wide(table)
        return form

    # -- folders ------------------------------------------------------------------------------

    def _choose_folder(self) -> None:
        """Under Models, where the models that are there can move along and what goes wrong is told."""
        self.done(CHOOSE_FOLDER)

    def _ask_folder(self) -> Path | None:
        path = QFileDialog.getExistingDirectory(self, "Further folder", str(Path.home()))
        return Path(path) if path else None
