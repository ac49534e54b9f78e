"""A conversation with a loaded checkpoint: caches kept between turns, generation as a stream of events."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import mlx.core as mx

from engine.answer import Answer
from engine.cache import ROLLBACK_ROWS
from engine.decode.chained import ChainedDrafter
from engine.decode.depth import DepthPolicy
from engine.decode.drafter import Drafter
from engine.decode.loop import DecodeLoop, Rollback, Step
from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler
from engine.decode.stateful import StatefulDrafter
from engine.decode.target import PREFILL_CHUNK, Target
from engine.errors import PromptError, TemplateError
from engine.events import (
    CancelFlag,
    Cancelled,
    DraftStatus,
    Event,
    Failed,
    Finished,
    FinishReason,
    Generation,
    Notice,
    PrefillProgress,
    RoundDone,
)
from engine.history import Boundaries
from engine.loaded import Engine, check_context, check_prompt
from engine.messages import Message
from engine.model.device import wired_memory
from engine.stats import StatsRecorder
from engine.text.chat import ChatEncoder

Schedule = Literal["stateful", "chained"]
DEFAULT_EFFORT = 0.9

__all__ = ["Engine", "GenerationOptions", "Session"]


def _ignore(hidden: mx.array, ids: Sequence[int]) -> None:
    """Stands in for a drafter's view of the prefill."""


