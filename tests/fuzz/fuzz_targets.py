"""The targets by name, each loaded only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

CORPUS: Final = Path(__file__).parent / "corpus"
"""A folder per target: inputs to begin with, and those that were once answered wrongly."""
WORDS: Final = Path(__file__).parent / "words"
"""What inputs are made of, in the form of libFuzzer's dictionaries."""

_FUNCTIONS: Final = {
    "fuzz_checkpoint": ("header", "safetensors", "config", "tokenizer_config", "template"),
    "fuzz_text": ("channels", "tool_call", "messages"),
    "fuzz_markdown": ("markdown",),
    "fuzz_program": ("journal", "manifest", "library", "settings", "window_state", "imported"),
}
TARGETS: Final[Mapping[str, str]] = {name: module for module, names in _FUNCTIONS.items() for name in names}
"""Functions that take any bytes, and the module of each."""
STRUCTURED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "hub_plan": ("fuzz_hub", ("HUBS", "REQUESTS")),
    "hub_download": ("fuzz_hub", ("HUBS", "REQUESTS")),
    "history_rows": ("fuzz_history", ("CHANGES", "PAGES")),
}
"""Functions of what hypothesis puts together, with their strategies; they have tests of their own."""


def load(name: str) -> Callable[[bytes], None]:
    """A target by its name. It raises only where something is wrong with the program."""
    return getattr(import_module(TARGETS[name]), name)


def load_structured(name: str) -> tuple[Callable[..., None], list[Any]]:
    """A function and the strategies of its arguments."""
    module, strategies = STRUCTURED[name]
    loaded = import_module(module)
    return getattr(loaded, name), [getattr(loaded, strategy) for strategy in strategies]


def seeds(name: str) -> list[Path]:
    """The files of a target."""
    return sorted((CORPUS / name).iterdir())
