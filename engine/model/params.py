"""The parameters of a model by canonical name, as `engine.weights` hands them to the layers.

The names are listed in `engine/README.md`. A projection is a `Matrix`, anything else an array.
"""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from engine.model.linear import Matrix

Params = Mapping[str, Matrix | mx.array]


def matrix(params: Params, name: str) -> Matrix:
    """The projection `name`; KeyError or TypeError where the loader let a faulty set through."""
    value = params[name]
    if isinstance(value, mx.array):
        raise TypeError(f"{name} is an array, not a projection")
    return value


def array(params: Params, name: str) -> mx.array:
    """The array `name`."""
    value = params[name]
    if not isinstance(value, mx.array):
        raise TypeError(f"{name} is a projection, not an array")
    return value


def optional_array(params: Params, name: str) -> mx.array | None:
    """The array `name`, or None where the checkpoint has none."""
    return array(params, name) if name in params else None
