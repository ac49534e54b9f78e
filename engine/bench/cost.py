"""What a forward has to read and to compute, from the matrices and the geometry of the loaded checkpoint.

Bytes: every matrix once, the experts in use, the keys and values in sight, small weights. Activations stay in the
processor's caches and are not counted. Operations: a multiplication and an addition each, of all products and
convolutions; norms and softmaxes are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from engine.model.attention import Attention
from engine.model.backbone import Backbone
from engine.model.layer import DecoderLayer
from engine.model.linear import Projection
from engine.model.mlp import DenseMLP, MoE
from engine.model.mtp import MTPHead

PROJECTIONS, ATTENTION = "attention projections", "attention"
DENSE, ROUTER, ROUTED, SHARED = "dense MLP", "router", "routed experts", "shared experts"
HEAD, OTHER = "LM head", "norms, convolutions, rest"
PIECES = (PROJECTIONS, ATTENTION, DENSE, ROUTER, ROUTED, SHARED, HEAD, OTHER)


@dataclass(frozen=True, slots=True)
class Work:
    nbytes: float = 0.0
    ops: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.nbytes + other.nbytes, self.ops + other.ops)


Works = dict[str, Work]
"""By piece."""


def total(works: Works) -> Work:
    return sum(works.values(), Work())


def expected_experts(experts: int, per_token: int, rows: int) -> float:
    """Distinct experts that `rows` rows use when each chooses evenly and independently: E (1 - (1 - k/E)^rows)."""
    return experts * (1.0 - (1.0 - per_token / experts) ** rows)


def step_work(backbone: Backbone, rows: int, context: int, experts_in_use: float) -> Works:
    """A forward of `rows` rows after `context` ones, all of whose logits are computed.

    Args:
        experts_in_use: distinct routed experts per layer that the rows use together.
    """
    works: Works = {}
    for layer in backbone.layers:
        _add(works, _layer_work(layer.plain, rows, context, experts_in_use, backbone.dtype.size))
    _add(works, _readout_work(backbone, rows))
    return works


def draft_work(head: MTPHead, depth: int, rows: int, context: int) -> Works:
    """One draft of block `depth`, which takes `rows` rows to its history and reads out the last."""
    block, backbone = head.blocks[depth], head.backbone
    works = _layer_work(block.layer.plain, rows, context, 0.0, backbone.dtype.size)
    reading = _product(block.input_proj, rows)
    if block.few is not None:
        read, multiplied = block.few.work(rows)
        reading = Work(read, 2.0 * multiplied)
    _add(works, {PROJECTIONS: reading})
    scoring = _product(backbone.lm_head, 1)
    if head.scores is not None:
        read, multiplied = head.scores.work
        scoring = Work(read, 2.0 * multiplied)
    _add(works, {HEAD: scoring, OTHER: _embedding_work(backbone, 1)})
    return works


def _readout_work(backbone: Backbone, rows: int) -> Works:
    return {HEAD: _product(backbone.lm_head, rows), OTHER: _embedding_work(backbone, rows)}


def _embedding_work(backbone: Backbone, rows: int) -> Work:
    row = backbone.embedding.nbytes / backbone.embedding.shape[0]
    return Work(rows * row + backbone.norm.nbytes)


def _layer_work(layer: DecoderLayer, rows: int, context: int, experts_in_use: float, itemsize: int) -> Works:
    attn = layer.attn
    works: Works = {
        PROJECTIONS: _product(attn.qkvr_proj, rows) + _product(attn.o_proj, rows),
        ATTENTION: _attention_work(attn, rows, context, itemsize),
    }
    if isinstance(layer.mlp, DenseMLP):
        works[DENSE] = _product(layer.mlp.gate_up_proj, rows) + _product(layer.mlp.down_proj, rows)
    else:
        _add(works, _moe_work(layer.mlp, rows, experts_in_use))
    convs = [conv.weight for conv in (attn.kv_conv, layer.attn_conv, layer.mlp_conv)]
    norms = sum(norm.nbytes for norm in (layer.attn_norm, layer.mlp_norm, attn.q_norm, attn.k_norm))
    taps = sum(weight.size for weight in convs)
    works[OTHER] = Work(norms + sum(weight.nbytes for weight in convs), 2.0 * rows * taps)
    return works


def _attention_work(attn: Attention, rows: int, context: int, itemsize: int) -> Work:
    keys = context + rows
    if attn.bias.windowed:
        keys = min(keys, attn.bias.extent + rows - 1)
    read = 2 * keys * attn.kv_heads * attn.head_dim * itemsize + attn.bias.bank.nbytes
    scores_and_sum = 4 * rows * attn.heads * attn.head_dim * keys
    bias = 2 * rows * attn.heads * attn.bias.bank.size
    return Work(read, scores_and_sum + bias)


def _moe_work(moe: MoE, rows: int, experts_in_use: float) -> Works:
    routed = (moe.routed_experts.gate_up_proj, moe.routed_experts.down_proj)
    shared = (moe.shared_experts.gate_up_proj, moe.shared_experts.down_proj)
    stored = sum(matrix.nbytes for matrix in routed) / moe.experts
    weights = sum(prod(matrix.shape) for matrix in routed) / moe.experts
    return {
        ROUTER: Work(moe.router.nbytes + moe.router_bias.nbytes, 2.0 * rows * moe.router.size),
        ROUTED: Work(experts_in_use * stored, 2.0 * rows * moe.top_k * weights),
        SHARED: _product(shared[0], rows) + _product(shared[1], rows),
    }


def _product(matrix: Projection, rows: int) -> Work:
    return Work(matrix.nbytes, 2.0 * rows * prod(matrix.shape))


def _add(works: Works, more: Works) -> None:
    for piece, work in more.items():
        works[piece] = works.get(piece, Work()) + work
