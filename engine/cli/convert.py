"""`inkstand convert`: a quantized copy of a checkpoint."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from engine.cli.arguments import Subparsers, UsageError
from engine.cli.loading import named_checkpoint
from engine.cli.path_types import output_folder, path
from engine.cli.terminal import Terminal
from engine.errors import UserError
from engine.wording import size

if TYPE_CHECKING:
    from engine.model.linear import Quantization
    from engine.weights.read import LoadProgress
    from engine.weights.recipe import Recipe

_SPEC = "bits (2, 3, 4, 5, 6, 8), bits:group size, mxfp4, mxfp8, nvfp4, or none"
_DEFAULT = "4"


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command's options."""
    parser = subparsers.add_parser(
        "convert",
        help="write a quantized copy of a checkpoint, MTP head included",
        epilog="Example: inkstand convert Inkling Inkling-6bit --quantize 6 --set experts=5",
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "source", type=path, metavar="SRC", help="checkpoint directory, or owner/name of a downloaded one"
    )
    parser.add_argument("destination", type=output_folder, metavar="DST", help="new directory")
    parser.add_argument(
        "-q",
        "--quantize",
        metavar="HOW",
        help=f"all matrices: {_SPEC} (default: {_DEFAULT}, and matrices that are packed already stay as they are)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="CLASS=HOW",
        help="one class of matrices: embed, lm_head, attention, dense, experts, shared or mtp; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def run(args: argparse.Namespace) -> int:
    """Converts and prints what was written."""
    from engine.weights.convert import convert
    from engine.weights.packing import matrices

    terminal = Terminal()

    def progress(step: LoadProgress) -> None:
        terminal.progress(step.done / max(1, step.total), f"Converting {step.file}")

    recipe = parse_recipe(args.quantize, args.set)
    try:
        source, _ = named_checkpoint(args.source)
        report = convert(source, args.destination, recipe, progress=progress)
    finally:
        terminal.clear_progress()
    if args.json:
        line = {
            "directory": str(report.directory),
            "bytes": report.nbytes,
            "packing": dict(report.packing),
            "kept": report.kept,
            "missing_head": report.missing_head,
        }
        terminal.json(line)
    else:
        terminal.line(f"{report.directory}: {size(report.nbytes)}")
        for how, count in report.packing.items():
            terminal.line(f"  {matrices(count)}: {how}")
        if report.kept:
            terminal.line(f"  {matrices(report.kept)} kept, packed already in {args.source}")
        terminal.line(f"  MTP head: {'included' if report.missing_head is None else f'none ({report.missing_head})'}")
    return 0


def parse_recipe(default: str | None, assignments: list[str]) -> Recipe:
    """The recipe that `--quantize` (None where it was not given) and the `--set` options describe.

    Raises:
        UserError: one of them is wrong.
    """
    from engine.weights.recipe import QUANTIZED_CLASSES, ModuleClass, Recipe

    known: dict[str, ModuleClass] = {kind: kind for kind in QUANTIZED_CLASSES}
    classes: dict[ModuleClass, Quantization | None] = {}
    for assignment in assignments:
        name, equals, how = assignment.partition("=")
        if name not in known or not equals:
            raise UsageError(
                f"--set {assignment} names no class of matrices.",
                f"Write CLASS=HOW, with one of {', '.join(QUANTIZED_CLASSES)}.",
            )
        classes[known[name]] = _quantization(f"--set {name}", how)
    how = _DEFAULT if default is None else default
    return Recipe(_quantization("-q/--quantize", how), classes, strict=default is not None)


def _quantization(option: str, how: str) -> Quantization | None:
    """Parses one of `_SPEC`. Raises `UsageError` with the option's name."""
    try:
        return _parse(how)
    except UserError as error:
        raise UsageError(f"{option} {how}: {error.title}", error.hint) from error


def _parse(how: str) -> Quantization | None:
    from engine.weights.recipe import setting

    if how == "none":
        return None
    bits, colon, group = how.partition(":")
    if bits.isdecimal() and (group.isdecimal() or not colon):
        return setting(int(bits), int(group)) if colon else setting(int(bits))
    if colon or not how.isalnum():
        raise UsageError(f"{how!r} is no quantization.", f"Use {_SPEC}.")
    return setting(0, mode=how)
