from __future__ import annotations

import threading
from pathlib import Path

import layouts
import mlx.core as mx
import pytest

from engine.cache import align_up
from engine.loaded import Engine
from engine.memory import available_memory, footprint, parse_vm_stat, total_memory
from engine.messages import Message
from engine.model.params import nbytes
from engine.session import GenerationOptions, Session
from engine.weights.load import load_head, load_model

TINY = Path(__file__).parent / "data" / "inkling-tiny"
DEMO = Path(__file__).parents[1] / "resources" / "demo_checkpoint"


def check_weights(directory: Path, *, dtype: str, keep: bool) -> None:
    """The estimate is what the loaded arrays hold, to the byte."""
    seen = footprint(directory, directory, dtype=dtype, keep_quantized=keep)
    model = load_model(directory, dtype=dtype, keep_quantized=keep)
    assert seen.weights == nbytes(model.params)
    head = load_head(directory, target=model.config, dtype=dtype, keep_quantized=keep)
    assert seen.head == nbytes(head.params)
    assert seen.depths == head.config.depths


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("directory", [TINY, DEMO], ids=["unquantized", "quantized"])
def test_weights_are_those_that_loading_makes(directory: Path, dtype: str, keep: bool) -> None:
    check_weights(directory, dtype=dtype, keep=keep)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("keep", [True, False])
def test_modelopt_weights(tmp_path: Path, dtype: str, keep: bool) -> None:
    def excluded(name: str) -> bool:
        return "experts" not in name or "shared" in name

    tensors, _ = layouts.to_modelopt(layouts.backbone(), excluded)
    block = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    directory = layouts.write(
        tmp_path / "nvfp4",
        tensors,
        {**layouts.config(), "quantization_config": block},
        head=layouts.head(),
        dtypes=layouts.modelopt_dtype,
    )
    seen = footprint(directory, directory, dtype=dtype, keep_quantized=keep)
    params = load_model(directory, dtype=dtype, keep_quantized=keep).params
    # Expert scales of ones are left out after their values were read; the estimate knows no values.
    assert 0 <= nbytes(params) - seen.weights <= 0.01 * seen.weights


def test_without_a_head_nothing_is_counted_for_it() -> None:
    seen, with_head = footprint(TINY), footprint(TINY, TINY)
    assert (seen.head, seen.depths, seen.draft_log, seen.head_problem) == (0, 0, 0, None)
    assert seen.total(1000) < with_head.total(1000)


def test_a_head_of_another_model_is_left_out_and_named() -> None:
    seen = footprint(TINY, DEMO)
    assert seen.head == 0
    assert seen.head_problem is not None
    assert "another model" in seen.head_problem


def test_caches_hold_what_was_foreseen() -> None:
    engine = Engine.load(TINY)
    session = Session(engine)
    seen = footprint(TINY, TINY)
    for words in (60, 700):
        for _ in session.complete("hello world " * words, GenerationOptions(max_tokens=4)):
            pass
        drafter = session.drafter
        assert drafter is not None
        now = session.target.cache.nbytes + sum(array.nbytes for array in drafter.arrays)  # pyright: ignore[reportAttributeAccessIssue]
        context = session.target.position
        assert context > 0.6 * words
        assert now <= seen.cache(context) <= 8 * now
    # Only global layers grow with the context.
    text = engine.config.text
    rows = sum(not sliding for sliding in text.sliding) * 2 * text.global_attention.kv_heads
    assert seen.cache_per_token() >= rows * text.global_attention.head_dim * mx.float32.size
    growth = seen.cache(4096) - seen.cache(2048)
    assert growth == seen.cache_per_token() * (align_up(4096) - align_up(2048))


def test_a_longer_context_needs_more_and_the_total_is_the_sum() -> None:
    seen = footprint(DEMO, DEMO)
    assert seen.total(2048) > seen.total(1024) > seen.weights + seen.head
    parts = seen.weights + seen.drafter + seen.cache(1024) + seen.working(1024)
    assert seen.total(1024) == parts


def test_the_peak_of_a_long_prompt_stays_within_the_estimate() -> None:
    engine = Engine.load(DEMO)
    session = Session(engine, context=2048)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    message = Message("user", "hello world " * 180)
    for _ in session.generate([message], GenerationOptions(max_tokens=4), cancel=threading.Event()):
        pass
    seen, context = footprint(DEMO, DEMO), session.target.position
    assert mx.get_peak_memory() - before <= seen.cache(context) + seen.working(context)


def test_memory_of_this_machine() -> None:
    available, total = available_memory(), total_memory()
    assert available is not None
    assert total is not None
    assert 0 < available <= total


def test_what_macos_prints() -> None:
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                               10000.\n"
        "Pages active:                            500000.\n"
        "Pages inactive:                          200000.\n"
        "Pages speculative:                         3000.\n"
        "Pages wired down:                        100000.\n"
        "Pages purgeable:                           2000.\n"
        '"Translation faults":                 123456789.\n'
    )
    assert parse_vm_stat(text) == 16384 * 215000
    assert parse_vm_stat("no such thing") is None
