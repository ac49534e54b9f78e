"""The parameters that a config calls for: names, shapes and how they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from engine.config import MTPConfig, TextConfig

Kind = Literal["matrix", "array", "float32"]
Form = Literal["plain", "rows", "columns", "taps"]


@dataclass(frozen=True, slots=True)
class Target:
    """One parameter.

    kind: a matrix may stay quantized; an array is kept in the activation dtype, or in float32.
    form: what else than its own shape the parameter may be stored as. `rows` and `columns`: a leading axis of
    experts, which are laid one after the other along the output or the input; `taps`: [C, 1, K] or [C, K, 1].
    """

    name: str
    shape: tuple[int, ...]
    kind: Kind = "matrix"
    form: Form = "plain"
    optional: bool = False
    experts: int = 1

    def stored_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes that a tensor with this parameter alone may have."""
        if self.form == "taps":
            channels, taps = self.shape
            return ((channels, 1, taps), (channels, taps, 1), self.shape)
        if self.form == "rows":
            rows, columns = self.shape
            return ((self.experts, rows // self.experts, columns), self.shape)
        if self.form == "columns":
            rows, columns = self.shape
            return ((self.experts, rows, columns // self.experts), self.shape)
        return (self.shape, ()) if self.shape == (1,) else (self.shape,)


def backbone_targets(config: TextConfig) -> dict[str, Target]:
    """Everything a decoder of this geometry needs, by canonical name."""
    return {target.name: target for target in _backbone(config)}


def head_targets(config: TextConfig, mtp: MTPConfig) -> dict[str, Target]:
    """Everything an MTP head needs beside the target's embedding, final norm and LM head."""
    return {target.name: target for target in _head(config, mtp)}


def _backbone(config: TextConfig) -> Iterator[Target]:
    hidden, vocab = config.hidden_size, config.vocab_size
    yield Target("embed", (vocab, hidden))
    if config.embed_norm:
        yield Target("embed_norm", (hidden,), "array")
    yield Target("norm", (hidden,), "array")
    yield Target("lm_head", (vocab, hidden))
    for i, (sliding, dense) in enumerate(zip(config.sliding, config.dense, strict=True)):
        yield from _block(config, f"layers.{i}.", sliding, dense)


def _head(config: TextConfig, mtp: MTPConfig) -> Iterator[Target]:
    hidden = config.hidden_size
    for j, sliding in enumerate(mtp.sliding):
        yield Target(f"mtp.{j}.embed_norm", (hidden,), "array")
        yield Target(f"mtp.{j}.hidden_norm", (hidden,), "array")
        yield Target(f"mtp.{j}.input_proj", (hidden, 2 * hidden))
        yield from _block(config, f"mtp.{j}.block.", sliding, dense=True)
    if mtp.chain_norm:
        yield Target("mtp.chain_norm", (hidden,), "array")


def _block(config: TextConfig, prefix: str, sliding: bool, dense: bool) -> Iterator[Target]:
    hidden, kernel = config.hidden_size, config.conv_kernel
    attention = config.attention(sliding)
    q, kv = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
    for norm in ("attn_norm", "mlp_norm"):
        yield Target(f"{prefix}{norm}", (hidden,), "array")
    for conv in ("attn_conv", "mlp_conv"):
        yield Target(f"{prefix}{conv}", (hidden, kernel), "float32", "taps")
    attn = f"{prefix}attn."
    yield Target(f"{attn}q_proj", (q, hidden))
    yield Target(f"{attn}k_proj", (kv, hidden))
    yield Target(f"{attn}v_proj", (kv, hidden))
    yield Target(f"{attn}r_proj", (attention.heads * config.d_rel, hidden))
    yield Target(f"{attn}o_proj", (hidden, q))
    for norm in ("q_norm", "k_norm"):
        yield Target(f"{attn}{norm}", (attention.head_dim,), "array")
    for conv in ("k_conv", "v_conv"):
        yield Target(f"{attn}{conv}", (kv, kernel), "float32", "taps")
    yield Target(f"{attn}rel_bias", (config.d_rel, attention.extent), "array")
    yield from _dense_mlp(config, f"{prefix}mlp.") if dense else _sparse_mlp(config, f"{prefix}mlp.")


def _dense_mlp(config: TextConfig, prefix: str) -> Iterator[Target]:
    hidden, width = config.hidden_size, config.dense_width
    yield Target(f"{prefix}gate_proj", (width, hidden))
    yield Target(f"{prefix}up_proj", (width, hidden))
    yield Target(f"{prefix}down_proj", (hidden, width))
    yield Target(f"{prefix}global_scale", (1,), "array")


def _sparse_mlp(config: TextConfig, prefix: str) -> Iterator[Target]:
    hidden, width, experts, shared = (
        config.hidden_size,
        config.expert_width,
        config.num_experts,
        config.num_shared_experts,
    )
    yield Target(f"{prefix}router", (experts + shared, hidden), "float32")
    yield Target(f"{prefix}router_bias", (experts,), "float32")
    yield Target(f"{prefix}router_scale", (1,), "float32")
    yield Target(f"{prefix}experts.gate_proj", (experts, width, hidden))
    yield Target(f"{prefix}experts.up_proj", (experts, width, hidden))
    yield Target(f"{prefix}experts.down_proj", (experts, hidden, width))
    for scale in ("gate_scale", "out_scale"):
        yield Target(f"{prefix}experts.{scale}", (experts,), "float32", optional=True)
    for name in ("gate_proj", "up_proj"):
        yield Target(f"{prefix}shared.{name}", (shared * width, hidden), form="rows", experts=shared)
    yield Target(f"{prefix}shared.down_proj", (hidden, shared * width), form="columns", experts=shared)
