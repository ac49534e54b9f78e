"""The fast layers for few rows give what the plain ones give."""

from __future__ import annotations

import mlx.core as mx
import pytest

from engine.decode.target import Target
from engine.model.backbone import Backbone
from engine.model.fused.gpu_layer import CompiledLayer
from engine.model.fused.products import FEW_ROWS, few_rows, tile_height
from engine.model.layer import layer_cache
from engine.model.linear import Dense, Joined, Packed, Quantization, stack
from engine.model.mtp import MTPHead
from engine.model.params import lay_out, matrix
from engine.weights.keep import keeps_packed
from engine.weights.load import load_head, load_model
from engine.weights.targets import Target as Parameter
from tests.support import TINY, prefilled

TOLERANCE = 1e-4


def both() -> tuple[Backbone, Backbone]:
    loaded = load_model(TINY)
    plain = Backbone(loaded.config, dict(loaded.params), mx.float32, fused=False)
    lay_out(loaded.params)
    return plain, Backbone(loaded.config, loaded.params, mx.float32)


def ids(count: int) -> list[int]:
    return [(37 * i + i * i) % 250 for i in range(count)]


@pytest.mark.parametrize("rows", [1, 2, 5, 9, FEW_ROWS])
@pytest.mark.parametrize("start", [0, 1, 7, 63, 64, 130])
def test_a_block_of_few_rows_equals_the_plain_layers(rows: int, start: int) -> None:
    """From an empty cache; across the window of 8, the bias extent of 16, the log scaling from 12, the alignment."""
    sequence = ids(start + rows)
    results: list[mx.array] = []
    states: list[list[mx.array]] = []
    for backbone in both():
        target = Target(backbone)
        for _ in target.prefill(sequence[:start], 512, lambda hidden, ids: None):
            pass
        results.append(target.logits(target.forward(mx.array(sequence[start:], mx.int32))))
        states.append(
            [
                conv.state(conv.inputs.shape[-1])
                for c in target.cache.layers
                for conv in c.convs
                if conv.inputs is not None
            ]
        )
    assert mx.abs(results[0] - results[1]).max().item() < TOLERANCE
    for plain, fast in zip(*states, strict=True):
        assert mx.abs(plain - fast).max().item() < TOLERANCE


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("start", [0, 20])
def test_compiled_layers_equal_the_plain_ones(rows: int, start: int) -> None:
    """GPUs run these; the CPU computes the same."""
    plain, _ = both()
    hidden = plain.embed(mx.array([ids(start + rows)]))
    for layer, sliding in zip(plain.layers, plain.config.sliding, strict=True):
        outs: list[mx.array] = []
        for compute in (layer.plain, CompiledLayer(layer.plain)):
            cache = layer_cache(plain.config, sliding)
            if start:
                layer.plain(hidden[:, :start], cache)
            outs.append(compute(hidden[:, start:], cache))
            assert cache.offset == start + rows
            outs += [conv.state(conv.inputs.shape[-1]) for conv in cache.convs if conv.inputs is not None]
        for a, b in zip(outs[:4], outs[4:], strict=True):
            assert mx.abs(a - b).max().item() < TOLERANCE


def test_the_fast_layers_are_those_that_run() -> None:
    plain, fast = both()
    assert all(layer.few is None for layer in plain.layers)
    assert all(layer.few is not None for layer in fast.layers)


def test_rows_after_a_cut_are_those_of_a_sequence_that_never_had_the_others() -> None:
    target = prefilled(ids(20))
    target.forward(mx.array([1, 2, 3, 4, 5], mx.int32))
    target.trim(4)
    cut = target.logits(target.forward(mx.array([9, 8], mx.int32)))
    whole = prefilled([*ids(20), 1])
    assert mx.abs(cut - whole.logits(whole.forward(mx.array([9, 8], mx.int32)))).max().item() < TOLERANCE


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_an_mtp_block_equals_the_plain_one(depth: int) -> None:
    outs: list[mx.array] = []
    for backbone in both():
        loaded = load_head(TINY, target=load_model(TINY).config)
        head = MTPHead(backbone, loaded.config, loaded.params)
        cache = head.make_caches()[depth]
        hidden = backbone(mx.array([ids(30)], mx.int32), backbone.make_cache())
        head.advance(depth, mx.array([ids(24)], mx.int32), hidden[:, :24], cache)
        out = head.advance(depth, mx.array([[5, 6, 7]], mx.int32), hidden[:, 24:27], cache)
        outs.append(head.logits(out))
    assert mx.abs(outs[0] - outs[1]).max().item() < TOLERANCE


@pytest.mark.parametrize(("outputs", "inputs"), [(8448, 384), (384, 1024), (864, 384), (97, 64), (48, 100_000)])
def test_tiles_stay_within_what_the_small_kernels_take(outputs: int, inputs: int) -> None:
    height = tile_height(outputs, inputs)
    if height is None:
        assert outputs in (97, 48)
        return
    assert outputs % height == 0
    assert height * FEW_ROWS <= 1200
    assert height * FEW_ROWS * inputs <= 1_000_000


@pytest.mark.parametrize("rows", [1, 3, FEW_ROWS])
@pytest.mark.parametrize(("outputs", "inputs"), [(192, 96), (97, 64)])
def test_tiled_products_equal_whole_ones(rows: int, outputs: int, inputs: int) -> None:
    weight, x = mx.random.normal((outputs, inputs)), mx.random.normal((rows, inputs))
    assert mx.abs(few_rows(Dense(weight))(x) - x @ weight.T).max().item() < 1e-4


