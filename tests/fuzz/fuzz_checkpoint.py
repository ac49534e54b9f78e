"""Targets that read a file of a model directory."""

from __future__ import annotations

from pathlib import Path

from fuzz_paths import folder, told, written
from guard import confined

from engine.config import ModelConfig
from engine.errors import UserError
from engine.messages import Message
from engine.text.sandbox import Limits
from engine.text.template import ChatTemplate
from engine.weights.header import parse_header, read_header

LIMITS = Limits(seconds=0.25, text=200_000, total=2_000_000)


def header(data: bytes) -> None:
    """The JSON of a safetensors header, in a file as long as it says."""
    path = Path("model.safetensors")
    try:
        tensors = parse_header(data, path=path, data_start=8 + len(data), file_size=8 + len(data) + 64)
    except UserError as error:
        told(error)
        return
    assert sum(tensor.nbytes for tensor in tensors.values()) == 64
    assert all(tensor.file == path for tensor in tensors.values())


def safetensors(data: bytes) -> None:
    path = written("any.safetensors", data)
    with confined():
        try:
            tensors = read_header(path)
        except UserError as error:
            told(error)
        else:
            assert all(8 <= tensor.offset <= len(data) for tensor in tensors.values())


def config(data: bytes) -> None:
    place = folder() / "config"
    place.mkdir(exist_ok=True)
    (place / "config.json").write_bytes(data)
    with confined():
        try:
            found = ModelConfig.from_directory(place)
        except UserError as error:
            told(error)
        else:
            assert found.text.num_layers == len(found.text.dense)


def tokenizer_config(data: bytes) -> None:
    place = folder() / "tokenizer"
    place.mkdir(exist_ok=True)
    (place / "tokenizer_config.json").write_bytes(data)
    with confined():
        try:
            found = ChatTemplate.from_directory(place)
        except UserError as error:
            told(error)
        else:
            assert found is None or isinstance(found.source, str)


def template(data: bytes) -> None:
    messages = [Message("user", "Hello"), Message("assistant", "Hi", reasoning="hm")]
    with confined():
        try:
            made = ChatTemplate(data.decode("utf-8", "replace"), Path("t.jinja"), limits=LIMITS)
            shown = made.render(messages, effort=0.5)
        except UserError as error:
            told_any(error)
        else:
            assert len(shown) <= LIMITS.total
            assert "<class '" not in shown
            assert "<module" not in shown


def told_any(error: UserError) -> None:
    """A template's own words are shown as they are; the printer spells control characters out."""
    assert error.hint
    str(error).encode("utf-8", "surrogatepass")
