"""The widgets of messages: made when they come into sight, kept for a while after they left it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection

from PySide6.QtWidgets import QApplication, QWidget

from app.store.records import Message
from app.theme import Theme
from app.views.chat.message import AssistantMessage
from app.views.chat.text_body import TextBody
from app.views.chat.user_message import UserMessage

KEPT = 24
"""Widgets kept after they left the view, so that going back is free."""
MessageWidget = AssistantMessage | UserMessage
Decorator = Callable[[AssistantMessage], None]
Marker = Callable[[MessageWidget], None]


class MessagePool:
    """Widgets by message id, the longest unused first.

    Args:
        parent: of the widgets.
        made: called with each new one.
    """

    def __init__(self, theme: Theme, parent: QWidget, made: Callable[[MessageWidget], None]) -> None:
        self._theme = theme
        self._parent = parent
        self._made = made
        self._views: OrderedDict[int, MessageWidget] = OrderedDict()
        self._decorators: dict[int, Decorator] = {}
        self._marker: Marker | None = None

    def get(self, message_id: int) -> MessageWidget | None:
        return self._views.get(message_id)

    def __contains__(self, message_id: int) -> bool:
        return message_id in self._views

    def ensure(self, message: Message) -> MessageWidget:
        """The widget of a message, showing its present state."""
        view = self._views.get(message.id)
        if view is None:
            kind = UserMessage if message.role == "user" else AssistantMessage
            view = self._views[message.id] = kind(self._theme, message, self._parent)
            # Measured first and shown where it is placed; without this a window that opens would show it with itself.
            view.hide()
            self._made(view)
            self._decorate(view)
        elif view.message is not message:
            # It changed while it was out of sight.
            view.show_message(message)
            if self._marker is not None:
                self._marker(view)
        self._views.move_to_end(message.id)
        return view

    def decorate(self, message_id: int, decorator: Decorator | None) -> None:
        """Apply `decorator` to the answer's widget now and whenever it is made or rendered again."""
        view = self._views.get(message_id)
        if decorator is not None:
            self._decorators[message_id] = decorator
        elif self._decorators.pop(message_id, None) is not None and isinstance(view, AssistantMessage):
            view.set_rounds([])
        if view is not None:
            self._decorate(view)

    def set_marker(self, marker: Marker | None) -> None:
        """Apply `marker` to every widget now and whenever one is made or rendered again; None takes the marks away."""
        self._marker = marker
        for view in self._views.values():
            if marker is None:
                view.body.set_marks(())
            else:
                marker(view)

    def selected(self) -> MessageWidget | None:
        """The widget with a selection, in sight or not."""
        return next((view for view in self._views.values() if _selected(view)), None)

    def select_only(self, message_id: int) -> None:
        """A selection begins in a message: all others end."""
        for view in self._views.values():
            for body in _bodies(view) if view.message.id != message_id else ():
                body.clear_selection()

    def _decorate(self, view: MessageWidget) -> None:
        if self._marker is not None:
            self._marker(view)
        decorator = self._decorators.get(view.message.id)
        if decorator is not None and isinstance(view, AssistantMessage):
            decorator(view)

    def evict(self, visible: Collection[int]) -> None:
        """Delete what was not used for long, but nothing that is edited or has the focus."""
        focus = QApplication.focusWidget()
        for message_id in list(self._views):
            if len(self._views) <= len(visible) + KEPT:
                return
            view = self._views[message_id]
            focused = focus is not None and view.isAncestorOf(focus)
            if message_id not in visible and not _edited(view) and not _selected(view) and not focused:
                del self._views[message_id]
                view.deleteLater()

    def restyle(self, visible: Collection[int]) -> None:
        """Render what is in sight again and drop the rest."""
        for message_id in list(self._views):
            if message_id not in visible and not _edited(self._views[message_id]):
                self._views.pop(message_id).deleteLater()
        for view in self._views.values():
            view.restyle()
            self._decorate(view)

    def clear(self) -> None:
        """Another conversation."""
        for view in self._views.values():
            view.hide()
            view.deleteLater()
        self._views.clear()
        self._decorators.clear()


def _bodies(view: MessageWidget) -> tuple[TextBody, ...]:
    return (view.body, view.reasoning.body) if isinstance(view, AssistantMessage) else (view.body,)


def _selected(view: MessageWidget) -> bool:
    return any(body.has_selection for body in _bodies(view))


def _edited(view: MessageWidget) -> bool:
    return isinstance(view, UserMessage) and view.editing
