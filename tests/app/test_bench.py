"""The bench's instruments measure what they say."""

from __future__ import annotations

import time

from PySide6.QtWidgets import QApplication, QWidget

from app.bench.figures import Figure, percentile, table
from app.bench.rig import FrameGaps, PaintWatch


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
