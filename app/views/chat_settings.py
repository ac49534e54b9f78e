"""The settings of one chat: sampling, effort and system prompt; what is not changed follows the settings."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.controllers.chat import ChatController
from app.settings import LIMITS
from app.theme import GRID, Theme
from app.views.forms import Form, scrolled
from app.views.labels import Label
from engine.text.effort import EFFORT_LEVELS

SHOWN = ("temperature", "top_p", "top_k", "max_tokens", "seed")
SAMPLING_NOTE = "0 always takes the likeliest token, so the text is the same with MTP on and off."
PROMPT_LINES = 7
NOTE = "For this chat only, from its next answer on. What you do not change follows the settings."


class ChatSettingsDialog(QDialog):
    """Every change holds at once; the system prompt is kept when the dialog closes."""

    def __init__(self, theme: Theme, chat: ChatController, parent: QWidget | None) -> None:
        super().__init__(parent)
        self._theme, self._chat = theme, chat
        self.setWindowTitle("Chat settings")
        self.state = Label(theme, "", self, color="text_2", delta=-1, wrap=True)
        self.prompt = QPlainTextEdit(chat.system_prompt, self)
        self.prompt.setPlaceholderText("You are a helpful assistant that answers in one paragraph.")
        self.prompt.setTabChangesFocus(True)
        self.prompt.setFixedHeight(PROMPT_LINES * theme.font().pixelSize())
        self.reset = QPushButton("Use defaults", self)
        self.reset.setAutoDefault(False)
        self.reset.setToolTip("Take sampling and effort from the settings again")
        self.reset.clicked.connect(self._reset)
        done = QPushButton("Done", self)
        done.setDefault(True)
        done.setProperty("primary", True)
        done.clicked.connect(self.accept)
        self.form = self._form()
        self._area = scrolled(self.form)
        buttons = QHBoxLayout()
        buttons.setContentsMargins(3 * GRID, GRID, 3 * GRID, 2 * GRID)
        buttons.setSpacing(GRID + 4)
        buttons.addWidget(self.reset)
        buttons.addWidget(self.state, 1)
        buttons.addWidget(done)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._area, 1)
        layout.addLayout(buttons)
        wanted = self.form.sizeHint()
        self.resize(max(560, wanted.width()), min(680, wanted.height() + 8 * GRID))
        self._show_state()
        self.effort.setFocus()

    def _form(self) -> Form:
        theme, chat = self._theme, self._chat
        form, value = Form(theme, "Chat settings", self), chat.settings
        form.wide(Label(theme, NOTE, form, color="text_2", wrap=True))
        efforts = {level: level.capitalize() for level in EFFORT_LEVELS}
        if value.effort not in efforts:
            efforts[value.effort] = value.effort
        self.effort = form.choice("Effort", efforts, value.effort, lambda v: self._set("effort", v))
        for name, title, note in (
            ("temperature", "Temperature", SAMPLING_NOTE),
            ("top_p", "Top p", "Only the likeliest tokens that together have this probability."),
        ):
            low, high = LIMITS[name]
            form.real(title, getattr(value.sampling, name), (low, high), self._setter(name), note)
        for name, title, none, suffix in (
            ("top_k", "Top k", "", ""),
            ("max_tokens", "Longest answer", "As the context allows", " tokens"),
            ("seed", "Seed", "Another for every answer", ""),
        ):
            limits = (int(LIMITS[name].low), int(LIMITS[name].high))
            current = getattr(value.sampling, name)
            box = form.integer(title, current, limits, self._setter(name), none=none, suffix=suffix)
            if name == "top_k":
                box.setSpecialValueText("All")
        form.row("System prompt", self.prompt, "What the model is told before this chat begins.", wide=True)
        self.prompt.setAccessibleName("System prompt")
        return form

    def _setter(self, name: str) -> Callable[[float | None], None]:
        return lambda value: self._set(name, value)

    def _set(self, name: str, value: float | str | None) -> None:
        self._chat.set_own(name, value)
        self._show_state()

    def _show_state(self) -> None:
        own = len(self._chat.own_settings)
        self.reset.setEnabled(own > 0)
        self.state.set_text("" if not own else "1 differs from the settings." if own == 1 else f"{own} differ.")

    def _reset(self) -> None:
        """The values of the settings, shown at once; what is typed as system prompt stays."""
        self._chat.reset_own()
        text = self.prompt.toPlainText()
        self.prompt = QPlainTextEdit(text, self)
        self.prompt.setTabChangesFocus(True)
        self.prompt.setFixedHeight(PROMPT_LINES * self._theme.font().pixelSize())
        self.form = self._form()
        self._area.setWidget(self.form)
        self._show_state()

    def done(self, result: int) -> None:
        # What is being typed counts.
        self.reset.setFocus()
        text = self.prompt.toPlainText().strip()
        if text != self._chat.system_prompt:
            self._chat.set_system_prompt(text)
        super().done(result)
