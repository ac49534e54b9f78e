"""Turning the tensors of one checkpoint module into parameters."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from engine.model.linear import Dense, Packed
from engine.model.params import Parameter
from engine.weights.plan import Module
from engine.weights.rename import Join
from engine.weights.targets import Target


class SecondScales:
    """ModelOpt's second scale of each expert, collected until a layer's three matrices are there.

    With s_g, s_u, s_d of an expert, the gate's pre-activation is multiplied by s_g and the expert's output by
    s_u * s_d, since the up half enters the product linearly.
    """

    def __init__(self) -> None:
        self._by_target: dict[str, mx.array] = {}

    def add(self, target: str, scale: mx.array) -> None:
        self._by_target[target] = scale.astype(mx.float32)

    def parameters(self) -> dict[str, mx.array]:
        """`...experts.gate_scale` and `...experts.out_scale` [E] of the layers that have such scales."""
        result: dict[str, mx.array] = {}
        for prefix in dict.fromkeys(name.rpartition(".")[0] for name in self._by_target):
            scales = [self._by_target.get(f"{prefix}.{part}_proj") for part in ("gate", "up", "down")]
            like = next(s for s in scales if s is not None)
            gate, up, down = (mx.ones_like(like) if s is None else s for s in scales)
            result[f"{prefix}.gate_scale"], result[f"{prefix}.out_scale"] = gate, up * down
        return result


def assemble(
    module: Module, arrays: Mapping[str, mx.array], dtype: mx.Dtype | None, keep_quantized: bool, second: SecondScales
) -> dict[str, Parameter]:
    """The parameters that a module holds, by canonical name.

    arrays: the module's tensors by leaf.
    dtype: the activation dtype; None keeps the stored one, that of float32 arrays too.
    keep_quantized: leave packed matrices packed; otherwise they are expanded to `dtype`.
    second: receives ModelOpt's second scales of routed experts.
    """
    codes = arrays["weight"]
    scales, biases = arrays.get("scales", arrays.get("scale")), arrays.get("biases")
    if module.modelopt:
        # Two E2M1 codes a byte, low nibble first, is also the byte order of MLX's u32 words.
        codes = codes.view(mx.uint32)
    result: dict[str, Parameter] = {}
    for i, target in enumerate(module.targets):
        weight = _part(codes, i, module, target)
        if module.quantization is None or scales is None:
            result[target.name] = _plain(weight, target, dtype)
            continue
        packed = Packed(
            weight,
            _scale_dtype(_part(scales, i, module, target), dtype),
            None if biases is None else _scale_dtype(_part(biases, i, module, target), dtype),
            module.quantization,
        )
        if module.modelopt and ".experts." in target.name:
            second.add(target.name, mx.broadcast_to(arrays["scale2"].reshape(-1), (target.shape[0],)))
            result[target.name] = packed if keep_quantized else Dense(packed.dequantize(dtype or mx.bfloat16))
        elif module.modelopt:
            wide = packed.dequantize(mx.float32) * _row_scales(arrays["scale2"], target)
            result[target.name] = _plain(wide, target, dtype)
        elif keep_quantized and target.kind == "matrix":
            result[target.name] = packed
        else:
            result[target.name] = _plain(packed.dequantize(mx.float32), target, dtype)
    return result


def _part(values: mx.array, i: int, module: Module, target: Target) -> mx.array:
    """Rows of the i-th target, in the target's own form. Contiguous: strided views slow the kernels down."""
    if module.join is Join.INTERLEAVED:
        values = values[..., i :: len(module.targets), :]
    elif module.join is Join.STACKED:
        start = sum(t.shape[-2] for t in module.targets[:i])
        values = values[..., start : start + target.shape[-2], :]
    if target.form == "taps" or target.shape == (1,):
        values = values.reshape(target.shape)
    elif target.form == "rows":
        values = values.reshape(-1, values.shape[-1])
    elif target.form == "columns" and values.ndim == 3:
        values = values.swapaxes(0, 1).reshape(values.shape[1], -1)
    return mx.contiguous(values)


def _plain(values: mx.array, target: Target, dtype: mx.Dtype | None) -> Parameter:
    if dtype is not None:
        values = values.astype(mx.float32 if target.kind == "float32" else dtype)
    return Dense(values) if target.kind == "matrix" else values


def _scale_dtype(scales: mx.array, dtype: mx.Dtype | None) -> mx.array:
    """Half-precision scales would turn the kernels' results to float32 or float16; one-byte scales stay."""
    return scales.astype(dtype) if dtype is not None and scales.dtype == mx.float16 else scales


def _row_scales(scale2: mx.array, target: Target) -> mx.array:
    """One second scale per row or column of a matrix whose experts were laid one after the other."""
    scale2 = scale2.reshape(-1)
    if scale2.size == 1:
        return scale2
    if target.form == "columns":
        return mx.repeat(scale2, target.shape[-1] // scale2.size)[None]
    return mx.repeat(scale2, target.shape[-2] // scale2.size)[:, None]


def is_identity_scale(name: str, value: Parameter) -> bool:
    """Whether a parameter is an expert scale of ones, which conversions from formats without it carry along.

    Without the parameter the model leaves the product out.
    """
    if not name.endswith((".experts.gate_scale", ".experts.out_scale")) or not isinstance(value, mx.array):
        return False
    return bool(mx.all(value == 1).item())