class Session:
    """Generates answers, one at a time, and keeps what it computed for the next turn.

    All methods run in the thread that owns MLX, except `set_drafting` and `set_block_size`, which any
    thread may call; they take effect at the next round.

    Args:
        block_size: tokens per verify block, so one draft less, the same every round; None lets each round take what
            pays, see `engine.decode.depth`, up to the schedule's default (stateful: depths + 1, also its largest;
            chained: depths + 2).
        schedule: how the head drafts, see `engine.decode.stateful` and `engine.decode.chained`.
        rollback: how the caches forget rejected rows, see `engine.decode.loop`.
        drafting: whether the drafter starts switched on.
        context: tokens of prompt and answer together; None takes what the model was made for.
        prefill_chunk: prompt rows per forward.
        drafter: replaces the head's drafter (used by tests and reports).

    Raises:
        PromptError: a block size or context out of range.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        block_size: int | None = None,
        schedule: Schedule = "stateful",
        rollback: Rollback = "trim",
        drafting: bool = True,
        context: int | None = None,
        prefill_chunk: int = PREFILL_CHUNK,
        drafter: Drafter | None = None,
    ) -> None:
        check_context(engine.config, context)
        self.engine, self.prefill_chunk = engine, prefill_chunk
        self.rollback: Rollback = rollback
        self.context = context or engine.context
        self.schedule: Schedule = schedule
        self.target = Target(engine.backbone)
        self.drafter = drafter
        if drafter is None and engine.head is not None:
            self.drafter = ChainedDrafter(engine.head) if schedule == "chained" else StatefulDrafter(engine.head)
        self._drafting = drafting
        self._block_size: int | None = None
        self.set_block_size(block_size)
        self._policy = DepthPolicy(self._most_drafts) if self.drafter is not None else None
        self._boundaries = Boundaries()
        self._encoder = None if engine.template is None else ChatEncoder(engine.tokenizer, engine.template)

    # What any thread may do

    @property
    def drafting(self) -> bool:
        """Whether the drafter is switched on."""
        return self._drafting

    def set_drafting(self, on: bool) -> None:
        """Switch the drafter from the next round on."""
        self._drafting = on

    def set_block_size(self, block_size: int | None) -> None:
        """Tokens per verify block from the next round on; None for what pays. Raises `PromptError` below 2."""
        if block_size is not None and block_size < 2:
            raise PromptError(
                f"A draft block size of {block_size} was asked for.",
                "A block is one token and at least one draft: use 2 or more.",
            )
        self._block_size = block_size

    @property
    def block_size(self) -> int:
        """Tokens per verify block, at most where each round takes what pays; 1 without a drafter."""
        if self.drafter is None:
            return 1
        most = self.drafter.max_drafts
        # A windowed cache takes back no more than ROLLBACK_ROWS rejected drafts.
        return min(self._block_size or self._most_drafts + 1, (ROLLBACK_ROWS if most is None else most) + 1)

    @property
    def _most_drafts(self) -> int:
        """Drafts of a round where no block size was asked for."""
        assert self.drafter is not None
        most = self.drafter.max_drafts
        return self.engine.head_depths + 1 if most is None else most

    def draft_status(self) -> DraftStatus:
        """What was asked of the drafter, what runs, and why the two differ."""
        requested = self.engine.draft_kind if self._drafting else "none"
        if self.drafter is None:
            return DraftStatus(requested, "none", self.engine.head_reason, None, None)
        if not self._drafting:
            return DraftStatus(requested, "none", "The drafter is switched off.", self.schedule, None)
        reason, asked = None, self._block_size
        if asked is not None and asked != self.block_size:
            most = self.drafter.max_drafts
            why = f"a round takes {ROLLBACK_ROWS} drafts" if most is None else f"the head has {most} depths"
            reason = f"A block size of {asked} was asked for; {why}, so {self.block_size} is used."
        return DraftStatus(
            requested,
            "mtp",
            reason,
            self.schedule,
            self.block_size,
            requested_block_size=None if reason is None else asked,
            auto=asked is None,
            vocabulary=self.engine.draft_vocabulary,
        )

    # What the owner of MLX does

    def generate(
        self,
        messages: Sequence[Message],
        options: GenerationOptions,
        *,
        effort: float | None = None,
        tools: Sequence[dict[str, Any]] = (),
        cancel: CancelFlag | None = None,
    ) -> Iterator[Event]:
        """Answer a conversation. The stream ends with one of `Finished`, `Cancelled`, `Failed`.

        Args:
            effort: thinking effort in [0, 0.99]; None takes the model's usual 0.9.
            cancel: takes effect within one prefill chunk or round and leaves the session usable.
        """
        try:
            if self._encoder is None:
                raise TemplateError(
                    f"{self.engine.directory} has no chat template, so it cannot chat.",
                    "Use `inkstand generate`, which completes raw text with such a model.",
                )
            effort = DEFAULT_EFFORT if effort is None else effort
            prompt = self._encoder.encode(messages, effort, tools)
        except Exception as error:
            yield Failed(error)
            return
        yield from self._run(prompt.ids, options, cancel, channels=True)

    def complete(self, text: str, options: GenerationOptions, *, cancel: CancelFlag | None = None) -> Iterator[Event]:
        """Continue raw text, without a template; events as in `generate`."""
        yield from self._run(self.engine.tokenizer.encode(text), options, cancel, channels=False)

    def continue_ids(
        self, ids: Sequence[int], options: GenerationOptions, *, cancel: CancelFlag | None = None
    ) -> Iterator[Event]:
        """Continue prompt ids as they are, reading the output as chat channels; events as in `generate`."""
        yield from self._run(ids, options, cancel, channels=True)

    def reset(self) -> None:
        """Forget the conversation."""
        self.target.reset()
        if self.drafter is not None:
            self.drafter.reset()
        self._boundaries.clear()

    def _run(
        self, ids: Sequence[int], options: GenerationOptions, cancel: CancelFlag | None, *, channels: bool
    ) -> Iterator[Event]:
        try:
            with wired_memory():
                yield from self._generate(list(ids), options, cancel or threading.Event(), channels)
        except PromptError as error:
            yield Failed(error)
        except Exception as error:
            # The caches may stand between two states; a fresh start is the safe one.
            self.reset()
            yield Failed(error)

    def _generate(
        self, ids: list[int], options: GenerationOptions, cancel: CancelFlag, channels: bool
    ) -> Iterator[Event]:
        began = time.perf_counter()
        check_prompt(self.engine.config, self.context, len(ids))
        logits = self._reuse(ids)
        tokenizer = self.engine.tokenizer
        answer = Answer(
            tokenizer,
            stop_ids=self.engine.config.eos_token_ids,
            stops=options.stop,
            max_tokens=options.max_tokens,
            room=self.context - len(ids),
            channels=channels,
        )
        sampler = Sampler(options, self.engine.config.text.unpadded_vocab_size, ids)
        loop = DecodeLoop(self.target, self.drafter, sampler, self.rollback, answer)
        recorder = StatsRecorder(len(ids), len(ids) if logits is not None else self.target.position, began)
        status = self.draft_status()
        yield status

        if self._policy is not None:
            self._policy.begin(options.temperature)
        if logits is None:
            self._prepare()
            start = self.target.position
            observe = self.drafter.extend if self.drafter is not None else _ignore
            last_row, clock = None, time.perf_counter()
            for row in self.target.prefill(ids, self.prefill_chunk, observe):
                last_row = row
                recorder.prefill_seconds += time.perf_counter() - clock
                yield PrefillProgress(self.target.position - start, len(ids) - start)
                clock = time.perf_counter()
                if cancel.is_set():
                    yield Cancelled(self._result(answer, recorder, "cancelled", status))
                    return
            assert last_row is not None
            logits = self.target.logits(last_row)
            if self.drafter is not None:
                clock = time.perf_counter()
                mx.async_eval(logits)
                self.drafter.catch_up(ids)
                recorder.prefill_seconds += time.perf_counter() - clock
            self._boundaries.record(self.target, self.drafter, logits)

        step = loop.first(logits)
        try:
            while True:
                recorder.token_times(len(step.tokens), time.perf_counter())
                yield from answer.drain()
                yield RoundDone(step.tokens, step.drafted, step.accepted, step.seconds, recorder.snapshot())
                if step.finish is not None or cancel.is_set():
                    break
                if self.draft_status() != status:
                    status = self.draft_status()
                    yield status
                step = self._step(loop, recorder, answer.left)
        finally:
            loop.finish()
        answer.close()
        yield from answer.drain()
        if step.finish is None:
            yield Cancelled(self._result(answer, recorder, "cancelled", status))
            return
        if step.finish == "context":
            yield Notice(f"The context of {self.context} tokens is full; the answer ends here.")
        yield Finished(self._result(answer, recorder, step.finish, status))

    def _reuse(self, ids: Sequence[int]) -> mx.array | None:
        """Bring the caches to a prefix of `ids`; the last row's logits [1, V] when that is all of them."""
        held = self.target.ids
        self._boundaries.record(self.target, self.drafter, None)
        if held == list(ids[: len(held)]) and self.target.position < len(ids):
            return None
        boundary = self._boundaries.rewind(self.target, self.drafter, ids)
        if boundary is None:
            self.reset()
            return None
        return boundary.logits if boundary.rows == len(ids) else None

    def _prepare(self) -> int:
        """The most drafts that the next round may carry, 0 for a plain step."""
        drafts = self.block_size - 1 if self._drafting and self.drafter is not None else 0
        if self.drafter is not None:
            # Every depth stays primed while a round may use it, plain steps that pay better notwithstanding: their
            # rows wait in the drafter's log, and are read together.
            self.drafter.prepare(drafts)
        return drafts

    def _step(self, loop: DecodeLoop, recorder: StatsRecorder, left: int) -> Step:
        """The next step of an answer.

        Args:
            left: tokens until it ends at the latest, at least 1.
        """
        # A block never reads a position beyond the context.
        drafts = most = min(self._prepare(), self.context - len(self.target.ids))
        if drafts and self._policy is not None and self._block_size is None:
            drafts = self._policy.choose(min(drafts, left - 1))  # one token of a round is no draft
        chosen = self._policy if self._block_size is None else None
        if drafts:
            step = loop.round(drafts, more=chosen is None or chosen.rounds_follow())
        else:
            more = left > 1 and (not most or (chosen is not None and chosen.plain_follows()))
            step = loop.plain(more=more, hindsight=chosen.hindsight() if most and chosen is not None else 0)
        if self._policy is not None and step.finish is None:
            self._policy.learn(step.drafted, step.accepted, step.seconds, whole=step.forwards == 1)
            if step.hindsight:
                self._policy.learn_hindsight(step.hindsight)
        recorder.near_ties += step.near_ties
        if step.drafted:
            recorder.round(step.drafted, step.accepted, step.seconds)
        else:
            recorder.plain(step.seconds)
        return step

    def _result(self, answer: Answer, recorder: StatsRecorder, reason: FinishReason, status: DraftStatus) -> Generation:
        message = Message(
            role="assistant",
            content=answer.text,
            reasoning=answer.reasoning or None,
            tool_calls=tuple(answer.tool_calls),
            token_ids=tuple(answer.token_ids),
        )
        return Generation(
            text=answer.text,
            reasoning=answer.reasoning,
            token_ids=tuple(answer.token_ids),
            tool_calls=tuple(answer.tool_calls),
            finish_reason=reason,
            stats=recorder.snapshot(),
            draft=status,
            message=message,
            reasoning_tokens=answer.reasoning_tokens,
        )
