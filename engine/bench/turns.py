"""What a session's caches save from turn to turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.bench.prompts import Prompt
from engine.bench.speed import Progress
from engine.events import Failed, Finished, Generation
from engine.messages import Message
from engine.session import Engine, GenerationOptions, Session

FOLLOW_UPS = (
    Prompt("shorter", "Say the same in fewer words."),
    Prompt("example", "Give me an example."),
    Prompt("why", "Why is that so?"),
    Prompt("list", "Put the main points into a list."),
    Prompt("end", "Thank you. What should I read next?"),
)


@dataclass(frozen=True, slots=True)
class Turn:
    prompt_tokens: int
    cached_tokens: int
    """Of them in the caches of the kept session."""
    kept_ttft: float
    """Seconds to the first token in a session that holds the turns before."""
    fresh_ttft: float
    """The same in a session that holds nothing."""
    same_text: bool

    @property
    def ratio(self) -> float:
        """Fresh over kept."""
        return self.fresh_ttft / self.kept_ttft

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "fresh_over_kept": self.ratio}


def measure_turns(engine: Engine, first: Prompt, *, turns: int, max_tokens: int, progress: Progress) -> list[Turn]:
    """A conversation of `turns` greedy turns, each answered by a kept session and by a fresh one.

    Raises:
        UserError: the checkpoint has no template, or the conversation outgrew the context.
    """
    kept = Session(engine)
    prompts = [first, *(FOLLOW_UPS[i % len(FOLLOW_UPS)] for i in range(turns - 1))]
    messages: list[Message] = []
    found: list[Turn] = []
    _answer(Session(engine), [Message("user", first.text)], 8)  # what is compiled or allocated once
    for done, prompt in enumerate(prompts):
        progress(done / turns, f"Turn {done + 1}")
        messages.append(Message("user", prompt.text))
        reused, fresh = _answer(kept, messages, max_tokens), _answer(Session(engine), messages, max_tokens)
        stats = reused.stats
        assert stats.ttft_s is not None
        assert fresh.stats.ttft_s is not None
        same = reused.token_ids == fresh.token_ids
        found.append(Turn(stats.prompt_tokens, stats.cached_tokens, stats.ttft_s, fresh.stats.ttft_s, same))
        messages.append(reused.message)
    return found


def _answer(session: Session, messages: Sequence[Message], max_tokens: int) -> Generation:
    for event in session.generate(messages, GenerationOptions(max_tokens=max_tokens)):
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Finished):
            return event.generation
    raise AssertionError("a generation ends with an event")
