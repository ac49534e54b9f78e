"""A scripted session in place of a model, so that the command line is tested without weights."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.events import (
    CancelFlag,
    Cancelled,
    DraftStatus,
    Event,
    Failed,
    Finished,
    Generation,
    Notice,
    PrefillProgress,
    RoundDone,
    TextDelta,
    ToolCallReady,
)
from engine.loaded import Check
from engine.messages import Message, ToolCall
from engine.paths import demo_checkpoint
from engine.stats import GenerationStats, StatsRecorder
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer

AUTO = DraftStatus("auto", "mtp", None, "stateful", 5, auto=True)


def speculative_stats() -> GenerationStats:
    recorder = StatsRecorder(prompt_tokens=28, cached_tokens=0, started=0.0)
    recorder.token_times(1, 0.5)
    recorder.round(4, 4, 0.1)
    recorder.token_times(5, 1.0)
    recorder.round(4, 1, 0.1)
    recorder.token_times(2, 1.5)
    return recorder.snapshot()


def plain_stats() -> GenerationStats:
    recorder = StatsRecorder(prompt_tokens=28, cached_tokens=0, started=0.0)
    recorder.token_times(1, 0.5)
    recorder.plain(0.1)
    recorder.token_times(1, 1.0)
    return recorder.snapshot()


def generation(
    text: str = "Foam writes on the sand.",
    *,
    reasoning: str = "",
    reason: Any = "stop",
    stats: GenerationStats | None = None,
    draft: DraftStatus = AUTO,
    token_ids: tuple[int, ...] = (7, 8, 9),
    tool_calls: tuple[ToolCall, ...] = (),
) -> Generation:
    return Generation(
        text=text,
        reasoning=reasoning,
        token_ids=token_ids,
        tool_calls=tool_calls,
        finish_reason=reason,
        stats=stats or speculative_stats(),
        draft=draft,
        message=Message("assistant", text, reasoning=reasoning or None, token_ids=token_ids),
    )


def answer(text: str = "Foam writes on the sand.", reasoning: str = "", **fields: Any) -> list[Event]:
    """The events of a whole answer."""
    done = generation(text, reasoning=reasoning, **fields)
    events: list[Event] = [PrefillProgress(0, 28), PrefillProgress(28, 28)]
    events += [TextDelta("reasoning", word) for word in reasoning.splitlines(keepends=True)]
    events += [TextDelta("text", part) for part in text.splitlines(keepends=True)]
    events += [ToolCallReady(call) for call in done.tool_calls]
    return [*events, RoundDone(done.token_ids, 4, 2, 0.1, done.stats), Finished(done)]


Script = Callable[[CancelFlag | None], Iterator[Event]]


@cache
def demo_tokenizer() -> Tokenizer:
    return Tokenizer.from_directory(demo_checkpoint(), ())


@cache
def demo_template() -> ChatTemplate | None:
    return ChatTemplate.from_directory(demo_checkpoint())


@dataclass
class FakeEngine:
    """Records how it was asked to load."""

    config: Any = field(default_factory=lambda: types.SimpleNamespace(text=types.SimpleNamespace(max_positions=2048)))
    tokenizer: Tokenizer = field(default_factory=demo_tokenizer)
    template: ChatTemplate | None = field(default_factory=demo_template)
    head_depths: int = 4
    head_reason: str | None = None
    error: Exception | None = None
    reports: tuple[Any, ...] = ()
    loads: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)

    def load(self, directory: Path, *, check: Check | None = None, **options: Any) -> FakeEngine:
        if check is not None:
            check(self.config, self.tokenizer, self.template)
        self.loads.append((directory, options))
        if self.error is not None:
            raise self.error
        options["progress"](0.5, "model.safetensors")
        return self


@dataclass
class FakeSession:
    """Plays one script per answer and records what it was given."""

    scripts: list[list[Event] | Script] = field(default_factory=list)
    opened: dict[str, Any] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    drafting: bool = True
    engine: FakeEngine | None = None

    def set_drafting(self, enabled: bool) -> None:
        self.drafting = enabled

    def generate(
        self,
        messages: Sequence[Message],
        options: Any,
        *,
        effort: float | None,
        cancel: CancelFlag | None = None,
        tools: Sequence[Any] = (),
    ) -> Iterator[Event]:
        self.requests.append(
            {"messages": list(messages), "options": options, "effort": effort, "drafting": self.drafting}
        )
        return self._play(cancel)

    def complete(self, text: str, options: Any, *, cancel: CancelFlag | None = None) -> Iterator[Event]:
        self.requests.append({"text": text, "options": options})
        return self._play(cancel)

    def _play(self, cancel: CancelFlag | None) -> Iterator[Event]:
        script = self.scripts.pop(0)
        yield from script(cancel) if callable(script) else script


@dataclass
class Fakes:
    engine: FakeEngine
    session: FakeSession


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    """Puts the fakes where the commands import `engine.session` from."""
    fakes = Fakes(FakeEngine(), FakeSession())
    module = types.ModuleType("engine.session")
    module.Engine = fakes.engine  # type: ignore[attr-defined]

    def open_session(engine: FakeEngine, **options: Any) -> FakeSession:
        assert engine is fakes.engine
        fakes.session.engine, fakes.session.opened = engine, options
        fakes.session.drafting = options["drafting"]
        return fakes.session

    module.Session = open_session  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "engine.session", module)
    return fakes


__all__ = [
    "Cancelled",
    "DraftStatus",
    "Failed",
    "FakeEngine",
    "FakeSession",
    "Fakes",
    "Notice",
    "answer",
    "fakes",
    "generation",
    "plain_stats",
    "speculative_stats",
]
