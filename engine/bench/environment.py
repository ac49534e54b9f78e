"""Where and with what a figure was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mlx.core as mx

import engine


@dataclass(frozen=True, slots=True)
class Environment:
    """What a speed depends on besides the checkpoint. `load` is the machine's 1-minute average at the start."""

    inkstand: str
    commit: str | None
    """Short hash of a checkout, with a plus where files differ from it; None for an installed package."""
    python: str
    platform: str
    mlx: str | None
    device: str
    device_name: str | None
    cores: int | None
    blas: str
    blas_threads: int | None
    """None where mlx uses a library of its own."""
    load: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        commit = f" at {self.commit}" if self.commit else ""
        load = "" if self.load is None else f", load {self.load:.1f}"
        return [
            f"inkstand {self.inkstand}{commit}, mlx {self.mlx or 'unknown'}, Python {self.python}, {self.platform}",
            f"{self.device} {self.device_name or ''}".strip() + f", {self.cores} cores{load}; BLAS: {self.blas}",
        ]


def environment() -> Environment:
    """This process and machine, now."""
    details: dict[str, Any] = dict(mx.device_info())
    try:
        mlx = version("mlx")
    except PackageNotFoundError:
        mlx = None
    return Environment(
        inkstand=engine.__version__,
        commit=commit(Path(engine.__file__).parent.parent),
        python=platform.python_version(),
        platform=platform.platform(),
        mlx=mlx,
        device=mx.default_device().type.name,
        device_name=details.get("device_name"),
        cores=os.cpu_count(),
        blas=engine.BLAS.detail,
        blas_threads=engine.BLAS.threads,
        load=load_average(),
    )


def load_average() -> float | None:
    """Processes that want to run, over the last minute; None where the system does not tell."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def commit(root: Path) -> str | None:
    """Short hash of the checkout at `root`, marked with + when its files differ; None without git or checkout."""
    if not (root / ".git").exists():
        return None
    head, changes = _git(root, "rev-parse", "--short", "HEAD"), _git(root, "status", "--porcelain")
    return None if not head else head + ("+" if changes else "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
