"""`inkstand inspect`: what a checkpoint directory holds, without reading its weights."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from engine.cli.arguments import Subparsers
from engine.cli.loading import model_folder
from engine.cli.path_types import path
from engine.cli.terminal import Terminal
from engine.wording import counted, size

if TYPE_CHECKING:
    from engine.weights.inspect import Inspection


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command's options."""
    parser = subparsers.add_parser(
        "inspect", help="show family, layout, quantization, sizes and MTP head of a checkpoint, without loading it"
    )
    parser.set_defaults(run=run)
    parser.add_argument("model", type=path, metavar="MODEL", help="directory, or owner/name of a downloaded one")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def run(args: argparse.Namespace) -> int:
    """Prints the findings. Returns 2 when the checkpoint cannot be loaded."""
    from engine.weights.inspect import inspect

    findings = inspect(model_folder(args.model))
    if args.json:
        Terminal().json(as_json(findings))
    else:
        Terminal().line(as_text(findings))
    return 2 if findings.problems else 0


def as_json(findings: Inspection) -> dict[str, Any]:
    """The findings; sizes are bytes. Parameters and bytes are of model and head, without what is skipped."""
    from engine.weights.head import HeadFound

    head = findings.head
    found = isinstance(head, HeadFound)
    return {
        "directory": str(findings.directory),
        "family": findings.family,
        "layout": findings.layout,
        "parameters": findings.parameters,
        "bytes": findings.nbytes,
        "sizes": dict(findings.sizes),
        "skipped": dict(findings.skipped),
        "packing": dict(findings.packing),
        "head": {
            "found": found,
            "depths": head.depths if found else 0,
            "parameters": findings.head_parameters,
            "files": list(head.files) if found else [],
            "bytes": head.nbytes if found else 0,
            "reason": None if found else head.reason,
        },
        "problems": list(findings.problems),
        "notes": list(findings.notes),
    }


def as_text(findings: Inspection) -> str:
    """The findings for people."""
    from engine.weights.head import HeadFound
    from engine.weights.packing import matrices

    head = findings.head
    rows = [("directory", str(findings.directory)), ("family", findings.family or "unknown")]
    if findings.config is not None:
        text = findings.config.text
        shape = f"{text.num_layers} layers, hidden size {text.hidden_size}, {text.num_experts} experts"
        rows.append(("model", f"{shape}, context {text.max_positions}"))
    if findings.backbone_parameters:
        whole = f"{_millions(findings.parameters)} parameters, {size(findings.nbytes)}"
        rows += [
            ("layout", findings.layout),
            ("weights", f"{whole}, MTP head included" if findings.head_parameters else whole),
            *[("", f"{size(count):>10}  {kind}") for kind, count in Counter(findings.sizes).most_common()],
            *[("", f"{size(count):>10}  {kind}, not used by a text model") for kind, count in findings.skipped.items()],
            ("packing", "; ".join(f"{matrices(count)} {how}" for how, count in findings.packing.items())),
        ]
    if isinstance(head, HeadFound):
        parameters = f"{_millions(findings.head_parameters)} parameters, " if findings.head_parameters else ""
        where = f"{size(head.nbytes)}, in {', '.join(head.files)}"
        rows.append(("MTP head", f"{counted(head.depths, 'depth')}, {parameters}{where}"))
    else:
        rows.append(("MTP head", f"none: {head.reason}"))
    rows += [("note", note) for note in findings.notes] + [("problem", problem) for problem in findings.problems]
    return "\n".join(f"{name:<11}{value}".rstrip() for name, value in rows)


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f} million" if count < 1e9 else f"{count / 1e9:.1f} billion"
