"""`inkstand bench slice`: a few layers of a large model's shapes, with random weights."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from engine.cli.arguments import Subparsers, integer, positive
from engine.cli.bench_options import add_json, write_json
from engine.cli.terminal import Terminal

_LAYERS, _DEPTHS = (4, 8), 8
_ACCEPTANCES = (0.6, 0.75, 0.9)
"""Probabilities that a draft stands, for what is computed from the measured rounds."""


def add_slice(commands: Subparsers) -> None:
    """Adds the subcommand."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "slice",
        help="speed on this device of a few layers with the shapes of Inkling-Small and random weights",
        description="Makes the first layers of Inkling-Small (its first global layer among them) and its MTP blocks "
        "with random values on the device, and times prefill, plain decoding, forwards of few rows, drafts and rounds "
        "against the measured bandwidth. No checkpoint is needed.",
    )
    parser.set_defaults(run=run_slice)
    parser.add_argument("--layers", type=_within(*_LAYERS), default=6, metavar="N", help="4 to 8 (6)")
    parser.add_argument("--depths", type=_within(1, _DEPTHS), default=_DEPTHS, metavar="N", help="MTP blocks (8)")
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16", help="precision of the activations (bf16)")
    parser.add_argument(
        "--bits",
        type=_bits,
        default=None,
        metavar="BITS",
        help="8, 4 or none (default): pack every matrix, affine in groups of 64",
    )
    parser.add_argument(
        "--context", type=_within(16, 131072), default=512, metavar="N", help="random tokens read (512)"
    )
    parser.add_argument("-r", "--repetitions", type=positive, default=9, metavar="N", help="timed runs of each (9)")
    parser.add_argument("--seed", type=_within(0, 2**32 - 1), default=0, metavar="N", help="of the weights (0)")
    parser.add_argument(
        "--tiny", action="store_true", help="small matrices instead: to try the command, not to measure"
    )
    add_json(parser)


def run_slice(args: argparse.Namespace) -> int:
    """Measures, prints the tables, writes the JSON."""
    import mlx.core as mx

    from engine.bench.environment import environment
    from engine.bench.geometry import INKLING_SMALL, TINY, slice_config
    from engine.bench.machine import measure_device
    from engine.bench.slice import check_memory, make_slice, measure_slice
    from engine.bench.slice_tables import slice_heading, slice_tables

    terminal, about = Terminal(), environment()
    dtype = {"bf16": mx.bfloat16, "f32": mx.float32}[args.dtype]
    config = slice_config(TINY if args.tiny else INKLING_SMALL, layers=args.layers, depths=args.depths, bits=args.bits)
    check_memory(config, dtype, args.context)
    terminal.progress(0.0, "Measuring the device")
    gpu = mx.default_device() == mx.gpu
    nbytes, side = (1 << 20, 64) if args.tiny else (1 << 31, 8192) if gpu else (1 << 27, 1024)
    machine = measure_device(dtype, nbytes=nbytes, side=side, repeats=args.repetitions)
    mx.clear_cache()
    made = make_slice(config, dtype, context=args.context, seed=args.seed, progress=terminal.progress)
    times = measure_slice(made, machine, context=args.context, repeats=args.repetitions, progress=terminal.progress)
    terminal.clear_progress()
    text = config.text
    for line in about.lines():
        terminal.note(line)
    packed = "" if args.bits is None else f", {args.bits}-bit"
    terminal.note(f"{args.dtype}{packed}: {slice_heading(made)}")
    terminal.write(slice_tables(times, _ACCEPTANCES))
    write_json(
        args.json,
        {
            "environment": about.to_json(),
            "geometry": "tiny" if args.tiny else "Inkling-Small",
            "layers": [
                {"attention": "sliding" if sliding else "global", "mlp": "dense" if dense else "experts"}
                for sliding, dense in zip(text.sliding, text.dense, strict=True)
            ],
            "depths": made.head.depths,
            "dtype": args.dtype,
            "bits": args.bits,
            "seed": args.seed,
            **times.to_json(_ACCEPTANCES),
        },
    )
    return 0


def _within(low: int, high: int) -> Callable[[str], int]:
    return integer(f"a whole number from {low} to {high}", lambda value: low <= value <= high)


def _bits(text: str) -> int | None:
    if text not in ("8", "4", "none"):
        raise argparse.ArgumentTypeError(f"must be 8, 4 or none, not {text!r}")
    return None if text == "none" else int(text)
