"""The contract between a checkpoint and the model: parameters under canonical names.

i is a layer, j an MTP depth, H the hidden size, V the padded vocabulary, K the taps of a convolution, I and D the
widths of an MLP and of a head, E and S the numbers of routed and shared experts.

    embed, lm_head [V, H] matrix              embed_norm, norm [H]
    layers.{i}.attn_norm, .mlp_norm [H]       layers.{i}.attn_conv, .mlp_conv [H, K] float32
    layers.{i}.attn.{q,k,v,r,o}_proj matrix   .attn.q_norm, .k_norm [D]    .attn.k_conv, .v_conv [kv*D, K] float32
    layers.{i}.attn.rel_bias [d_rel, extent]
    dense:  .mlp.gate_proj, .up_proj [I, H], .down_proj [H, I] matrix; .mlp.global_scale [1]
    sparse: .mlp.router [E+S, H], .router_bias [E], .router_scale [1] float32
            .mlp.experts.gate_proj, .up_proj [E, I, H], .down_proj [E, H, I] matrix
            .mlp.experts.gate_scale, .out_scale [E] float32 (NVFP4 only; absent where all ones)
            .mlp.shared.gate_proj, .up_proj [S*I, H] (expert by expert), .down_proj [H, S*I] matrix
    mtp.{j}.embed_norm, .hidden_norm [H]      mtp.{j}.input_proj [H, 2H] matrix, hidden half first
    mtp.{j}.block.<names of a dense layer>    mtp.chain_norm [H] (where the config asks for it)

Arrays that are not marked float32 are in the activation dtype. `lay_out` puts matrices that multiply the same rows
below each other: .attn.qkvr_proj, .mlp.gate_up_proj, .mlp.experts.gate_up_proj, .mlp.shared.gate_up_proj. On the CPU
routed and shared experts of plain float32 become one bank: .mlp.bank.gate_up_proj [E+S, 2*I, H], .mlp.bank.down_proj
[E+S, H, I].
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

import mlx.core as mx

from engine.model.linear import Dense, Joined, Matrix, Packed, Projection, stack
from engine.model.placement import on_cache_line

Parameter = Matrix | mx.array
Params = Mapping[str, Parameter]


def matrix(params: Params, name: str) -> Matrix:
    """The matrix under `name`. Raises KeyError when absent, TypeError when it is a plain array."""
    value = params[name]
    if not isinstance(value, (Dense, Packed)):
        raise TypeError(f"{name} is an array, not a matrix")
    return value


def stacked(params: Params, name: str) -> Projection:
    """The joint matrix under `name`, put together from its parts where `lay_out` has not done so."""
    if name in params:
        return matrix(params, name)
    return stack([matrix(params, part) for part in _parts(name)])


def lay_out(params: MutableMapping[str, Parameter]) -> None:
    """Bring parameters, one layer after the other, into the form in which layers read them; joints replace their parts.

    A bank is stored input by input, as `engine.model.fused.experts` reads it. What OpenBLAS multiplies by begins a
    cache line.
    """
    for name in list(params):
        if name.endswith(".mlp.experts.down_proj"):
            _make_bank(params, name.removesuffix(".experts.down_proj"))
    for name in list(params):
        for first, joint in _JOINTS.items():
            whole = name.removesuffix(first) + joint
            if name.endswith(first) and all(part in params for part in _parts(whole)):
                stacked_parts = stacked(params, whole)
                if isinstance(stacked_parts, Joined):  # holds its parts as they are
                    continue
                params[whole] = stacked_parts
                for part in _parts(whole):
                    del params[part]
    if mx.default_device() == mx.cpu:
        _place(params)


def _place(params: MutableMapping[str, Parameter]) -> None:
    """Give the CPU's kernels the plain float32 matrices that they multiply by; of the embedding they read rows."""
    for name, value in params.items():
        if name != "embed" and ".bank." not in name and isinstance(value, Dense) and value.weight.dtype == mx.float32:
            params[name] = Dense(on_cache_line(value.weight))


def _make_bank(params: MutableMapping[str, Parameter], mlp: str) -> None:
    """Join the experts of the layer `mlp` where one kernel can take them all; leave them otherwise."""
    names = [f"{mlp}.{kind}.{part}_proj" for kind in ("experts", "shared") for part in ("gate", "up", "down")]
    matrices = [params.get(name) for name in names]
    if mx.default_device() != mx.cpu or f"{mlp}.experts.gate_scale" in params or f"{mlp}.experts.out_scale" in params:
        return
    weights = [matrix.weight for matrix in matrices if isinstance(matrix, Dense) and matrix.weight.dtype == mx.float32]
    if len(weights) < len(names):
        return
    gate, up, down, shared_gate, shared_up, shared_down = weights
    _, width, hidden = gate.shape
    gates, ups = (
        mx.concatenate([routed, shared.reshape(-1, width, hidden)])
        for routed, shared in ((gate, shared_gate), (up, shared_up))
    )
    downs = mx.concatenate([down, shared_down.reshape(hidden, -1, width).swapaxes(0, 1)])
    for name, whole in (("gate_up", mx.concatenate([gates, ups], axis=1)), ("down", downs)):
        params[f"{mlp}.bank.{name}_proj"] = Dense(on_cache_line(whole.swapaxes(1, 2)).swapaxes(1, 2))
    for name in names:
        del params[name]


_JOINTS = {".q_proj": ".qkvr_proj", ".gate_proj": ".gate_up_proj"}
"""The first part of each joint, and the joint."""


def _parts(joint: str) -> tuple[str, ...]:
    prefix, _, name = joint.rpartition(".")
    names = "qkvr" if name == "qkvr_proj" else ("gate", "up")
    return tuple(f"{prefix}.{part}_proj" for part in names)


def array(params: Params, name: str) -> mx.array:
    """The array under `name`. Raises KeyError when absent, TypeError when it is a matrix."""
    value = params[name]
    if isinstance(value, (Dense, Packed)):
        raise TypeError(f"{name} is a matrix, not an array")
    return value


def arrays_of(value: Parameter) -> tuple[mx.array, ...]:
    """The arrays that a parameter is made of, for `mx.eval`."""
    return (value,) if isinstance(value, mx.array) else value.arrays


def nbytes(params: Params) -> int:
    """Bytes that the parameters hold."""
    return sum(value.nbytes for value in params.values())