def test_matrices_of_one_kind_are_stacked_and_others_joined() -> None:
    a, b, x = mx.random.normal((64, 64)), mx.random.normal((32, 64)), mx.random.normal((3, 64))

    def packed(w: mx.array, bits: int) -> Packed:
        return Packed(*mx.quantize(w, group_size=64, bits=bits), Quantization(64, bits))

    for parts, kind in (
        ([Dense(a), Dense(b)], Dense),
        ([packed(a, 8), packed(b, 8)], Packed),
        ([packed(a, 8), packed(b, 4)], Joined),
        ([packed(a, 8), Dense(b)], Joined),
        ([Dense(a), Dense(b.astype(mx.bfloat16))], Joined),
    ):
        joint = stack(parts)
        assert isinstance(joint, kind)
        assert joint.shape == (96, 64)
        assert joint.nbytes == sum(part.nbytes for part in parts)
        expected = mx.concatenate([part(x) for part in parts], axis=-1)
        assert mx.abs(joint(x) - expected).max().item() < 1e-4


def test_laying_out_leaves_values_and_keeps_nothing_twice() -> None:
    loaded = load_model(TINY)
    before, text = dict(loaded.params), loaded.config.text
    size = sum(value.nbytes for value in before.values())
    lay_out(loaded.params)
    assert sum(value.nbytes for value in loaded.params.values()) == size
    assert not any(
        name.endswith((".q_proj", ".r_proj", ".mlp.up_proj", ".down_proj")) and ".experts." in name
        for name in loaded.params
    )
    layer = next(i for i, dense in enumerate(text.dense) if not dense)
    gate_up, down = (matrix(loaded.params, f"layers.{layer}.mlp.bank.{part}_proj") for part in ("gate_up", "down"))

    def part(name: str) -> mx.array:
        return matrix(before, f"layers.{layer}.mlp.{name}_proj").arrays[0]

    width = down.shape[-1]
    for e in range(text.num_experts):
        expected = mx.concatenate([part("experts.gate")[e], part("experts.up")[e]])
        assert mx.array_equal(gate_up.arrays[0][e], expected)
        assert mx.array_equal(down.arrays[0][e], part("experts.down")[e])
    for s in range(text.num_shared_experts):
        own = slice(s * width, (s + 1) * width)
        expected = mx.concatenate([part("shared.gate")[own], part("shared.up")[own]])
        assert mx.array_equal(gate_up.arrays[0][text.num_experts + s], expected)
        assert mx.array_equal(down.arrays[0][text.num_experts + s], part("shared.down")[:, own])


def test_experts_that_no_kernel_takes_together_stay_apart() -> None:
    """NVFP4's second scales, and quantized experts."""
    for change in ("gate_scale", "packed"):
        params = dict(load_model(TINY).params)
        layer = next(name for name in params if name.endswith(".mlp.experts.down_proj")).removesuffix(".down_proj")
        if change == "packed":
            weight = matrix(params, f"{layer}.down_proj").arrays[0]
            params[f"{layer}.down_proj"] = Packed(*mx.quantize(weight, group_size=32, bits=8), Quantization(32, 8))
        else:
            params[f"{layer}.gate_scale"] = mx.ones((matrix(params, f"{layer}.down_proj").shape[0],))
        lay_out(params)
        assert f"{layer}.gate_up_proj" in params
        assert not any(name.startswith(layer.replace("experts", "bank")) for name in params)


@pytest.mark.parametrize("quantization", [Quantization(64, 4), Quantization(32, 6), Quantization(32, 4, "mxfp4")])
def test_packed_products_on_cuda_are_the_same_ones(monkeypatch: pytest.MonkeyPatch, quantization: Quantization) -> None:
    """One row, a few that are padded to a tile, a tile, and more, which the matrix is expanded for."""
    q = quantization
    codes, scales, *biases = mx.quantize(mx.random.normal((48, 128)), group_size=q.group_size, bits=q.bits, mode=q.mode)
    packed = Packed(codes, scales, biases[0] if biases else None, q)
    rows = {count: mx.random.normal((1, count, 128)) for count in (1, 2, 3, 5, 7, 8, 16, 17, 40)}
    expected = {count: packed(x) for count, x in rows.items()}
    monkeypatch.setattr("engine.model.linear.on_cuda", lambda: True)
    for count, x in rows.items():
        got = packed(x)
        assert got.shape == (1, count, 48)
        assert mx.abs(got - expected[count]).max().item() < TOLERANCE


def test_small_packed_checkpoints_are_expanded_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = Parameter("a", (512, 512)), Parameter("b", (32768, 16384))
    assert not keeps_packed(None, [small, large], mx.bfloat16)  # the CPU
    monkeypatch.setattr("engine.weights.keep.mx.default_device", lambda: mx.gpu)
    assert keeps_packed(None, [small], mx.bfloat16)  # Metal
    monkeypatch.setattr("engine.weights.keep.on_cuda", lambda: True)
    assert not keeps_packed(None, [small], mx.bfloat16)
    assert keeps_packed(None, [small, large], mx.bfloat16)
    assert keeps_packed(True, [small], mx.bfloat16)
    assert not keeps_packed(False, [large], mx.bfloat16)
