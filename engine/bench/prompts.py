"""What benchmarks and reports ask a model: built-in sets, and files of the user's own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from engine.errors import PromptError
from engine.messages import Message
from engine.text.chat import encode_chat
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """`name` labels it in tables."""

    name: str
    text: str


KINDS = (
    Prompt("code", "Write a Python function that returns the prime numbers below n, with a docstring and an example."),
    Prompt("JSON", "Describe three books as a JSON array of objects with the keys title, author, year and genres."),
    Prompt("list", "List twelve things to pack for a week in the mountains, one per line, each with a short reason."),
    Prompt("prose", "Describe an old harbour town on a winter morning in two paragraphs."),
    Prompt("dialogue", "Write a dialogue between a baker and a customer who has never eaten bread before."),
    Prompt(
        "summary",
        "Summarise in three sentences: The tide rises and falls because the Moon and the Sun pull on the oceans. The "
        "side of the Earth that faces the Moon is pulled a little harder than its centre, and the far side a little "
        "less, so the water bulges on both sides. As the Earth turns, a coast passes through both bulges in a day.",
    ),
)
"""Kinds of text that differ in how well they can be guessed."""

SHORT = tuple(
    Prompt(text.rstrip(".?").partition(",")[0], text)
    for text in (
        "Write a haiku about tide pools, then explain its structure.",
        "Why is the sky blue?",
        "Tell me three facts about whales.",
        "Give me three tips for better sleep.",
        "What is the water cycle?",
        "Write a polite email to ask for a day off.",
        "Write a Python function that adds two numbers.",
        "What is speculative decoding?",
    )
)
"""The questions whose tokens per round are compared from version to version."""

SETS = {"kinds": KINDS, "short": SHORT, "all": (*KINDS, *SHORT)}
"""By the name that `--prompts` takes."""

_FORMS = (
    "Explain {} to a child.",
    "Write a short story about {}.",
    "List five facts about {}.",
    "Write a poem about {}.",
    "What should a beginner know about {}?",
    "Write a dialogue between two friends about {}.",
    "Give me a step-by-step plan for learning about {}.",
    "Write a Python class that models {}.",
    "Describe {} as a JSON object with five keys.",
    "Write a letter to a friend about {}.",
    "Compare {} with its opposite.",
    "Summarise what is known about {} in four sentences.",
)
_TOPICS = (
    "bridges", "the moon", "bread", "bees", "old maps", "chess", "rain", "trains", "gardens", "friendship", "volcanoes",
    "libraries", "the ocean", "clocks", "music", "forests", "kites", "coffee", "winter", "languages", "bicycles",
    "lighthouses", "dreams", "markets",
)  # fmt: skip


def varied() -> Iterator[Prompt]:
    """Every form with every topic, 288 in all, neighbours differing in both; for runs that need much text."""
    for shift, (i, topic) in itertools.product(range(len(_FORMS)), enumerate(_TOPICS)):
        text = _FORMS[(i + shift) % len(_FORMS)].format(topic)
        yield Prompt(text.rstrip(".?"), text)


def prompt_ids(tokenizer: Tokenizer, template: ChatTemplate | None, text: str, effort: float) -> tuple[int, ...]:
    """The ids of `text` as a user's message, or as raw text where there is no template."""
    if template is None:
        return tuple(tokenizer.encode(text))
    return encode_chat(tokenizer, template, [Message("user", text)], effort).ids


def read_prompts(source: str) -> tuple[Prompt, ...]:
    """A built-in set by name, or a file: a JSON list of strings (or objects with name and text), else one per line.

    Raises:
        PromptError: the file cannot be read, holds no prompt, or holds something else.
    """
    if source in SETS:
        return SETS[source]
    path = Path(source)
    hint = f"Name a file with one prompt per line or a JSON list, or a built-in set: {', '.join(SETS)}."
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PromptError(f"The prompts {path} cannot be read: {error.strerror}.", hint) from error
    except UnicodeDecodeError as error:
        raise PromptError(f"The prompts {path} are not UTF-8 text.", hint) from error
    if path.suffix == ".json":
        prompts = _from_json(path, text, hint)
    else:
        prompts = [labelled(line) for line in map(str.strip, text.splitlines()) if line]
    if not prompts:
        raise PromptError(f"The prompts {path} hold no prompt.", hint)
    return tuple(prompts)


def _from_json(path: Path, text: str, hint: str) -> list[Prompt]:
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"The prompts {path} are not JSON: {error}.", hint) from error
    if not isinstance(document, list):
        raise PromptError(f"The prompts {path} are not a JSON list.", hint)
    prompts: list[Prompt] = []
    for i, entry in enumerate(cast("list[object]", document)):
        fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {"text": entry}
        words, name = fields.get("text"), fields.get("name")
        if not isinstance(words, str) or not words.strip() or not isinstance(name, str | None):
            raise PromptError(f"Entry {i} of the prompts {path} is neither a text nor an object with one.", hint)
        prompts.append(Prompt(name or _label(words), words))
    return prompts


def labelled(text: str) -> Prompt:
    """A prompt that goes by how it begins."""
    return Prompt(_label(text), text)


def _label(text: str) -> str:
    first = text.splitlines()[0]
    return first if len(first) <= 40 else first[:39] + "…"
