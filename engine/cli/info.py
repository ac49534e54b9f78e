"""`inkstand info`: versions, device, BLAS, memory, paths, installed models."""

from __future__ import annotations

import argparse
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import engine
from engine.cli.arguments import Subparsers
from engine.cli.terminal import DASH, Terminal
from engine.errors import UserError
from engine.paths import demo_checkpoint, user_paths
from engine.wording import size

_PACKAGES = ("mlx", "safetensors", "tokenizers", "huggingface-hub", "jinja2")


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command's options."""
    parser = subparsers.add_parser("info", help="show versions, device, BLAS, memory, paths and installed models")
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def run(args: argparse.Namespace) -> int:
    """Prints the report."""
    report = collect()
    if args.json:
        Terminal().json(report)
    else:
        Terminal().line(as_text(report))
    return 0


def collect() -> dict[str, Any]:
    """The report; sizes are bytes, and what a machine does not tell is null."""
    import mlx.core as mx

    from engine.memory import available_memory, total_memory

    paths = user_paths()
    device: dict[str, Any] = dict(mx.device_info())
    return {
        "version": engine.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "device": {
            "default": mx.default_device().type.name,
            "name": device.get("device_name"),
            "cores": os.cpu_count(),
        },
        "blas": {
            "state": engine.BLAS.state,
            "detail": engine.BLAS.detail,
            "library": engine.BLAS.library,
            "threads": engine.BLAS.threads,
        },
        "memory": {"total": total_memory(), "available": available_memory(), "active": mx.get_active_memory()},
        "paths": {
            "data": str(paths.data),
            "cache": str(paths.cache),
            "config": str(paths.config),
            "logs": str(paths.logs),
            "demo": _demo(),
        },
        "models": [{"name": name, "bytes": count} for name, count in _installed(paths.models)],
    }


def as_text(report: dict[str, Any]) -> str:
    """The report for people."""
    packages = ", ".join(f"{name} {number or 'missing'}" for name, number in report["packages"].items())
    device, blas, memory, paths = (report[key] for key in ("device", "blas", "memory", "paths"))
    rows = [
        ("Inkstand", report["version"]),
        ("Python", f"{report['python']} on {report['platform']}"),
        ("packages", packages),
        ("device", f"{device['default']} {device['name'] or ''}, {device['cores']} cores"),
        ("BLAS", f"{blas['state']}: {blas['detail']}"),
        ("", blas["library"] or ""),
        ("memory", f"{_size(memory['available'])} of {_size(memory['total'])} free"),
        *[(name, place or "not bundled") for name, place in paths.items()],
        ("models", "" if report["models"] else "none installed beside the bundled demo"),
        *[("", f"{model['name']}  {size(model['bytes'])}") for model in report["models"]],
    ]
    return "\n".join(f"{name:<10}{value}" for name, value in rows if name or value)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _demo() -> str | None:
    try:
        return str(demo_checkpoint())
    except UserError:
        return None


def _installed(models: Path) -> list[tuple[str, int]]:
    """(owner/name, bytes) of each checkpoint below `models`."""
    return [
        (config.parent.relative_to(models).as_posix(), sum(file.stat().st_size for file in config.parent.iterdir()))
        for config in sorted(models.glob("*/*/config.json"))
    ]


def _size(count: int | None) -> str:
    return DASH if count is None else size(count)
