"""Whatever bytes stand in the files of a model directory: a checkpoint, or a message that names the file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import DATA, TINY

from engine.config import ModelConfig
from engine.errors import CheckpointError, ConfigError, UserError
from engine.text.tokenizer import Tokenizer, TokenizerError
from engine.weights.files import INDEX, list_files, read_headers
from engine.weights.header import read_header

CASES = settings(max_examples=200)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
NAMES = st.sampled_from(["a", "b", "__metadata__", "model.norm.weight", "", "\ud800", "\x1b[2J", "a" * 300]) | st.text(
    max_size=8
)
FILES = st.sampled_from(
    ["model.safetensors", "../x.safetensors", "/x.safetensors", "\0.safetensors", "\ud800.safetensors", ".safetensors"]
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def check_message(error: UserError, named: Path) -> None:
    """A message names the file and its cure, and can be written anywhere."""
    assert str(named) in error.title
    assert error.hint
    assert "\x1b" not in str(error)
    str(error).encode()


def damaged(data: bytes, position: int, junk: bytes, cut: bool) -> bytes:
    """`data` with `junk` at a position given in millionths of its length, and cut off there if `cut`."""
    at = len(data) * position // 1_000_000
    return data[:at] + junk + (b"" if cut else data[at + len(junk) :])


DAMAGE = (st.integers(0, 1_000_000), st.binary(max_size=6), st.booleans())


@st.composite
def changed_json(draw: st.DrawFn, whole: Any) -> Any:
    """`whole` with one value, however deep, taken out or replaced by any other."""
    copy = json.loads(json.dumps(whole))
    place: Any = copy
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys[:40] or [0]))
        inner = place[key] if keys else None
        if isinstance(inner, dict | list) and inner and draw(st.booleans()):
            place = inner
            continue
        if keys and draw(st.booleans()):
            del place[key]
        elif isinstance(place, dict):
            place[key] = draw(JSON)
        else:
            place[:1] = [draw(JSON)]
        return copy


# -- safetensors ----------------------------------------------------------------------------------

ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "F4", "U8", "F128", ""]) | JSON,
        "shape": st.lists(st.integers(-1, 5) | st.just(2**62), max_size=4) | JSON,
        "data_offsets": st.lists(st.integers(-1, 80), min_size=2, max_size=2) | JSON,
    }
)


@CASES
@given(st.dictionaries(NAMES, ENTRY | JSON, max_size=4), st.integers(0, 80))
def test_any_header_lists_what_lies_in_the_file_or_is_refused(
    scratch: Path, header: dict[str, object], size: int
) -> None:
    path = scratch / "any.safetensors"
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(size))
    try:
        tensors = read_header(path)
    except CheckpointError as error:
        check_message(error, path)
        return
    assert sum(tensor.nbytes for tensor in tensors.values()) == size
    assert all(8 + len(raw) <= tensor.offset <= path.stat().st_size for tensor in tensors.values())


@CASES
@given(st.dictionaries(NAMES, FILES | JSON, max_size=4) | JSON, st.booleans())
def test_any_index_stays_in_its_directory_or_is_refused(scratch: Path, weight_map: object, wrapped: bool) -> None:
    directory = scratch / "indexed"
    directory.mkdir(exist_ok=True)
    (directory / INDEX).write_text(json.dumps({"weight_map": weight_map} if wrapped else weight_map), encoding="utf-8")
    try:
        listing = list_files(directory)
        files = listing.indexed_files(lambda _name: True)
        assert all("/" not in file and file.endswith(".safetensors") for file in files)
        assert read_headers(listing, files) == {}
    except CheckpointError as error:
        check_message(error, directory)


# -- JSON files -----------------------------------------------------------------------------------

CONFIG = (TINY / "config.json").read_bytes()
SMALL_CONFIG = json.loads((DATA / "inkling_small_config.json").read_text(encoding="utf-8"))


@CASES
@given(*DAMAGE)
def test_any_damage_to_a_config_is_refused_or_harmless(scratch: Path, position: int, junk: bytes, cut: bool) -> None:
    (scratch / "config.json").write_bytes(damaged(CONFIG, position, junk, cut))
    try:
        config = ModelConfig.from_directory(scratch)
    except UserError as error:
        check_message(error, Path("config.json"))
    else:
        assert config.text.num_layers > 0


@CASES
@given(changed_json(SMALL_CONFIG))
def test_any_change_to_a_config_is_refused_or_harmless(raw: dict[str, Any]) -> None:
    try:
        config = ModelConfig.from_dict(raw)
    except ConfigError as error:
        check_message(error, Path())
    else:
        assert config.text.num_layers == len(config.text.dense)


# -- tokenizer ------------------------------------------------------------------------------------

TOKENIZER = (TINY / "tokenizer.json").read_bytes()
SMALL_TOKENIZER = json.loads(TOKENIZER)


def use(scratch: Path, data: bytes) -> None:
    (scratch / "tokenizer.json").write_bytes(data)
    try:
        tokenizer = Tokenizer.from_directory(scratch)
        ids = tokenizer.encode("Small pools <|eos|> hold \U0001f30a the sky")
        assert all(isinstance(tokenizer.decode([id_]), str) for id_ in ids)
    except TokenizerError as error:
        check_message(error, Path("tokenizer.json"))


@CASES
@given(*DAMAGE)
def test_any_damage_to_a_tokenizer_is_refused_or_harmless(scratch: Path, position: int, junk: bytes, cut: bool) -> None:
    use(scratch, damaged(TOKENIZER, position, junk, cut))


@CASES
@given(changed_json(SMALL_TOKENIZER))
def test_any_change_to_a_tokenizer_is_refused_or_harmless(scratch: Path, raw: object) -> None:
    use(scratch, json.dumps(raw).encode())


def test_names_that_a_terminal_would_obey_are_spelt_out(scratch: Path) -> None:
    raw = json.dumps({"\x1b]52;c;AAAA\x07\ud800": None}).encode()
    path = scratch / "escape.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw)) + raw)
    with pytest.raises(CheckpointError, match=r"\\x1b\]52;c;AAAA\\x07\\ud800"):
        read_header(path)


def test_a_tokenizer_without_the_token_for_unknown_characters_is_named(scratch: Path) -> None:
    raw = json.loads(TOKENIZER)
    raw["model"]["unk_token"] = "<nowhere>"
    (scratch / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot encode a text: Unk token `<nowhere>`"):
        Tokenizer.from_directory(scratch).encode("\U0001f30a")
