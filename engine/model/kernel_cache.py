"""Where kernels that MLX compiles for an NVIDIA GPU are kept."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

import mlx.core as mx

from engine.model.device import on_cuda
from engine.paths import user_paths

VARIABLE = "MLX_PTX_CACHE_DIR"
"""Read by MLX when it first compiles a kernel."""


def keep_kernels(environ: MutableMapping[str, str] = os.environ) -> None:
    """Keep compiled kernels in the user's cache directory, unless the environment names another place.

    MLX itself keeps them in the directory for temporary files, where they are lost when the machine restarts. Has an
    effect in a process that has compiled nothing yet. Raises `UserError` where the user's directories cannot be.
    """
    if on_cuda() and VARIABLE not in environ:
        # Names of kernels say nothing of the version that wrote them.
        mlx_version: str = mx.__version__  # pyright: ignore[reportAttributeAccessIssue] (the stubs lack it)
        environ[VARIABLE] = str(user_paths().cache / "kernels" / f"mlx-{mlx_version}")
