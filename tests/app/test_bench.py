"""The bench's instruments measure what they say."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QWidget

from app.bench import machine
from app.bench.figures import Figure, percentile, table
from app.bench.rig import FrameGaps, PaintWatch, perform
from app.bench.soak import slope_of
from app.composition import Gui
from app.engine_host import LoadRequest
from app.scripted import Said, Script, scripted_loader


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert percentile(values, 0.99) == 99
    assert percentile(values, 1.0) == 100
    assert percentile([5.0], 0.5) == 5


def test_a_missed_target_is_told() -> None:
    figures = [
        Figure("a", "met", 33.0, "ms", 33.0),
        Figure("a", "missed", 33.1, "ms", 33.0),
        Figure("a", "free", 1, ""),
    ]
    assert [figure.met for figure in figures] == [True, False, True]
    lines = table(figures).splitlines()
    assert [("pass" in line, "FAIL" in line) for line in lines[1:]] == [(True, False), (False, True), (False, False)]


def test_a_stalled_window_shows_as_one_long_gap(qapp: QApplication, wait) -> None:
    meter = FrameGaps()
    meter.start()
    wait(lambda: len(meter.gaps) > 3)
    before = len(meter.gaps)
    time.sleep(0.2)
    wait(lambda: len(meter.gaps) > before)
    meter.stop()
    stalled = meter.gaps.index(max(meter.gaps))
    assert meter.gaps[stalled] > 180
    assert meter.computed[stalled] < 100, "it slept"
    assert meter.waited[stalled] > 60


def test_paint_is_reported_once(qapp: QApplication, wait) -> None:
    painted: list[float] = []
    widget = QWidget()
    watch = PaintWatch(lambda watched: watched is widget, lambda: painted.append(time.monotonic()))
    qapp.installEventFilter(watch)
    widget.show()
    wait(lambda: painted)
    widget.repaint()
    qapp.processEvents()
    qapp.removeEventFilter(watch)
    assert len(painted) == 1


def test_growth_is_told_from_noise() -> None:
    flat = [(float(t), 300.0 + (80.0 if t == 7 else t % 3)) for t in range(60)]
    assert abs(slope_of(flat)) < 0.02
    assert slope_of([(t, mb + 0.5 * t) for t, mb in flat]) == pytest.approx(0.5, abs=0.02)
    assert slope_of([(1.0, 300.0)]) == 0


def test_what_others_take_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = 0.0
    monkeypatch.setattr(machine, "_busy_seconds", lambda: 1000.0 + time.process_time() + extra)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    others = machine.Others()
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        pass
    alone = others.percent()
    extra = 0.2
    beside = others.percent()
    assert alone is not None
    assert alone < 10, "its own work does not count"
    assert beside is not None
    assert beside > 30


def test_figures_of_a_window_that_fails_are_not_told(qapp: QApplication, inkstand_home: Path) -> None:
    def fail() -> None:
        raise KeyError("broken part")

    async def scene(gui: Gui) -> None:
        QTimer.singleShot(0, gui.window, fail)
        await asyncio.sleep(0.05)

    loader = scripted_loader(Script(lambda _messages: Said("Yes.")))
    with pytest.raises(RuntimeError, match="broken part"):
        perform(scene, loader, LoadRequest(Path("scripted"), "Scripted"))
