"""The peer: its protocol against a scripted server, its failures, and the copy of the checkpoint that it reads."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from pathlib import Path

import mlx.core as mx
import pytest

from engine.bench.contestants import Case, cases, peer_contestants
from engine.bench.peer import SCRIPT, Peer, PeerError
from engine.bench.peer_copy import copy_for_peer, published_tensors
from engine.bench.prompts import Prompt
from engine.cli.main import main
from engine.config import ModelConfig
from engine.errors import HeadError
from engine.model.linear import Dense
from engine.model.params import arrays_of
from engine.weights.load import load_model
from tests import layouts
from tests.support import TINY, tiny

HELLO = """
threads = os.environ.get("OPENBLAS_NUM_THREADS")
say({"ready": True, "versions": {"mlx-vlm": "1.0", "threads": threads}, "block": 5})
"""
ECHO = """
for line in sys.stdin:
    q = json.loads(line)
    say({"ids": q["ids"][:q["tokens"]], "decode_tps": 7.5, "rounds": 0 if q["block"] is None else 2})
"""


def server(tmp_path: Path, *parts: str) -> Path:
    """A script that speaks the peer's side of the protocol."""
    path = tmp_path / "server.py"
    lines = ["import json, os, sys", "def say(m):", "    print(json.dumps(m), flush=True)"]
    path.write_text("\n".join(lines + [textwrap.dedent(part) for part in parts]))
    return path


def open_peer(tmp_path: Path, script: Path, threads: int | None = 3) -> Peer:
    return Peer(sys.executable, model=tmp_path / "model", work=tmp_path, threads=threads, script=script)


def test_questions_are_answered_by_one_process(tmp_path: Path) -> None:
    with open_peer(tmp_path, server(tmp_path, HELLO, ECHO)) as peer:
        assert (peer.block, peer.versions) == (5, {"mlx-vlm": "1.0", "threads": "3"})
        plain, own, three = peer_contestants(peer, [0, 3], [2])
        assert [plain.name, own.name, three.name] == ["peer", "peer block 5", "peer block 3"]
        case = Case("a", "A", (4, 5, 6, 7), 3)
        first, second = plain.run(case, 0), own.run(case, 0)
        assert first is not None
        assert second is not None
        assert (first.token_ids, first.decode_tps, first.tokens_per_round) == ((4, 5, 6), 7.5, None)
        assert second.tokens_per_round == 1.0
        assert plain.run(Case("hot", "A", (4,), 3, temperature=1.5), 0) is None


@pytest.mark.parametrize(
    ("parts", "named", "hint"),
    [
        (['say({"error": "ModuleNotFoundError: No module named mlx_vlm"})'], "mlx_vlm", "pip install mlx-vlm"),
        (["sys.exit('no such model')"], "without an answer", "no such model"),
        (["print('hello', flush=True)"], "'hello'", "peer.log"),
        (["print('[1]', flush=True)"], "[1]", "peer.log"),
    ],
)
def test_a_peer_that_does_not_start_says_why(parts: list[str], named: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(PeerError) as caught:
        open_peer(tmp_path, server(tmp_path, *parts))
    assert named in caught.value.title
    assert hint in caught.value.hint


def test_a_peer_that_dies_between_questions_says_why(tmp_path: Path) -> None:
    dies = "sys.stdin.readline(); sys.exit('out of memory')"
    with open_peer(tmp_path, server(tmp_path, HELLO, dies)) as peer:
        with pytest.raises(PeerError) as caught:
            peer.ask([1], tokens=1, stop=[], block=None)
        assert "out of memory" in caught.value.hint
        with pytest.raises(PeerError):
            peer.ask([1], tokens=1, stop=[], block=None)


def test_an_interpreter_without_the_peer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # no site-packages
    bare.chmod(0o755)
    work = tmp_path / "work"
    assert main(["bench", str(TINY), "-n", "4", "--quick", "--peer", str(bare), "--work", str(work)]) == 2
    assert "pip install mlx-vlm" in capsys.readouterr().err
    assert (work / "model" / "config.json").is_file()


def test_the_script_needs_nothing_of_ours() -> None:
    imported = [line for line in SCRIPT.read_text().splitlines() if line.strip().startswith(("import ", "from "))]
    assert not [line for line in imported if "engine" in line or "inkstand" in line]


def test_the_copy_holds_the_published_tensors(tmp_path: Path) -> None:
    target = tmp_path / "model"
    assert copy_for_peer(TINY, TINY, target, "f32")
    copied = dict(mx.load(str(target / "model.safetensors")))
    original = {**layouts.backbone(), **layouts.head()}
    text = {name: value for name, value in original.items() if not name.startswith(("model.visual", "model.audio"))}
    assert copied.keys() == text.keys()
    for name, value in text.items():
        assert copied[name].shape == value.shape, name
        assert mx.array_equal(copied[name], value.astype(mx.float32)).item(), name
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == text.keys()
    assert not copy_for_peer(TINY, TINY, target, "f32"), "an unchanged checkpoint is copied once"
    assert copy_for_peer(TINY, TINY, target, "bf16")
    assert json.loads((target / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_quantized_weights_are_copied_as_we_multiply_them(tmp_path: Path) -> None:
    packed, target = tmp_path / "packed", tmp_path / "model"
    assert main(["convert", str(TINY), str(packed), "--quantize", "8:32", "--json"]) == 0
    copy_for_peer(packed, packed, target, "f32")
    assert "quantization" not in json.loads((target / "config.json").read_text())
    ours, theirs = load_model(packed, dtype="f32"), load_model(target, dtype="f32")
    assert ours.params.keys() == theirs.params.keys()
    for name, value in ours.params.items():
        other = theirs.params[name]
        for a, b in zip(arrays_of(value), arrays_of(other), strict=True):
            assert mx.array_equal(a, b).item(), name


def test_scales_of_experts_are_multiplied_in() -> None:
    config = ModelConfig.from_directory(TINY)
    params = dict(load_model(TINY, dtype="f32").params)
    name = next(name for name in params if name.endswith(".experts.gate_proj")).removesuffix("gate_proj")
    gate, down = params[f"{name}gate_proj"], params[f"{name}down_proj"]
    assert isinstance(gate, Dense)
    assert isinstance(down, Dense)
    params[f"{name}gate_scale"], params[f"{name}out_scale"] = mx.full((8,), 2.0), mx.full((8,), 3.0)
    tensors = published_tensors(params, config)
    assert not [key for key in tensors if key.endswith("_scale") and "experts" in key]
    layer = name.split(".")[1]
    joint = tensors[f"model.llm.layers.{layer}.mlp.experts.w13_weight"]
    assert mx.allclose(joint[:, ::2], 2 * gate.weight).item()
    assert mx.allclose(tensors[f"model.llm.layers.{layer}.mlp.experts.w2_weight"], 3 * down.weight).item()


def test_a_copy_needs_a_head(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in TINY.iterdir():
        if file.name not in {"mtp.safetensors", "model.safetensors.index.json"}:
            shutil.copy(file, bare)
    with pytest.raises(HeadError):
        copy_for_peer(bare, bare, tmp_path / "model", "f32")


def test_cases_carry_the_ids_that_the_model_reads() -> None:
    (case,) = cases(tiny(), [Prompt("x", "hello there")], 4, effort=0.9)
    assert list(case.ids) == tiny().tokenizer.encode("hello there")
