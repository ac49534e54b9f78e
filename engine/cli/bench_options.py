"""Options and output that the measuring commands share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.arguments import UsageError
from engine.cli.path_types import non_empty, output_file
from engine.cli.terminal import Terminal
from engine.errors import PromptError
from engine.wording import counted

if TYPE_CHECKING:
    from engine.bench.prompts import Prompt
    from engine.config import ModelConfig
    from engine.loaded import Check, Engine
    from engine.text.template import ChatTemplate
    from engine.text.tokenizer import Tokenizer


def add_prompts(parser: argparse.ArgumentParser) -> None:
    """Which texts."""
    parser.add_argument(
        "--prompts",
        type=prompts,
        default="kinds",
        metavar="FILE",
        help="one prompt per line or a JSON list; built-in: kinds (default: code, JSON, list, prose, dialogue, "
        "summary), short (draft-report's), all (both)",
    )
    add_effort(parser)


def add_effort(parser: argparse.ArgumentParser) -> None:
    """How much the model thinks."""
    parser.add_argument("--effort", type=_effort, default="high", metavar="LEVEL", help="thinking effort (high)")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Where the figures go."""
    parser.add_argument(
        "--json", type=output_file, metavar="FILE", help="write everything that was measured to this file"
    )


def prompts(source: str) -> tuple[Prompt, ...]:
    """An argparse type for a built-in set of prompts or a file with some. Raises PromptError."""
    from engine.bench.prompts import read_prompts

    return read_prompts(non_empty(source))


def fitting(prompts: Iterable[Prompt], effort: float) -> Check:
    """Refuses, before the weights are read, the first of `prompts` that is too long for the model."""

    def check(config: ModelConfig, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        from engine.bench.prompts import prompt_ids
        from engine.loaded import check_prompt

        for prompt in prompts:
            ids = prompt_ids(tokenizer, template, prompt.text, effort)
            try:
                check_prompt(config, None, len(ids))
            except PromptError as error:
                raise PromptError(f"{prompt.name}: {error.title}", "Shorten it or leave it out.") from error

    return check


def _effort(level: str) -> float:
    from engine.text.effort import parse_effort

    return parse_effort(level)


def numbers(accepted: str, low: int) -> Callable[[str], tuple[int, ...]]:
    """An argparse type for whole numbers with commas between them."""

    def parse(text: str) -> tuple[int, ...]:
        try:
            values = tuple(int(part) for part in text.split(","))
        except ValueError:
            values = ()
        if not values or min(values) < low:
            raise argparse.ArgumentTypeError(f"must be {accepted}, with commas between them, not {text!r}")
        return values

    return parse


def usable_depths(asked: Sequence[int] | None, engine: Engine, terminal: Terminal) -> list[int]:
    """The numbers of drafts to measure, each once; None: all of the head. Those beyond it are left out with a word."""
    most = engine.head_depths
    if asked is None:
        return list(range(1, most + 1))
    beyond = [str(k) for k in asked if k > most]
    if beyond and most:
        terminal.note(f"--depths {', '.join(beyond)} is left out: the MTP head has {counted(most, 'depth')}.")
    return [k for k in dict.fromkeys(asked) if k <= most]


def write_json(path: Path | None, report: Mapping[str, Any]) -> None:
    """Write `report` where --json asks for it. Raises `UsageError` where that cannot be written."""
    if path is None:
        return
    try:
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", "Name another file with --json.") from error


def model_json(engine: Engine) -> dict[str, Any]:
    """What was measured."""
    return {
        "model": str(engine.directory),
        "dtype": dtype_name(engine),
        "depths": engine.head_depths,
        "weight_bytes": sum(report.nbytes for report in engine.reports),
    }


def dtype_name(engine: Engine) -> str:
    """The activations' precision as --dtype spells it."""
    import mlx.core as mx

    return {mx.float32: "f32", mx.bfloat16: "bf16"}[engine.backbone.dtype]


def spelled(versions: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {number or 'missing'}" for name, number in versions.items())
