"""A model that says what it is told, at the rate it is told: for tests, screenshots and the bench of the window."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.engine_host import LoadRequest, ModelFacts, OpenModel, Progress
from engine.decode.options import GenerationOptions
from engine.events import (
    Cancelled,
    DraftStatus,
    Event,
    Finished,
    FinishReason,
    Generation,
    PrefillProgress,
    RoundDone,
    TextDelta,
)
from engine.messages import Message
from engine.stats import StatsRecorder
from engine.text.effort import parse_effort

_PIECE = re.compile(r"\s?\w{1,6}|\s|[^\w\s]")
STOP = 0
"""Id of the token that ends an answer."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer."""

    text: str
    reasoning: str = ""


Answers = Callable[[Sequence[Message]], Said]


@dataclass(slots=True)
class Script:
    """How a scripted model behaves.

    `accepted` is gone through round by round: drafts accepted of those that the depth allows.
    """

    answers: Answers
    rate: float = 0.0
    """Tokens per second with the drafter on; 0 is as fast as it goes."""
    speedup: float = 1.5
    """How much slower plain decoding is."""
    accepted: Sequence[int] = (4, 2, 4, 3, 1, 4, 0, 4)
    depths: int = 4
    head_reason: str | None = None
    context: int = 4096
    prefill_rate: float = 0.0
    """Prompt tokens per second; 0 is as fast as it goes."""
    load_seconds: float = 0.0
    failure: BaseException | None = None
    """Raised by the next answer after its first round."""
    threads: set[int] = field(default_factory=set[int])
    """Identities of the threads that generated."""


