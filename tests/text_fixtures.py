"""Tokenizers and templates for the tests of engine.text."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from engine.text import markers as m
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "resources" / "demo_checkpoint"
TINY = ROOT / "tests" / "data" / "inkling-tiny"
DATA = ROOT / "tests" / "data" / "text"

MARKERS = (
    *m.ROLES,
    m.CONTENT_TEXT,
    m.CONTENT_THINKING,
    m.CONTENT_TOOL_JSON,
    m.CONTENT_TOOL_TEXT,
    *m.OTHER_CONTENT,
    m.END_MESSAGE,
    m.END_SAMPLING,
    "<|endoftext|>",
    "<|unused_7|>",
)


def byte_backend(*, ignore_merges: bool = False, extra: tuple[str, ...] = ()) -> Backend:
    """A byte-level BPE that knows single bytes, two merges, and `extra` pieces."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, "th", "the", *extra]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    backend = Backend(models.BPE(vocabulary, [("t", "h"), ("th", "e")], ignore_merges=ignore_merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not extra)
    backend.decoder = decoders.ByteLevel()
    return backend


@cache
def inkling_tokenizer() -> Tokenizer:
    """Every marker of the published tokenizer over a byte-level BPE."""
    backend = byte_backend()
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in MARKERS])
    stop = backend.token_to_id(m.END_SAMPLING)
    assert stop is not None
    return Tokenizer(backend, [stop])


@cache
def inkling_template() -> ChatTemplate:
    path = DATA / "inkling_chat_template.jinja"
    return ChatTemplate(path.read_text(encoding="utf-8"), path)


@cache
def demo_tokenizer() -> Tokenizer:
    return Tokenizer.from_directory(DEMO, [8316])


@cache
def demo_template() -> ChatTemplate:
    template = ChatTemplate.from_directory(DEMO)
    assert template is not None
    return template


def marked(*parts: str) -> list[int]:
    """Ids of texts and markers in a row, with the tokenizer of the published markers."""
    tokenizer = inkling_tokenizer()
    ids: list[int] = []
    for part in parts:
        id_ = tokenizer.control_id(part)
        ids += tokenizer.encode(part) if id_ is None else [id_]
    return ids
