"""The conversation in sight: sending, stopping, regenerating, editing, branches."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, cast

from PySide6.QtCore import QObject, Signal

from app.controllers.answers import AnswerQueue, Running
from app.engine_host import EngineHost, GenerateRequest
from app.rounds import Run, runs
from app.settings import OVERRIDES, Settings, SettingsError
from app.store.history import History
from app.store.records import Chat, Message, Round
from engine.errors import UserError


class ChatController(QObject):
    """Signals:
    opened(Chat | None, path): another chat is in sight; None is the blank page before the first message.
    path_changed(path): the same chat along another branch.
    added(Message): a message at the end.
    streamed(Message, pieces): more of an answer that is in sight.
    settled(Message): an answer in sight is complete.
    chats_changed: titles, order or activity of the list.
    settings_changed: the chat in sight got other settings of its own.
    sending: a message is about to be stored.
    failed(UserError): something that could not be done.
    """

    opened = Signal(object, object)
    path_changed = Signal(object)
    added = Signal(object)
    streamed = Signal(object, object)
    settled = Signal(object)
    chats_changed = Signal()
    settings_changed = Signal()
    sending = Signal()
    failed = Signal(object)

    def __init__(
        self,
        history: History,
        host: EngineHost,
        queue: AnswerQueue,
        settings: Callable[[], Settings],
        *,
        seed: Callable[[], int] = lambda: random.randrange(2**32),
    ) -> None:
        super().__init__()
        self._history = history
        self._host = host
        self._queue = queue
        self._settings = settings
        self._seed = seed
        self.chat: Chat | None = None
        self.path: list[Message] = []
        self._blank_prompt = ""
        self._blank_settings: dict[str, Any] = {}
        queue.streamed.connect(self._on_streamed)
        queue.finished.connect(self._on_finished)
        queue.changed.connect(self.chats_changed)

    # -- which chat ---------------------------------------------------------------------------

    def open(self, chat_id: int, message_id: int | None = None) -> None:
        """Show a chat, along the branch of `message_id` if given."""

        def work() -> None:
            chat = self._history.chats.get(chat_id)
            path = self._history.messages.path(chat_id)
            if message_id is not None and all(m.id != message_id for m in path):
                path = self._history.messages.activate(message_id)
            self.chat, self.path = chat, self._with_live(path)
            self.opened.emit(self.chat, self.path)

        self._try(work)

    def blank(self) -> None:
        """The page of a chat that does not exist before something is sent."""
        self.chat, self.path = None, []
        self._blank_prompt, self._blank_settings = "", {}
        self.opened.emit(None, [])

    def refresh(self) -> None:
        """The open chat's title or settings changed elsewhere."""
        if self.chat is not None:
            self.chat = self._history.chats.get(self.chat.id)

    @property
    def settings(self) -> Settings:
        """In force for the next answer: the chat's own, and the settings for the rest."""
        return self._settings().with_overrides(self._overrides())

    @property
    def own_settings(self) -> dict[str, Any]:
        """What the chat has set for itself, by the names of `app.settings.OVERRIDES`."""
        return {name: value for name, value in self._overrides().items() if name in OVERRIDES}

    def set_own(self, name: str, value: float | str | None) -> None:
        """Set one of `app.settings.OVERRIDES` for this chat, from its next answer on.

        What is as in the settings is not kept, so that it follows them.
        """
        defaults = self._settings()
        default = defaults.effort if name == "effort" else getattr(defaults.sampling, name)
        values = {k: v for k, v in self._overrides().items() if k != name}
        self._set_overrides(values if value == default else {**values, name: value})

    def reset_own(self) -> None:
        """Follow the settings again."""
        self._set_overrides({k: v for k, v in self._overrides().items() if k not in OVERRIDES})

    @property
    def effort(self) -> str:
        return self.settings.effort

    def set_effort(self, effort: str) -> None:
        self.set_own("effort", effort)

    @property
    def system_prompt(self) -> str:
        return self._blank_prompt if self.chat is None else self.chat.system_prompt

    def set_system_prompt(self, text: str) -> None:
        if self.chat is None:
            self._blank_prompt = text
            return
        chat = self.chat
        self._try(lambda: self._history.chats.set_system_prompt(chat.id, text))
        self.refresh()

    def _overrides(self) -> dict[str, Any]:
        return self._blank_settings if self.chat is None else dict(self.chat.settings)

    def _set_overrides(self, values: dict[str, Any]) -> None:
        if self.chat is None:
            self._blank_settings = values
        else:
            chat = self.chat
            self._try(lambda: self._history.chats.set_settings(chat.id, values))
            self.refresh()
        self.settings_changed.emit()

    # -- answers ------------------------------------------------------------------------------

    @property
    def running(self) -> Running | None:
        """The answer on its way in the chat in sight."""
        return None if self.chat is None else self._queue.of_chat(self.chat.id)

    def send(self, content: str) -> bool:
        """Append a message and have it answered.

        Returns:
            whether the message is in the history and in sight; that it is stored but cannot be answered is told by
            `failed`, and `retry` makes up for it.
        """
        if not content.strip() or self.running is not None:
            return False
        stored = False
        self.sending.emit()

        def work() -> None:
            nonlocal stored
            fresh = self.chat is None
            if self.chat is None:
                self.chat = self._history.chats.create(
                    system_prompt=self._blank_prompt, settings=self._blank_settings or None
                )
            message = self._history.messages.send(self.chat.id, content)
            self.chat = self._history.chats.get(self.chat.id)
            if fresh:
                self.opened.emit(self.chat, [])
            self.path.append(message)
            self.added.emit(message)
            stored = True
            self._answer(message.id)

        self._try(work)
        return stored

    def stop(self) -> None:
        running = self.running
        if running is not None:
            self._queue.stop(running.message.id)

    def regenerate(self, answer_id: int) -> None:
        """Another answer to the same message; the first stays as a branch."""
        message = self._find(answer_id)
        if message is not None and message.parent_id is not None:
            self.retry(message.parent_id)

    def retry(self, user_id: int) -> None:
        """Another answer to a message, from there on."""
        if self.running is None:
            self._try(lambda: self._branch(user_id))

    def edit(self, user_id: int, content: str) -> bool:
        """A new version of a message, answered; the old one keeps everything below it.

        Returns:
            whether the new version is in the history, as in `send`.
        """
        if not content.strip() or self.running is not None:
            return False
        stored = False

        def work() -> None:
            nonlocal stored
            message = self._history.messages.edit(user_id, content)
            stored = True
            try:
                self._branch(message.id)
            except UserError:
                # Without an answer, but in sight.
                self.path = self._with_live(self._history.messages.path(message.chat_id))
                self.path_changed.emit(self.path)
                raise

        self._try(work)
        return stored

    def switch(self, message_id: int, by: int) -> None:
        """The previous or next version of a message."""
        message = self._find(message_id)
        if message is None:
            return
        place = message.siblings.index(message.id) + by
        if 0 <= place < len(message.siblings):
            target = message.siblings[place]

            def work() -> None:
                self.path = self._with_live(self._history.messages.activate(target))
                self.path_changed.emit(self.path)

            self._try(work)

    def rounds(self, message_id: int) -> list[Run]:
        """Where the rounds of an answer lie in its text."""
        message = self._find(message_id)
        if message is None:
            return []
        running = self._queue.get(message_id)
        if running is not None:
            ids: Sequence[int] = running.live.token_ids
            rounds: Sequence[Round] = running.live.rounds
        else:
            trace = self._history.messages.trace(message_id)
            ids, rounds = trace.token_ids, trace.rounds
        return runs(ids, rounds, message.content, self._host.token_bytes)

    def request_for(self, answer_id: int) -> GenerateRequest | None:
        """The turn that led to an answer, with the seed and the sampling it had."""
        message = self._find(answer_id)
        if message is None or message.parent_id is None:
            return None
        had = message.options.get("sampling")
        own = {**(cast("dict[str, Any]", had) if isinstance(had, dict) else {})}
        try:
            settings = self.settings.with_overrides({**own, "effort": message.options.get("effort", self.effort)})
        except SettingsError:
            # Imported, or garbled.
            settings = self.settings
        context = partial(self._history.messages.context, message.parent_id)
        return GenerateRequest(context, asdict(settings.sampling), settings.effort)

    def _branch(self, parent_id: int) -> None:
        """Answer `parent_id`, with whatever is shown below it replaced by the new answer."""
        assert self.chat is not None
        request, message = self._begin(parent_id)
        self.path = self._with_live(self._history.messages.path(self.chat.id))
        self._queue.submit(message, request)
        self.path_changed.emit(self.path)

    def _answer(self, parent_id: int) -> None:
        request, message = self._begin(parent_id)
        self.path.append(message)
        self.added.emit(message)
        self._queue.submit(message, request)

    def _begin(self, parent_id: int) -> tuple[GenerateRequest, Message]:
        settings = self.settings
        sampling = asdict(settings.sampling)
        if sampling["seed"] is None:
            # Drawn here and kept with the answer, so that it can be replayed.
            sampling["seed"] = self._seed()
        context = partial(self._history.messages.context, parent_id)
        facts = self._host.facts or self._host.loading
        message = self._history.messages.begin_answer(
            parent_id,
            model="" if facts is None else facts.name,
            options={
                "effort": settings.effort,
                "sampling": sampling,
                "drafting": self._host.drafting,
                "depth": self._host.depth,
            },
        )
        return GenerateRequest(context, sampling, settings.effort), message

    # -- events -------------------------------------------------------------------------------

    def _on_streamed(self, running: Running, pieces: object, _events: object) -> None:
        if self._replace(running.message) and running.message.state == "streaming":
            self.streamed.emit(running.message, pieces)

    def _on_finished(self, running: Running) -> None:
        if self._replace(running.message):
            self.settled.emit(running.message)

    def _replace(self, message: Message) -> bool:
        """Put a newer state of a message into the path; False when it is not in sight."""
        for i in range(len(self.path) - 1, -1, -1):
            if self.path[i].id == message.id:
                self.path[i] = message
                return True
        return False

    def _with_live(self, path: Sequence[Message]) -> list[Message]:
        """The history is behind an answer that is coming in."""
        result: list[Message] = []
        for message in path:
            running = self._queue.get(message.id)
            result.append(message if running is None else running.message)
        return result

    def _find(self, message_id: int) -> Message | None:
        return next((m for m in self.path if m.id == message_id), None)

    def _try(self, work: Callable[[], None]) -> bool:
        """Do something with the history; its troubles are the user's to know."""
        try:
            work()
        except UserError as error:
            self.failed.emit(error)
            # A part of it may have been done.
            self.chats_changed.emit()
            return False
        return True