class ScriptedModel(OpenModel):
    """An `OpenModel` without weights. Ids stand for pieces of the texts said so far."""

    def __init__(self, script: Script, request: LoadRequest, progress: Progress) -> None:
        steps = 10
        for i in range(steps if script.load_seconds else 0):
            progress(i / steps, "model.safetensors")
            time.sleep(script.load_seconds / steps)
        self.script = script
        self._pieces: list[str] = [""]
        self._ids: dict[str, int] = {}
        self._lock = threading.Lock()
        self.facts = ModelFacts(request.name, request.directory, script.depths, script.head_reason, script.context)

    def session(self, *, drafting: bool, block_size: int | None, context: int | None) -> ScriptedSession:
        return ScriptedSession(self, drafting, block_size, context or self.script.context)

    def options(self, values: Mapping[str, Any]) -> GenerationOptions:
        return GenerationOptions(**values)

    def effort(self, name: str) -> float:
        return parse_effort(name)

    def token_bytes(self, token: int) -> bytes:
        return self._pieces[token].encode()

    def memory(self) -> int:
        return 312_000_000

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, new ones for pieces never said before."""
        with self._lock:
            result: list[int] = []
            for piece in _PIECE.findall(text):
                if piece not in self._ids:
                    self._ids[piece] = len(self._pieces)
                    self._pieces.append(piece)
                result.append(self._ids[piece])
            return result


def scripted_loader(script: Script) -> Callable[[LoadRequest, Progress], OpenModel]:
    """A loader for `EngineHost` that ignores the directory."""
    return lambda request, progress: ScriptedModel(script, request, progress)


@dataclass(slots=True)
class _Turn:
    """One answer on its way."""

    ids: list[int]
    thinking: int
    """How many of the first ids are reasoning."""
    recorder: StatsRecorder
    status: DraftStatus
    done: int = 0


class ScriptedSession:
    """Speaks the answer in rounds like the engine's, statistics included."""

    def __init__(self, model: ScriptedModel, drafting: bool, block_size: int | None, context: int) -> None:
        self._model = model
        self._drafting = drafting
        self._block_size = block_size
        self._context = context
        self._round = 0
        self._due = 0.0

    def set_drafting(self, on: bool) -> None:
        self._drafting = on

    def set_block_size(self, block_size: int | None) -> None:
        self._block_size = block_size

    def _status(self) -> DraftStatus:
        script = self._model.script
        requested = "auto" if self._drafting else "none"
        if not script.depths:
            return DraftStatus(requested, "none", script.head_reason, None, None)
        if not self._drafting:
            return DraftStatus("none", "none", "The drafter is switched off.", "stateful", None)
        asked = self._block_size or script.depths + 1
        block = min(asked, script.depths + 1)
        if block == asked:
            return DraftStatus(requested, "mtp", None, "stateful", block, auto=self._block_size is None)
        reason = f"A block size of {asked} was asked for; the head has {script.depths} depths, so {block} is used."
        return DraftStatus(requested, "mtp", reason, "stateful", block, asked)

    def generate(
        self,
        messages: Sequence[Message],
        options: GenerationOptions,
        *,
        effort: float | None = None,
        cancel: threading.Event,
    ) -> Iterator[Event]:
        """Events as `engine.session.Session.generate` has them."""
        script = self._model.script
        script.threads.add(threading.get_ident())
        said = script.answers(messages)
        thought = self._model.encode(said.reasoning) if effort else []
        ids = [*thought, *self._model.encode(said.text), STOP]
        prompt = sum(len(self._model.encode(m.content or "")) for m in messages)
        turn = _Turn(ids, len(thought), StatsRecorder(prompt, 0, time.perf_counter()), self._status())
        yield turn.status
        for done in range(64, prompt, 64) if script.prefill_rate else ():
            cancel.wait(64 / script.prefill_rate)
            yield PrefillProgress(done, prompt)
        cancel.wait(prompt % 64 / script.prefill_rate if script.prefill_rate else 0)
        turn.recorder.prefill_seconds = time.perf_counter() - turn.recorder.started
        yield PrefillProgress(prompt, prompt)
        self._due, self._round = time.monotonic(), 0
        limit = min(len(ids), options.max_tokens or len(ids), max(1, self._context - prompt))
        yield from self._speak(turn, 1, 0, limit)
        while turn.done < limit:
            if cancel.is_set():
                yield Cancelled(self._result(turn, "cancelled"))
                return
            if script.failure is not None:
                failure, script.failure = script.failure, None
                raise failure
            status = self._status()
            if status != turn.status:
                turn.status = status
                yield status
            drafted = 0 if status.effective == "none" else (status.block_size or 1) - 1
            accepted = min(script.accepted[self._round % len(script.accepted)], drafted)
            self._round += 1
            self._wait(accepted + 1, drafted > 0, cancel)
            yield from self._speak(turn, accepted + 1, drafted, limit)
        reason: FinishReason = "stop" if limit == len(ids) else "length"
        if limit == self._context - prompt:
            reason = "context"
        yield Finished(self._result(turn, reason))

    def _wait(self, tokens: int, drafted: bool, cancel: threading.Event) -> None:
        rate = self._model.script.rate
        if rate:
            self._due += tokens / (rate if drafted else rate / self._model.script.speedup)
            cancel.wait(max(0.0, self._due - time.monotonic()))

    def _speak(self, turn: _Turn, count: int, drafted: int, limit: int) -> Iterator[Event]:
        ids = turn.ids[turn.done : min(turn.done + count, limit)]
        for i, token in enumerate(ids, start=turn.done):
            text = self._model.token_bytes(token).decode()
            if text:
                yield TextDelta("reasoning" if i < turn.thinking else "text", text)
        turn.done += len(ids)
        script, first = self._model.script, turn.done == len(ids)
        rate = script.rate or 300.0
        seconds = (count if drafted else script.speedup) / rate
        accepted = min(count - 1, len(ids)) if drafted else 0
        if drafted:
            turn.recorder.round(drafted, accepted, seconds)
        elif not first:
            turn.recorder.plain(seconds)
        turn.recorder.token_times(len(ids), time.perf_counter())
        yield RoundDone(tuple(ids), drafted, accepted, seconds, turn.recorder.snapshot())

    def _result(self, turn: _Turn, reason: FinishReason) -> Generation:
        said = turn.ids[: turn.done]
        reasoning, text = (
            b"".join(map(self._model.token_bytes, part)).decode()
            for part in (said[: turn.thinking], said[turn.thinking :])
        )
        message = Message("assistant", text, reasoning or None, (), tuple(said))
        return Generation(text, reasoning, tuple(said), (), reason, turn.recorder.snapshot(), turn.status, message)
