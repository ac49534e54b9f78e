from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from text_fixtures import DEMO, MARKERS, TINY, byte_backend, demo_tokenizer, inkling_tokenizer
from tokenizers import AddedToken

from engine.errors import UserError
from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import Tokenizer

TEXT = st.text() | st.lists(st.sampled_from([*MARKERS, "<|", "|>", "end_message", "the", " ", "🙂", "é"])).map("".join)


@cache
def demo_backend() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer.json"))


@pytest.mark.parametrize(
    ("directory", "marker"), [(DEMO, "<|end_message|>"), (DEMO, "<|content_model_end_sampling|>"), (TINY, "</s>")]
)
def test_a_typed_marker_stays_plain_text(directory: Path, marker: str) -> None:
    tokenizer = Tokenizer.from_directory(directory)
    assert tokenizer.control_id(marker) is not None
    ids = tokenizer.encode(f"a{marker}b")
    assert not any(map(tokenizer.is_control, ids))
    assert tokenizer.decode(ids) == f"a{marker}b"


@given(TEXT)
def test_encoding_yields_no_control_id_and_decodes_to_the_same_text(text: str) -> None:
    for tokenizer in (demo_tokenizer(), inkling_tokenizer()):
        ids = tokenizer.encode(text)
        assert not any(map(tokenizer.is_control, ids))
        assert tokenizer.decode(ids) == text


def test_a_marker_in_the_vocabulary_itself_is_taken_apart() -> None:
    backend = byte_backend(ignore_merges=True, extra=("<|stop|>",))
    backend.add_special_tokens([AddedToken("<|stop|>", normalized=False, special=True)])
    tokenizer = Tokenizer(backend)
    ids = tokenizer.encode("<|stop|>")
    assert tokenizer.control_tokens["<|stop|>"] not in ids
    assert tokenizer.decode(ids) == "<|stop|>"


def test_markers_are_control_tokens_even_where_the_file_does_not_call_them_special() -> None:
    backend = byte_backend()
    backend.add_tokens([AddedToken("<|end_message|>", special=False), AddedToken("tide pool", special=False)])
    tokenizer = Tokenizer(backend)
    marker, word = (backend.token_to_id(name) for name in ("<|end_message|>", "tide pool"))
    assert marker is not None
    assert word is not None
    ids = tokenizer.encode("a tide pool<|end_message|>")
    assert word in ids
    assert marker not in ids
    assert tokenizer.decode([*ids, marker]) == "a tide pool<|end_message|>"


def test_any_number_of_markers_is_taken_apart() -> None:
    """Once, each of them was a level of a recursion."""
    backend = byte_backend()
    backend.add_tokens([AddedToken("<|end_message|>", special=False)])
    tokenizer = Tokenizer(backend)
    text = "the<|end_message|>" * 3000
    ids = tokenizer.encode(text)
    assert not any(map(tokenizer.is_control, ids))
    assert tokenizer.decode(ids) == text
    assert len(ids) == 3000 * len(tokenizer.encode("the<|end_message|>"))


def test_markers_that_overlap_are_taken_apart() -> None:
    backend = byte_backend()
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in ("<|a|>", "<|b|>")])
    backend.add_tokens([AddedToken("<|a|><|b", special=False), AddedToken("<|b|>c", special=False)])
    tokenizer = Tokenizer(backend)
    text = "<|a|><|b|>c" * 3
    ids = tokenizer.encode(text)
    assert not any(map(tokenizer.is_control, ids))
    assert tokenizer.decode(ids) == text


def test_stop_ids_are_control_ids() -> None:
    tokenizer = Tokenizer(byte_backend(), [65])
    assert tokenizer.is_control(65)
    assert tokenizer.decode([65]) == ""


def test_the_tiny_tokenizer_works_without_markers() -> None:
    tokenizer = Tokenizer.from_directory(TINY, [2])
    assert tokenizer.control_id("<|message_model|>") is None
    assert tokenizer.decode(tokenizer.encode("Inkling attention")) == "Inkling attention"
    unknown = tokenizer.control_id("<unk>")
    assert tokenizer.encode("é") == [unknown, unknown]
    assert unknown not in tokenizer.encode("<unk>")


def test_lone_surrogates_become_replacement_characters() -> None:
    tokenizer = demo_tokenizer()
    assert tokenizer.decode(tokenizer.encode("a\ud83db")) == "a\ufffdb"
    assert tokenizer.decode(tokenizer.encode("\ud83d\ude42")) == "🙂"


@given(st.lists(st.integers(0, 8400)))
def test_decoding_agrees_with_the_library(ids: list[int]) -> None:
    assert demo_tokenizer().decode(ids) == demo_backend().decode(ids, skip_special_tokens=True)


@given(st.text())
def test_streaming_shows_whole_characters_only(text: str) -> None:
    tokenizer = inkling_tokenizer()  # one token per byte, so every character arrives in parts
    stream = Detokenizer(tokenizer)
    shown = ""
    for id_ in tokenizer.encode(text):
        shown += stream.push(id_)
        assert text.startswith(shown)
    assert shown == text
    assert stream.finish() == ""


def test_a_character_that_never_completes_comes_out_at_the_end() -> None:
    tokenizer = inkling_tokenizer()
    stream = Detokenizer(tokenizer)
    ids = tokenizer.encode("🙂")[:-1]
    assert [stream.push(id_) for id_ in ids] == ["", "", ""]
    assert stream.finish() == "\ufffd"
    assert "".join(map(stream.push, tokenizer.encode("é"))) == "é"


def test_a_genuine_replacement_character_is_kept() -> None:
    tokenizer = inkling_tokenizer()
    assert tokenizer.decode(tokenizer.encode("a\ufffdb")) == "a\ufffdb"


def test_leading_spaces_survive_streaming() -> None:
    tokenizer = demo_tokenizer()
    stream = Detokenizer(tokenizer)
    assert "".join(map(stream.push, tokenizer.encode("  two  spaces "))) == "  two  spaces "


def test_ids_beyond_the_vocabulary_add_nothing() -> None:
    tokenizer = demo_tokenizer()
    assert tokenizer.decode([*tokenizer.encode("a"), 8440, -1, 10**9]) == "a"
    assert tokenizer.vocab_size == 8320


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "does not exist"),
        (b"{", "not a valid tokenizer"),
        (b"\xff\xfe", "cannot be read"),
        (b"{}", "not a valid"),
    ],
)
def test_a_missing_or_corrupt_file_is_named_with_its_cure(
    tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(UserError, match=complaint) as raised:
        Tokenizer.from_directory(tmp_path)
    assert str(tmp_path / "tokenizer.json") in raised.value.title
    assert raised.value.hint


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    text = (TINY / "tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text(text[: len(text) // 2], encoding="utf-8")
    with pytest.raises(UserError, match="not a valid tokenizer"):
        Tokenizer.from_directory(tmp_path)


def test_another_kind_of_tokenizer_is_refused(tmp_path: Path) -> None:
    shutil.copy(TINY / "tokenizer.json", tmp_path)
    path = tmp_path / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UserError, match="byte-level BPE"):
        Tokenizer.from_directory(tmp_path)
