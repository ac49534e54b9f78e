"""A conversation as token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from engine.errors import PromptError, TemplateError
from engine.messages import Message
from engine.text.markers import CONTENT_TEXT, END_MESSAGE, END_SAMPLING, MESSAGE_MODEL
from engine.text.payload import PayloadShield, json_texts, map_json, map_message, message_texts
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A prompt that ends where the model is to go on."""

    ids: tuple[int, ...]
    boundaries: tuple[int, ...]
    """Where each turn starts in `ids`: one offset per message, then that of the turn to be generated.

    The first is 0. A turn whose start cannot be told (the template gathers several messages) has the
    offset of the turn before it.
    """


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Message],
    effort: float,
    tools: Sequence[Mapping[str, Any]] = (),
) -> ChatPrompt:
    """Encode one conversation; see `ChatEncoder.encode`."""
    return ChatEncoder(tokenizer, template).encode(messages, effort, tools)


@dataclass(frozen=True, slots=True)
class _Rendering:
    """A rendered conversation, with what it was made from."""

    messages: tuple[Message, ...]
    effort: float
    tools: tuple[Mapping[str, Any], ...]
    shield: PayloadShield
    whole: str
    starts: tuple[int | None, ...]
    """Per message, and for the generation prompt: where it starts in `whole`, None if that cannot be told."""


