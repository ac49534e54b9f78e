"""Which token ids the drafter scores: the most frequent ones of a tokenizer, learnt from text.

A list belongs to a tokenizer, and so to every quantization of a model. It holds ids, the most frequent first, so that
any size is a prefix of it. Lists are kept in the user's data directory; one for the bundled demo ships with Inkstand.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from engine.errors import ConfigError, UserError
from engine.fields import read_object
from engine.paths import resource, user_paths
from engine.text.tokenizer import Tokenizer

FOLDER = "draft_vocabularies"
AUTO_FROM = 65536
"""`auto` scores a part of vocabularies from this size on. On the demo (8,320 ids, a head no larger than a block) a part
was measured to cost more in acceptance than it saves in time. A draft step of Inkling-Small reads 823 M weights of the
head beside 279 M of the block; with `AUTO_SIZE` of its 200,058 ids it reads 0.38 times as much."""
AUTO_SIZE = 32768
LEAST = 64


@dataclass(frozen=True, slots=True)
class TokenRanking:
    """Token ids of one tokenizer, the most frequent first.

    tokenizer: the tokenizer's fingerprint, see `fingerprint`.
    """

    tokenizer: str
    ids: tuple[int, ...]

    def write(self, path: Path) -> None:
        """Raises `UserError` when the file cannot be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"tokenizer": self.tokenizer, "ids": list(self.ids)}, separators=(",", ":"))
            path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}.", "Name another file with --out.") from error

    @classmethod
    def read(cls, path: Path) -> TokenRanking:
        """Raises `ConfigError` for a file that holds something else."""
        raw = read_object(path)
        name, ids = raw.get("tokenizer"), raw.get("ids")
        items = cast("list[Any]", ids) if isinstance(ids, list) else []
        if not isinstance(name, str) or not items or not all(type(i) is int and i >= 0 for i in items):
            raise ConfigError(f"{path} is no list of token ids.", "Delete it, or learn it anew.")
        return cls(name, tuple(dict.fromkeys(cast("list[int]", items))))


def fingerprint(directory: Path) -> str:
    """What tells one tokenizer from another: the head of tokenizer.json's SHA-256."""
    return hashlib.sha256((directory / "tokenizer.json").read_bytes()).hexdigest()[:16]


def kept_at(tokenizer: str) -> Path:
    """Where the ranking of a tokenizer is kept."""
    return user_paths().data / FOLDER / f"{tokenizer}.json"


def find_ranking(directory: Path) -> TokenRanking | None:
    """The ranking for a checkpoint's tokenizer: the user's own, else the shipped one, else None.

    Raises:
        ConfigError: the file is damaged, or is the ranking of another tokenizer.
    """
    name = fingerprint(directory)
    path = kept_at(name)
    if not path.is_file():
        try:
            path = resource(f"{FOLDER}/{name}.json")
        except UserError:
            return None
    ranking = TokenRanking.read(path)
    if ranking.tokenizer != name:
        raise ConfigError(f"{path} ranks the tokens of another tokenizer.", "Delete it, or learn it anew.")
    return ranking


def learn(
    tokenizer: Tokenizer, name: str, texts: Iterable[Sequence[int]], *, size: int, vocabulary: int
) -> TokenRanking:
    """Rank the ids of tokenized `texts`, control tokens first and whatever occurs nowhere last, up to `size`.

    Ids that occur nowhere follow in their order: a byte-level BPE numbers its tokens from the most common on.
    """
    counts: Counter[int] = Counter()
    for ids in texts:
        counts.update(ids)
    ranked = [*_control(tokenizer, vocabulary), *(id_ for id_, _ in counts.most_common()), *range(vocabulary)]
    return TokenRanking(name, tuple(id_ for id_ in dict.fromkeys(ranked) if id_ < vocabulary)[:size])


def choose(
    setting: int | str, directory: Path, tokenizer: Tokenizer, vocabulary: int
) -> tuple[tuple[int, ...] | None, str | None]:
    """The ids that drafts score, None for all of them, and a sentence about it for the user.

    Args:
        setting: a number of ids, "full", or "auto": a part where a ranking is at hand and the vocabulary is large.
        vocabulary: ids that the model scores.

    Raises:
        UserError: a number without a ranking for this tokenizer, or a nonsensical one.
    """
    if setting == "full":
        return None, None
    ranking = find_ranking(directory)
    if setting == "auto":
        if ranking is None or vocabulary < AUTO_FROM:
            return None, None
        size = AUTO_SIZE
    else:
        size = int(setting)
        if size < LEAST:
            raise UserError(f"A draft vocabulary of {size} was asked for.", f"Use at least {LEAST} token ids, or full.")
        if size >= vocabulary:
            return None, f"Drafts score all {vocabulary} token ids; {size} were asked for."
        if ranking is None:
            raise UserError(
                f"It is not known which token ids are frequent with the tokenizer of {directory}.",
                "Learn it: inkstand draft-vocabulary MODEL --from FILE; or leave --draft-vocabulary out.",
            )
    ranked = (id_ for id_ in ranking.ids if id_ < vocabulary)
    ids = tuple(dict.fromkeys([*_control(tokenizer, vocabulary), *ranked]))[:size]
    less = f" ({size} were asked for; no more are ranked)" if setting != "auto" and len(ids) < size else ""
    return ids, f"Drafts score {len(ids)} of {vocabulary} token ids{less}."


def _control(tokenizer: Tokenizer, vocabulary: int) -> list[int]:
    """Ids that open and end messages, and those that end an answer: a drafter without them could not finish."""
    return [id_ for id_ in range(vocabulary) if tokenizer.is_control(id_)]
