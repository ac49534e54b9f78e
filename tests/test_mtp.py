"""MTP blocks against values from an independent torch implementation."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from engine.config import ModelConfig
from engine.decode.chained import ChainedDrafter
from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler
from engine.decode.target import Target
from engine.model.mlp import DenseMLP
from engine.model.mtp import MTPHead, Wiring
from tests.support import DATA, PROMPT, TINY, TINY_VOCAB, tiny, tiny_head

TARGET = np.load(DATA / "golden_target.npz")
GOLDEN = np.load(DATA / "golden_mtp.npz")
HIDDEN = {"prenormhid": "pre_norm", "postnormhid": "post_norm"}
EMBEDDING = {"rawemb": "raw", "normemb": "normed"}
READOUT = {"finalnorm": "final_norm", "nonorm": "direct"}
WIRINGS = [(0, e, h) for e in EMBEDDING for h in HIDDEN] + [(1, e, "prenormhid") for e in EMBEDDING]


def outputs(case: int, head: MTPHead) -> list[mx.array]:
    """Teacher-forced outputs of every depth over all rows whose tokens are known."""
    ids = [*TARGET[f"p{case}_ids"].tolist(), *TARGET[f"p{case}_greedy40"].tolist()]
    rows = len(ids) - head.depths
    caches = head.make_caches()
    out = head.trunk(mx.array(TARGET[f"p{case}_prenorm_hidden"])[None, :rows])
    result = []
    for depth in range(head.depths):
        out = head.advance(depth, mx.array([ids[1 + depth : 1 + depth + rows]]), out, caches[depth])
        result.append(out)
    return result


@pytest.mark.parametrize(("case", "embedding", "hidden"), WIRINGS)
def test_block_outputs_equal_the_reference(case: int, embedding: str, hidden: str) -> None:
    key = f"p{case}_{embedding}_{hidden}_off0"
    for readout, setting in READOUT.items():
        head = tiny_head().rewired(Wiring(HIDDEN[hidden], EMBEDDING[embedding], setting))
        for depth, out in enumerate(outputs(case, head)):
            np.testing.assert_allclose(np.array(out[0]), GOLDEN[f"{key}_block{depth}_out"], atol=1e-4, rtol=0)
            logits = np.array(head.logits(out)[0])
            np.testing.assert_allclose(
                logits[-8:], GOLDEN[f"{key}_block{depth}_logits_last8_{readout}"], atol=1e-4, rtol=0
            )
            assert (logits.argmax(1) == GOLDEN[f"{key}_block{depth}_argmax_{readout}"]).all()


@pytest.mark.parametrize("length", [1, 4, 33])
def test_drafter_forward_shape(length: int) -> None:
    head = tiny_head()
    hidden = mx.random.normal((1, length, 64), key=mx.random.key(0))
    caches = head.make_caches()
    for depth in range(head.depths):
        out = head.advance(depth, mx.zeros((1, length), mx.int32), hidden, caches[depth])
        assert out.shape == (1, length, 64)
        assert head.logits(out).shape == (1, length, 250)
        assert caches[depth].offset == length


def test_block_config_marks_local_ids_sliding_and_dense() -> None:
    config = ModelConfig.from_directory(TINY)
    assert config.mtp is not None
    assert config.mtp.sliding == (True, False, True)
    head = tiny_head()
    for sliding, block, cache in zip(config.mtp.sliding, head.blocks, head.make_caches(), strict=True):
        assert isinstance(block.layer.plain.mlp, DenseMLP)
        assert block.layer.plain.attn.bias.windowed == sliding
        geometry = config.text.attention(sliding)
        assert (block.layer.plain.attn.heads, block.layer.plain.attn.bias.extent) == (geometry.heads, geometry.extent)
        assert cache.kv.window == geometry.window


def test_chain_norm_applies_before_readout_and_chaining() -> None:
    plain = tiny_head()
    normed = plain.rewired(Wiring(readout="direct"))
    normed.chain_norm = mx.full((64,), 2.0)
    hidden, tokens = mx.random.normal((1, 5, 64), key=mx.random.key(3)), mx.array([[4, 5, 6, 7, 8]])
    raw = plain.advance(0, tokens, hidden, plain.make_caches()[0])
    out = normed.advance(0, tokens, hidden, normed.make_caches()[0])
    expected = mx.fast.rms_norm(raw, normed.chain_norm, 1e-6)
    np.testing.assert_allclose(np.array(out), np.array(expected), rtol=1e-5)
    np.testing.assert_allclose(
        np.array(normed.logits(out)), np.array(tiny().backbone.project(expected)), rtol=1e-5, atol=1e-5
    )


def test_the_chained_schedule_starts_again_at_block_0_and_goes_on_with_fresh_blocks() -> None:
    """The published procedure, step by step: blocks 0, 0, 1, 2, 2, where only the first one has a history."""
    head, target = tiny_head(), Target(tiny().backbone)
    drafter = ChainedDrafter(head)
    hidden: list[mx.array] = []
    for _ in target.prefill(PROMPT, 512, lambda rows, ids: hidden.append(rows)):
        pass
    ids = [*PROMPT, 33]
    drafter.extend(hidden[0], ids)
    sampler = Sampler(GenerationOptions(), TINY_VOCAB, PROMPT)
    drafts = drafter.propose(ids, 5, sampler).tokens.tolist()

    caches, expected = head.make_caches(), list[int]()
    out = head.advance(0, mx.array([ids[1:]]), head.trunk(hidden[0]), caches[0])[:, -1:]
    for block in (0, 1, 2, 2, None):
        expected.append(mx.argmax(head.logits(out)[0, 0]).item())
        if block is not None:
            out = head.advance(block, mx.array([[expected[-1]]]), out, caches[block])
    assert drafts == expected
