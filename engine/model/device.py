"""What kind of device computes."""

from __future__ import annotations

import mlx.core as mx


def on_cuda() -> bool:
    """Whether MLX computes with CUDA, where many kernels are compiled when they are first used."""
    return mx.default_device() == mx.gpu and mx.cuda.is_available()
