"""Who takes part in a comparison of decoding speed: our own ways of decoding one checkpoint, and the peer's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from engine.bench.peer import OWN_BLOCK, Peer
from engine.bench.prompts import Prompt, prompt_ids
from engine.events import Failed, Finished
from engine.session import Engine, GenerationOptions, Schedule, Session
from engine.stats import GenerationStats

PLAIN, AUTO, PEER = "plain", "auto", "peer"
"""Names of the contestants that others are compared with, and of ours as users run it."""


@dataclass(frozen=True, slots=True)
class Case:
    """One text to generate: greedily, or sampled with the seed of the repetition."""

    name: str
    text: str
    ids: tuple[int, ...]
    """The prompt as the model reads it."""
    max_tokens: int
    temperature: float = 0.0

    def options(self, repetition: int) -> GenerationOptions:
        seed = None if self.temperature == 0 else 1000 + repetition
        return GenerationOptions(max_tokens=self.max_tokens, temperature=self.temperature, seed=seed)


@dataclass(frozen=True, slots=True)
class Run:
    """What one generation came to; None where nothing was measured."""

    token_ids: tuple[int, ...]
    decode_tps: float | None
    """(N - 1) / (time of the last token - time of the first)."""
    rounds: int = 0
    plain_steps: int = 0
    tokens_per_round: float | None = None
    near_ties: int = 0

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        return {"tokens": len(self.token_ids), **{k: v for k, v in fields.items() if k != "token_ids"}}


class Contestant(Protocol):
    """One way to decode."""

    @property
    def name(self) -> str: ...

    def run(self, case: Case, repetition: int) -> Run | None:
        """Generate the text; None where this contestant does not take part in the case."""
        ...


class Own:
    """One session kept for the whole comparison, as a user's would be, so that what it learns of costs stays known.

    Args:
        drafts: per round; None leaves the choice to the session, 0 switches the drafter off.
    """

    def __init__(self, name: str, engine: Engine, drafts: int | None, schedule: Schedule = "stateful") -> None:
        self._name = name
        block = drafts + 1 if drafts else None
        self._session = Session(engine, block_size=block, schedule=schedule, drafting=drafts != 0)

    @property
    def name(self) -> str:
        return self._name

    def run(self, case: Case, repetition: int) -> Run:
        """Raises what the generation fails with."""
        session, options = self._session, case.options(repetition)
        session.reset()
        chats = session.engine.template is not None
        events = session.continue_ids(case.ids, options) if chats else session.complete(case.text, options)
        for event in events:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Finished):
                return _run_of(event.generation.token_ids, event.generation.stats)
        raise AssertionError("a generation ends with an event")


def _run_of(ids: tuple[int, ...], stats: GenerationStats) -> Run:
    return Run(ids, stats.decode_tps, stats.rounds, stats.plain_steps, stats.acceptance_length, stats.near_ties)


class Theirs:
    """The peer, plain (`block` None) or with its drafter; takes part in greedy cases."""

    def __init__(self, peer: Peer, block: int | None, stop_ids: Sequence[int]) -> None:
        self._peer, self._block, self._stop_ids = peer, block, tuple(stop_ids)

    @property
    def name(self) -> str:
        if self._block is None:
            return PEER
        return f"{PEER} block {self._peer.block if self._block == OWN_BLOCK else self._block}"

    def run(self, case: Case, repetition: int) -> Run | None:
        """Raises `PeerError`."""
        if case.temperature:
            return None
        answer = self._peer.ask(case.ids, tokens=case.max_tokens, stop=self._stop_ids, block=self._block)
        drafted = self._block is not None and answer.rounds
        per_round = (len(answer.ids) - 1) / answer.rounds if drafted else None
        return Run(answer.ids, answer.decode_tps, answer.rounds, 0, per_round)


def own_contestants(engine: Engine, depths: Sequence[int] | None, schedules: Sequence[Schedule]) -> list[Own]:
    """Plain, every fixed number of drafts in every schedule, and what a session does by itself.

    Args:
        depths: drafts per round to compare; None takes 1 to the head's depths. Those beyond them are left out.
    """
    contestants = [Own(PLAIN, engine, 0)]
    if engine.head is None:
        return contestants
    wanted = range(1, engine.head_depths + 1) if depths is None else depths
    for schedule in schedules:
        label = "mtp" if schedule == "stateful" else schedule
        contestants += [Own(f"{label} {k}", engine, k, schedule) for k in wanted if 1 <= k <= engine.head_depths]
    return [*contestants, Own(AUTO, engine, None)]


def peer_contestants(peer: Peer, blocks: Sequence[int], stop_ids: Sequence[int]) -> list[Theirs]:
    """The peer without its drafter and with it at these block sizes."""
    return [Theirs(peer, block, stop_ids) for block in (None, *blocks)]


def cases(
    engine: Engine, prompts: Sequence[Prompt], max_tokens: int, *, effort: float, random: float | None = None
) -> list[Case]:
    """The prompts as greedy cases; `random` adds the first of them sampled at that temperature, the worst text."""
    found: list[Case] = []
    for prompt in prompts:
        ids = prompt_ids(engine.tokenizer, engine.template, prompt.text, effort)
        found.append(Case(prompt.name, prompt.text, ids, max_tokens))
    if random is not None:
        first = found[0]
        found.append(Case(f"random, T {random:g}", first.text, first.ids, max_tokens, random))
    return found
