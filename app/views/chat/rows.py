"""The messages of a transcript in their order, with the heights that are known or guessed of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.store.records import Message
from app.views.chat.heights import Heights


class Rows:
    """Messages by place and by id.

    Args:
        pad: pixels above the first and below the last.
        estimate: height in pixels of a message that was never shown.
    """

    def __init__(self, pad: int, estimate: Callable[[Message], int]) -> None:
        self._estimate = estimate
        self._messages: list[Message] = []
        self._places: dict[int, int] = {}
        self.heights = Heights(pad)

    @property
    def messages(self) -> Sequence[Message]:
        return self._messages

    def __getitem__(self, place: int) -> Message:
        return self._messages[place]

    def place(self, message_id: int) -> int | None:
        """Where a message stands; None for one that is not here."""
        return self._places.get(message_id)

    def reset(self, messages: Sequence[Message]) -> bool:
        """Hold other messages; heights that were measured stay. Returns whether they are of the same chat."""
        known = {message.id: self.heights.measured(i) for i, message in enumerate(self._messages)}
        same = bool(self._messages) and bool(messages) and self._messages[0].chat_id == messages[0].chat_id
        self._messages = list(messages)
        self._places = {message.id: i for i, message in enumerate(messages)}
        self.heights.reset([known.get(m.id) for m in messages], [self._estimate(m) for m in messages])
        return same

    def append(self, message: Message) -> None:
        self._places[message.id] = len(self._messages)
        self._messages.append(message)
        self.heights.append(self._estimate(message))

    def replace(self, message: Message) -> int | None:
        """Hold another state of a message. Returns its place, None for one that is not here."""
        place = self._places.get(message.id)
        if place is not None:
            self._messages[place] = message
        return place

    def guess(self, place: int) -> None:
        """The height of a message that changed out of sight."""
        self.heights.guess(place, self._estimate(self._messages[place]))
