"""What a GPU compiles is compiled while loading, told about, and kept."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from engine.decode import warm_up as warm_up_module
from engine.decode.warm_up import MESSAGE, warm_up
from engine.model import kernel_cache
from engine.model.kernel_cache import VARIABLE, keep_kernels
from engine.session import Engine
from tests.support import TINY


def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what asks for the device in these two modules is told so."""
    monkeypatch.setattr(warm_up_module, "on_cuda", lambda: True)
    monkeypatch.setattr("engine.loaded.on_cuda", lambda: True)


@pytest.mark.parametrize("draft_kind", ["mtp", "none"])
def test_loading_ends_with_a_step_of_each_kind(monkeypatch: pytest.MonkeyPatch, draft_kind: str) -> None:
    on_a_gpu(monkeypatch)
    seen: list[tuple[float, str]] = []
    kind = "mtp" if draft_kind == "mtp" else "none"
    engine = Engine.load(TINY, draft_kind=kind, progress=lambda share, text: seen.append((share, text)))
    shares = [share for share, _ in seen]
    assert shares == sorted(shares)
    prepared = [share for share, text in seen if text == MESSAGE]
    # Prefill, a plain step, a round of every number of drafts, a sampled step; a look back, greedy and sampled.
    assert len(prepared) == 3 + engine.head_depths + 2 * (draft_kind == "mtp")
    assert 0.5 < prepared[0] < prepared[-1] < 1
    assert seen[-1][1] == MESSAGE


def test_the_steps_read_many_rows_one_row_and_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine.load(TINY, draft_kind="mtp")
    assert engine.head is not None
    rows: list[int] = []
    embed = engine.backbone.embed

    def counted(tokens: mx.array, normed: bool = True) -> mx.array:
        rows.append(tokens.shape[1])
        return embed(tokens, normed)

    monkeypatch.setattr(engine.backbone, "embed", counted)
    on_a_gpu(monkeypatch)
    warm_up(engine.backbone, engine.head, lambda share, text: None)
    assert {*range(1, engine.head.depths + 2)} < set(rows)
    assert max(rows) > 16


def test_the_cpu_compiles_nothing() -> None:
    seen: list[str] = []
    Engine.load(TINY, draft_kind="mtp", progress=lambda share, text: seen.append(text))
    assert MESSAGE not in seen


def test_kernels_are_kept_where_a_restart_leaves_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INKSTAND_HOME", str(tmp_path))
    environ: dict[str, str] = {}
    keep_kernels(environ)
    assert not environ
    monkeypatch.setattr(kernel_cache, "on_cuda", lambda: True)
    keep_kernels(environ)
    assert Path(environ[VARIABLE]).is_relative_to(tmp_path / "cache")
    assert "mlx-" in environ[VARIABLE]
    chosen = {VARIABLE: "/elsewhere"}
    keep_kernels(chosen)
    assert chosen == {VARIABLE: "/elsewhere"}
