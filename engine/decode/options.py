"""What a caller asks of one generation."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import PromptError


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """Sampling and length of one generation.

    Raises:
        PromptError: a value is out of its range; the message names it.
    """

    max_tokens: int | None = None
    """New tokens at most; None is limited by the context alone."""
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in the prompt or the output."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens in the output."""
    frequency_penalty: float = 0.0
    """Subtracted once per occurrence in the output."""
    stop: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        def check(name: str, accepted: str, ok: bool) -> None:
            if not ok:
                raise PromptError(f"{name} is {getattr(self, name)!r}.", f"It must be {accepted}.")

        check("max_tokens", "at least 1", self.max_tokens is None or self.max_tokens >= 1)
        check("temperature", "a number from 0 to 100", 0 <= self.temperature <= 100)
        check("top_p", "above 0 and at most 1", 0 < self.top_p <= 1)
        check("top_k", "0 (all) or more", self.top_k >= 0)
        check("min_p", "from 0 to 1", 0 <= self.min_p <= 1)
        check("repetition_penalty", "from 0.01 to 100", 0.01 <= self.repetition_penalty <= 100)
        check("presence_penalty", "from -100 to 100", -100 <= self.presence_penalty <= 100)
        check("frequency_penalty", "from -100 to 100", -100 <= self.frequency_penalty <= 100)
        check("stop", "without empty strings", all(self.stop))
        check("seed", "from 0 to 2**63 - 1", self.seed is None or 0 <= self.seed < 2**63)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def penalised(self) -> bool:
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)
