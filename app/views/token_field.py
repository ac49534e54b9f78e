"""The hub's access token in the settings: whether there is one, a field for another, and what is done with them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton, QWidget

from app import credentials
from app.hints import sentence_of
from app.theme import GRID, Theme
from app.views.labels import Label
from app.views.models.confirm import Confirm
from engine.errors import UserError

TokenCheck = Callable[[str], str]
"""A token to the name of its owner; blocks, and raises UserError."""
_STATES = {
    "file": "A token is stored.",
    "environment": "The token of the environment (HF_TOKEN) is used.",
    None: "No token is stored.",
}
_CHECK, _STORE = "Check", "Store"


class TokenField(QWidget):
    """Stores a token once the hub has said whose it is, and forgets it again; `state` is a line to show below it.

    Args:
        check: asks the hub; runs on a thread.
    """

    _answered = Signal(str, bool)

    def __init__(self, theme: Theme, parent: QWidget, *, check: TokenCheck) -> None:
        super().__init__(parent)
        self._theme, self._check = theme, check
        self.field = QLineEdit(self)
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setPlaceholderText("hf_…")
        self.field.setMinimumWidth(30 * GRID)
        self.field.setAccessibleName("Access token")
        self.check_button = QPushButton(_STORE, self)
        self.forget_button = QPushButton("Forget", self)
        self.state = Label(theme, "", self, color="text_2", delta=-1, wrap=True)
        for button in (self.check_button, self.forget_button):
            button.setAutoDefault(False)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(GRID)
        line.addWidget(self.field)
        line.addWidget(self.check_button)
        line.addWidget(self.forget_button)
        self.field.textChanged.connect(self._show_buttons)
        self.field.returnPressed.connect(self.check_button.click)
        self.check_button.clicked.connect(self._ask)
        self.forget_button.clicked.connect(self._confirm)
        self._answered.connect(self._take)
        self._show_state()

    def _show_state(self, text: str = "", color: str = "text_2") -> None:
        self.state.set_text(text or _STATES[credentials.token_origin()])
        self.state.set_color(color)
        self._show_buttons()

    def _show_buttons(self, _text: str = "") -> None:
        typed = bool(self.field.text().strip())
        self.check_button.setText(_STORE if typed else _CHECK)
        self.check_button.setEnabled(typed or credentials.token() is not None)
        self.forget_button.setEnabled(credentials.is_stored())

    def _ask(self) -> None:
        """Ask the hub, on a thread, which also keeps what was typed: the settings may be closed by then."""
        typed = self.field.text().strip()
        token = typed or credentials.token() or ""
        self.field.setReadOnly(True)
        self._show_state("Asking the hub…")
        self.check_button.setEnabled(False)

        def work() -> None:
            try:
                owner = self._check(token)
                if typed:
                    credentials.save_token(typed)
            except UserError as error:
                answer, good = sentence_of(error), False
            else:
                answer, good = f"It belongs to {owner}{' and is stored' if typed else ''}.", True
            with suppress(RuntimeError):  # the settings were closed
                self._answered.emit(answer, good)

        threading.Thread(target=work, name="inkstand-token", daemon=True).start()

    def _take(self, answer: str, good: bool) -> None:
        self.field.setReadOnly(False)
        if good:
            self.field.clear()
        self._show_state(answer, "success" if good else "danger")

    def _confirm(self) -> None:
        text = (
            "It is kept for all Hugging Face tools of this account, and none of them will find it any more. "
            "On the hub it stays valid until you revoke it there."
        )
        Confirm(self._theme, "Forget the access token?", text, (("Forget", self._forget),), self.window()).open()

    def _forget(self) -> None:
        try:
            credentials.forget_token()
        except UserError as error:
            self._show_state(sentence_of(error), "danger")
        else:
            self._show_state()
        self.field.setFocus()
