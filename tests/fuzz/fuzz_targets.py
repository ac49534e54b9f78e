"""The targets by name. Each takes any bytes, and raises only where something is wrong with the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import fuzz_checkpoint
import fuzz_program
import fuzz_text

CORPUS: Final = Path(__file__).parent / "corpus"
"""A folder per target: inputs to begin with, and those that were once answered wrongly."""
WORDS: Final = Path(__file__).parent / "words"
"""What inputs are made of, in the form of libFuzzer's dictionaries."""

TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    read.__name__: read
    for read in (
        fuzz_checkpoint.header,
        fuzz_checkpoint.safetensors,
        fuzz_checkpoint.config,
        fuzz_checkpoint.tokenizer_config,
        fuzz_checkpoint.template,
        fuzz_text.channels,
        fuzz_text.tool_call,
        fuzz_text.messages,
        fuzz_text.markdown,
        fuzz_program.journal,
        fuzz_program.manifest,
        fuzz_program.library,
        fuzz_program.settings,
        fuzz_program.window_state,
        fuzz_program.imported,
    )
}


def seeds(name: str) -> list[Path]:
    """The files of a target."""
    return sorted((CORPUS / name).iterdir())