class ChatEncoder:
    """Renders conversations with the checkpoint's template and encodes them piece by piece.

    It remembers the last conversation, so that a longer version of it costs only what is new.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._last: _Rendering | None = None
        self._encoded: dict[str, list[int]] = {}
        """Ids of the parts of the last conversation."""

    def encode(self, messages: Sequence[Message], effort: float, tools: Sequence[Mapping[str, Any]] = ()) -> ChatPrompt:
        """The prompt for the turn after `messages`.

        Only markers that the template writes become control tokens; in payloads they are plain text.

        An assistant turn with `token_ids` contributes exactly these ids, followed by the closing tokens
        that it lacks because generation was cut. So the prompt of the next turn begins with this prompt
        and the ids generated from it, as long as nothing before changes. That needs a template for
        which the rendering of the first messages is a prefix of the rendering of all. A turn where it
        is not (because, say, the template drops reasoning from earlier turns) is encoded from its text.

        Raises:
            PromptError: there are no messages, or they cannot be encoded.
            TemplateError: the template refuses the conversation or fails.
        """
        if not messages:
            raise PromptError("The conversation has no messages.", "Add at least one user message.")
        rendering = self._render(tuple(messages), effort, tuple(tools))
        encoder = _PieceEncoder(self._tokenizer, rendering.shield, self._encoded)
        prompt = self._assemble(rendering, encoder)
        self._last, self._encoded = rendering, encoder.used
        return prompt

    def _assemble(self, rendering: _Rendering, encoder: _PieceEncoder) -> ChatPrompt:
        whole, starts = rendering.whole, rendering.starts
        opening = None if starts[-1] is None else whole[starts[-1] :]
        ids: list[int] = []
        boundaries: list[int] = []
        done = 0
        for message, start, end in zip((*rendering.messages, None), starts, (*starts[1:], None), strict=True):
            if start is None:
                boundaries.append(boundaries[-1])
                continue
            ids += encoder.encode(whole[done:start])
            done = start
            boundaries.append(len(ids))
            if message is None or message.token_ids is None or opening is None or end is None:
                continue
            closing = closing_ids(self._tokenizer, message.token_ids)
            if closing is not None:
                ids += [*encoder.encode(opening), *message.token_ids, *closing]
                done = end
        ids += encoder.encode(whole[done:])
        return ChatPrompt(tuple(ids), tuple(boundaries))

    def _render(self, messages: tuple[Message, ...], effort: float, tools: tuple[Mapping[str, Any], ...]) -> _Rendering:
        try:
            occupied = chain([self._template.source], message_texts(messages), json_texts(tools))
            shield = PayloadShield(self._tokenizer.control_tokens, occupied)
            covered = [map_message(message, shield.cover) for message in messages]
            covered_tools = [map_json(tool, shield.cover) for tool in tools]
        except RecursionError as error:
            raise PromptError("A tool call is nested too deeply.", "Use arguments with fewer levels.") from error
        whole = self._template.render(covered, effort, covered_tools, add_generation_prompt=True)

        starts: list[int | None] = [0]
        known = self._known_starts(messages, effort, tools, shield, whole)
        last = 0
        for count in range(1, len(messages) + 1):
            start = known[count] if count < len(known) else None
            if start is None:
                start = self._start_after(covered[:count], effort, covered_tools, whole)
            if start is not None and start < last:
                start = None
            starts.append(start)
            last = start or last
        return _Rendering(messages, effort, tools, shield, whole, tuple(starts))

    def _known_starts(
        self,
        messages: tuple[Message, ...],
        effort: float,
        tools: tuple[Mapping[str, Any], ...],
        shield: PayloadShield,
        whole: str,
    ) -> Sequence[int | None]:
        """Starts of the turns that the last conversation has too, where the text before them is the same."""
        last = self._last
        if last is None or (last.effort, last.tools, last.shield.sentinel) != (effort, tools, shield.sentinel):
            return ()
        shared = next(
            (i for i, (old, new) in enumerate(zip(last.messages, messages, strict=False)) if old != new),
            min(len(last.messages), len(messages)),
        )
        starts = last.starts[: shared + 1]
        while starts and not (starts[-1] is not None and whole.startswith(last.whole[: starts[-1]])):
            starts = starts[:-1]
        return starts

    def _start_after(
        self, messages: Sequence[Message], effort: float, tools: Sequence[Mapping[str, Any]], whole: str
    ) -> int | None:
        """Where the turn after `messages` starts in `whole`, if `whole` begins with their rendering."""
        try:
            part = self._template.render(messages, effort, tools, add_generation_prompt=False)
        except TemplateError:  # some templates demand, say, a user message; the whole has one
            return None
        return len(part) if whole.startswith(part) else None


class _PieceEncoder:
    """Encodes parts of a rendered text: the template's markers by id, all else as plain text."""

    def __init__(self, tokenizer: Tokenizer, shield: PayloadShield, known: Mapping[str, list[int]]) -> None:
        self._tokenizer = tokenizer
        self._shield = shield
        self._known = known
        self.used: dict[str, list[int]] = {}
        """Ids of every part that was asked for."""

    def encode(self, rendered: str) -> list[int]:
        ids = self.used.get(rendered) or self._known.get(rendered)
        if ids is None:
            ids = self._encode(rendered)
        self.used[rendered] = ids
        return ids

    def _encode(self, rendered: str) -> list[int]:
        tokenizer, ids, done = self._tokenizer, list[int](), 0
        for match in tokenizer.control_pattern.finditer(rendered):
            ids += tokenizer.encode(self._shield.uncover(rendered[done : match.start()]))
            ids.append(tokenizer.control_tokens[match[0]])
            done = match.end()
        return ids + tokenizer.encode(self._shield.uncover(rendered[done:]))


def closing_ids(tokenizer: Tokenizer, generated: Sequence[int]) -> tuple[int, ...] | None:
    """What a turn of which `generated` was written lacks at its end, None if the tokenizer has no markers.

    Nothing after a stop id. A message that was opened and not begun is closed as an empty text.
    """
    if generated and generated[-1] in tokenizer.eos_token_ids:
        return ()
    header, text, end, stop = map(tokenizer.control_id, (MESSAGE_MODEL, CONTENT_TEXT, END_MESSAGE, END_SAMPLING))
    if header is None or text is None or end is None or stop is None:
        return None
    last = generated[-1] if generated else header
    if last == stop:
        return ()
    if last == end:
        return (stop,)
    return (text, end, stop) if last == header else (end, stop)
