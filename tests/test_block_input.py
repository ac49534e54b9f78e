"""MTP blocks look up what they read of a token where that is faster, and get what they would compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine.memory import footprint
from engine.model.backbone import Backbone
from engine.model.fused.block_input import MOST_BYTES, suits, table_bytes
from engine.model.mtp import MTPHead, Wiring
from engine.model.params import lay_out
from engine.paths import demo_checkpoint
from engine.session import Engine
from engine.weights.load import load_head, load_model
from tests.support import TINY, TINY_VOCAB

DEMO = demo_checkpoint()


def tiny_head(*, fused: bool = True, wiring: Wiring | None = None, dtype: str = "f32") -> MTPHead:
    loaded = load_model(TINY, dtype=dtype)
    if fused:
        lay_out(loaded.params)
    backbone = Backbone(loaded.config, loaded.params, mx.float32 if dtype == "f32" else mx.bfloat16, fused=fused)
    head = load_head(TINY, target=loaded.config, dtype=dtype)
    return MTPHead(backbone, head.config, head.params, wiring)


@pytest.mark.parametrize("embedding", ["normed", "raw"])
@pytest.mark.parametrize("rows", [1, 4, 16, 17])
def test_looked_up_inputs_are_those_of_the_formula(rows: int, embedding: Any) -> None:
    """Every id of a block, its padding ids included; a raw embedding and more rows are computed."""
    wiring = Wiring(embedding=embedding)
    fast, plain = (tiny_head(fused=fused, wiring=wiring) for fused in (True, False))
    assert all(block.few is not None for block in fast.blocks)
    assert all(block.few is None for block in plain.blocks)
    tokens = mx.arange(TINY_VOCAB - rows, TINY_VOCAB)[None]
    hidden = mx.random.normal((1, rows, 64), key=mx.random.key(1))
    for depth in range(fast.depths):
        outs = [head.advance(depth, tokens, hidden, head.make_caches()[depth]) for head in (fast, plain)]
        assert mx.abs(outs[0] - outs[1]).max().item() < 1e-4


def test_in_bfloat16_nothing_is_looked_up() -> None:
    assert all(block.few is None for block in tiny_head(dtype="bf16").blocks)


def test_large_vocabularies_are_left_alone() -> None:
    assert suits(8448, 384, 4, mx.float32)
    assert not suits(200_058, 4096, 8, mx.float32)
    assert not suits(8448, 384, 4, mx.bfloat16)
    assert table_bytes(8448, 384, 4) < MOST_BYTES < table_bytes(8448, 384, 6)


def bytes_held(directory: Path) -> int:
    """Bytes of the tables of all blocks, what one row more reads for every id, and of what no row adds to."""
    head = Engine.load(directory).head
    assert head is not None
    found = 0
    for block in head.blocks:
        assert block.few is not None
        one, two = block.few.work(1)[0], block.few.work(2)[0]
        found += (two - one) * head.backbone.config.vocab_size + 2 * one - two
    return found


def test_the_plan_of_memory_counts_the_tables() -> None:
    assert footprint(DEMO, DEMO).inputs == bytes_held(DEMO) == table_bytes(8448, 384, 4)
    assert footprint(DEMO).inputs == 0
    assert footprint(DEMO, DEMO, keep_quantized=True).inputs == 0
    assert footprint(DEMO, DEMO, quantize_rest=8).inputs == 0
    assert footprint(DEMO, DEMO, dtype="bf16").inputs == 0
