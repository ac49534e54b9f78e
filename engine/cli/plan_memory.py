"""`inkstand plan-memory`: what a checkpoint will hold in memory, against what there is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.arguments import Subparsers, UsageError, positive, refuse_without_effect
from engine.cli.loading import checkpoint_directories
from engine.cli.path_types import input_file, path
from engine.cli.terminal import Terminal
from engine.cli.units import duration, size
from engine.wording import counted

if TYPE_CHECKING:
    from engine.bench.long_prefill import LongPrefill
    from engine.config import ModelConfig
    from engine.memory import Footprint

_CONTEXT, _LAYERS = 32768, 2
_WELL_USED = 0.7
"""Share of the plan that a check uses, below which the rest is explained."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command's options."""
    parser = subparsers.add_parser("plan-memory", help="show what a model will hold in memory, without loading it")
    parser.set_defaults(run=run, draft_kind="auto")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "model", nargs="?", type=path, metavar="MODEL", help="directory, or owner/name of a downloaded one"
    )
    which.add_argument(
        "--config", type=input_file, metavar="FILE", help="a config.json alone, before its weights are there"
    )
    head = parser.add_mutually_exclusive_group()
    head.add_argument(
        "--draft-model",
        type=path,
        metavar="HEAD",
        help="directory with the MTP head, or owner/name of a downloaded one",
    )
    head.add_argument("--no-head", action="store_true", help="without the MTP head")
    parser.add_argument(
        "--context", type=positive, metavar="N", help=f"tokens ({_CONTEXT}, or the model's own if less)"
    )
    parser.add_argument("--dtype", choices=["auto", "f32", "bf16"], default="auto", help="precision of the activations")
    parser.add_argument("--keep-quantized", action="store_true", help="packed weights stay packed on the CPU")
    parser.add_argument("--quantize-rest", type=int, choices=[8, 4], help="pack what would be held unquantized")
    parser.add_argument(
        "--check", action="store_true", help="prefill so many tokens through layers of random weights, and compare"
    )
    parser.add_argument("--layers", type=positive, metavar="N", help=f"layers of the check ({_LAYERS})")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def run(args: argparse.Namespace) -> int:
    """Prints the plan, and the check's result. Raises UserError for what cannot be planned."""
    from engine.bench.long_prefill import run_long_prefill
    from engine.memory import available_memory, total_memory

    if args.config is not None:
        refuse_without_effect(
            {"--draft-model": args.draft_model}, "with --config: the head is the one that the config announces"
        )
    if not args.check:
        refuse_without_effect({"--layers": args.layers}, "without --check")
    config, seen = _from_config(args) if args.config is not None else _from_checkpoint(args)
    context = min(_CONTEXT, seen.max_context) if args.context is None else args.context
    if context > seen.max_context:
        raise UsageError(f"--context is {context}; this model takes {seen.max_context} tokens.", "Use fewer.")
    check = None
    if args.check:
        check = run_long_prefill(config, context=context, layers=args.layers or _LAYERS, dtype=args.dtype)
    free, total = available_memory(), total_memory()
    if args.json:
        Terminal().json(as_json(seen, context, free, total, check))
    else:
        Terminal().line(as_text(seen, context, free, total, check))
    return 0


def as_json(
    seen: Footprint, context: int, free: int | None, total: int | None, check: LongPrefill | None
) -> dict[str, Any]:
    """Sizes in bytes; what the system does not tell is null."""
    result: dict[str, Any] = {
        "context": context,
        "weights": seen.weights,
        "head": seen.drafter,
        "depths": seen.depths,
        "head_problem": seen.head_problem,
        "cache": seen.cache(context),
        "cache_per_token": seen.cache_per_token(),
        "windows_filled": seen.windows_filled,
        "working": seen.working(context),
        "needed": seen.total(context),
        "free": free,
        "machine": total,
        "headroom": None if free is None else free - seen.total(context),
    }
    if check is not None:
        names = ("context", "layers", "experts", "seconds", "measured", "planned")
        result["check"] = {name: getattr(check, name) for name in names}
        result["check"]["within"] = check.measured <= check.planned
    return result


def as_text(seen: Footprint, context: int, free: int | None, total: int | None, check: LongPrefill | None) -> str:
    """The plan as the window words it."""
    needed = seen.total(context)
    rows = [
        ("Context", f"{context} tokens", f"of {seen.max_context}"),
        ("Weights", size(seen.weights), ""),
        ("MTP head", size(seen.drafter) if seen.head else "–", counted(seen.depths, "depth") if seen.depths else ""),
        ("Cache", size(seen.cache(context)), _growth(seen)),
        ("Working memory", size(seen.working(context)), "for a moment; estimated"),
        ("Needed", size(needed), ""),
        ("Free memory", "–" if free is None else size(free), "" if total is None else f"of {size(total)}"),
    ]
    if free is not None:
        left = free - needed
        rows.append(("Headroom", size(left) if left >= 0 else f"\N{MINUS SIGN}{size(-left)}", ""))
    lines = [f"{name:<16}{value:>12}  {note}".rstrip() for name, value, note in rows]
    if seen.head_problem:
        lines.append(f"The MTP head is left out: {seen.head_problem}")
    if check is not None:
        lines.append(
            f"Check: {counted(check.layers, 'layer')} of random weights ({counted(check.experts, 'expert')}), "
            f"{check.context} tokens in {duration(check.seconds)}: "
            f"{size(check.measured)} beside the weights, {size(check.planned)} planned. {_verdict(check)}"
        )
    return "\n".join(lines)


def _growth(seen: Footprint) -> str:
    """How the cache grows: fast while the windows of sliding layers fill, then by the global layers alone."""
    later, filled = f"{size(seen.cache_per_token())} per token", seen.windows_filled
    return f"{size(seen.cache(filled))} after {filled} tokens, when windows are full; then {later}" if filled else later


def _verdict(check: LongPrefill) -> str:
    used = check.measured / check.planned
    if used > 1:
        return (
            f"More than planned, by {100 * (used - 1):.0f} %: expect as much more than cache and working memory above."
        )
    why = (
        "" if used >= _WELL_USED else "; it allows for the largest step, and more --layers or --context use more of it"
    )
    return f"Within the plan, {100 * used:.0f} % of it{why}."


def _from_checkpoint(args: argparse.Namespace) -> tuple[ModelConfig, Footprint]:
    from engine.config import ModelConfig
    from engine.memory import footprint
    from engine.weights.head import HeadMissing, find_head

    directory, named = checkpoint_directories(args)
    source = None if args.no_head else named or directory
    if source is not None and named is None and isinstance(find_head(source), HeadMissing):
        source = None
    return ModelConfig.from_directory(directory), footprint(directory, source, **_settings(args))


def _from_config(args: argparse.Namespace) -> tuple[ModelConfig, Footprint]:
    from engine.config import ModelConfig
    from engine.fields import read_object
    from engine.memory import footprint_of_config

    path: Path = args.config
    config = ModelConfig.from_dict(read_object(path), str(path))
    return config, footprint_of_config(config, with_head=not args.no_head, **_settings(args))


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "dtype": args.dtype,
        "keep_quantized": args.keep_quantized or None,
        "quantize_rest": args.quantize_rest,
    }
