"""Carries answers to the statistics: live while they stream, stored ones when their chat is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject

from app.bridge import Stamped
from app.controllers.answer import Pieces
from app.controllers.answers import AnswerQueue, Running
from app.controllers.chat import ChatController
from app.controllers.stats import StatsController
from app.engine_host import EngineHost
from app.store.history import History
from app.store.records import Chat, Message, Round
from app.views.chat.message import FINISH_NOTES
from app.views.stats.panel import StatsPanel


class StatsFeed(QObject):
    """Keeps `panel` at the answer that runs, or at the last one of the chat in sight.

    Args:
        say: tells what an answer had to note that its own message does not show.
    """

    def __init__(
        self,
        *,
        stats: StatsController,
        host: EngineHost,
        history: History,
        chat: ChatController,
        queue: AnswerQueue,
        panel: StatsPanel,
        say: Callable[[str], object],
    ) -> None:
        super().__init__()
        self._stats, self._host, self._history, self._panel, self._say = stats, host, history, panel, say
        chat.opened.connect(self._opened)
        chat.path_changed.connect(self._show)
        queue.started.connect(self._started)
        queue.streamed.connect(self._streamed)
        queue.finished.connect(self._finished)
        stats.changed.connect(panel.show_state)

    def refresh(self) -> None:
        """Show again what is known: the panel draws nothing while it is hidden."""
        self._panel.show_state(self._stats.state)

    def _context(self) -> int | None:
        return None if self._host.facts is None else self._host.facts.context

    def _opened(self, _chat: Chat | None, path: Sequence[Message]) -> None:
        self._show(path)

    def _show(self, path: Sequence[Message]) -> None:
        if not self._stats.state.running:
            self._stats.show(path, self._rounds_of, self._context())

    def _rounds_of(self, message_id: int) -> Sequence[Round]:
        return self._history.messages.trace(message_id).rounds

    def _started(self, running: Running) -> None:
        self._stats.begin(running.message.model, self._context())

    def _streamed(self, _running: Running, _pieces: Pieces, events: Sequence[Stamped]) -> None:
        self._stats.take(events)

    def _finished(self, running: Running) -> None:
        self._stats.end()
        if running.live.notices and running.message.finish_reason not in FINISH_NOTES:
            self._say("  ".join(running.live.notices))
