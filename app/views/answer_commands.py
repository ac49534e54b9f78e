"""What is done with the answer in sight: rounds, the replay the other way, reports."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QWidget

from app.controllers.answers import AnswerQueue
from app.controllers.chat import ChatController
from app.controllers.replay import Replay
from app.controllers.stats import StatsController
from app.engine_host import EngineHost
from app.store.history import History
from app.store.records import Message
from app.theme import Theme
from app.views.chat.page import ChatPage
from app.views.chat.replay_dialog import ReplayDialog
from app.views.dialogs import TextDialog


def run_dialog(dialog: QDialog) -> int:
    """Wait for a dialog, which its parent would keep for good, and return its result."""
    result = dialog.exec()
    dialog.deleteLater()
    return result


class AnswerCommands:
    """Acts on answers in the page's chat."""

    def __init__(
        self,
        *,
        window: QWidget,
        theme: Theme,
        history: History,
        host: EngineHost,
        queue: AnswerQueue,
        chat: ChatController,
        stats: StatsController,
        page: ChatPage,
    ) -> None:
        self._window, self._theme, self._history, self._host = window, theme, history, host
        self._queue, self._chat, self._stats, self._page = queue, chat, stats, page
        page.replay.connect(self.replay)
        page.report.connect(self._show_report)
        page.text_shown.connect(self._show_text)

    def _with_last(self, act: Callable[[int], object]) -> None:
        """Do something with the last answer in sight once it is complete."""
        answer = self._page.last_answer()
        if answer is not None and self._queue.get(answer) is None:
            act(answer)

    def regenerate_last(self) -> None:
        self._with_last(self._chat.regenerate)

    def toggle_rounds(self) -> None:
        self._with_last(self._page.toggle_rounds)

    def rounds_as_text(self) -> None:
        self._with_last(self._page.rounds_as_text)

    def replay_last(self) -> None:
        self._with_last(self.replay)

    def replay(self, answer_id: int) -> None:
        """Open the window that runs an answer's turn again with the drafter the other way."""
        message = next((m for m in self._chat.path if m.id == answer_id), None)
        request = self._chat.request_for(answer_id)
        if message is None or request is None:
            return
        ran_with = (message.draft or {}).get("effective") == "mtp"
        ids = self._history.messages.trace(answer_id).token_ids
        replay = Replay(self._host, request, message, ids, drafting=not ran_with)

        def learn(done: Message) -> None:
            self._stats.learn(done.model, replay.live.stats)

        replay.finished.connect(learn)
        dialog = ReplayDialog(self._theme, replay, self._window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()

    def _show_text(self, title: str, text: str) -> None:
        run_dialog(TextDialog(self._theme, title, "", text, self._window))

    def _show_report(self, answer_id: int) -> None:
        explanation = "Please send this with what you did, after a look at what it says."
        run_dialog(TextDialog(self._theme, "Report of a bug", explanation, self._queue.report(answer_id), self._window))
