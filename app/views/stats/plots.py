"""The two curves of the panel."""

# pyqtgraph has no types.
# pyright: basic, reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QWheelEvent
from PySide6.QtWidgets import QWidget

from app.theme import Theme

MOST_BARS = 64
MEAN_OVER = 12
"""Rounds in the moving mean."""


class Plot(pg.PlotWidget):
    """A small plot without controls. Axes start at zero and only ever grow while one answer is shown."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent, background=None)
        self._theme = theme
        self._top = self._right = 0.0
        self._shown = True
        self._count = 0
        self._last = 0.0
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setFrameShape(pg.PlotWidget.Shape.NoFrame)
        self.setMouseEnabled(x=False, y=False)
        self.setMenuEnabled(False)
        self.hideButtons()
        item = self.getPlotItem()
        item.showGrid(x=False, y=True, alpha=0.14)
        for side in ("left", "bottom"):
            item.getAxis(side).setStyle(tickLength=0, tickTextOffset=4, maxTickLevel=0)
        item.layout.setContentsMargins(0, 2, 6, 0)
        self._bars = pg.PlotCurveItem()
        self._line = pg.PlotCurveItem()
        self.addItem(self._bars)
        self.addItem(self._line)
        theme.changed.connect(self.restyle)
        self.restyle()
        self.clear_curves()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """The wheel belongs to the panel."""
        event.ignore()

    def restyle(self) -> None:
        accent, text = self._theme.color("accent"), self._theme.color("text_3")
        soft = QColor(accent)
        soft.setAlpha(56)
        self._bars.setPen(pg.mkPen(None))
        self._bars.setBrush(pg.mkBrush(soft))
        self._line.setPen(pg.mkPen(accent, width=1.75))
        self.setBackground(self._theme.color("panel"))
        scale = max(1.0, self._theme.base / 13)
        self.getPlotItem().getAxis("left").setWidth(26 * scale)
        self.getPlotItem().getAxis("bottom").setHeight(18 * scale)
        for side in ("left", "bottom"):
            axis = self.getPlotItem().getAxis(side)
            axis.setPen(pg.mkPen(self._theme.color("border")))
            axis.setTextPen(pg.mkPen(text))
            axis.setTickFont(self._theme.font(-3, tabular=True))

    def clear_curves(self) -> None:
        self._top = self._right = self._last = 0.0
        self._bars.clear()
        self._line.clear()
        self._show_axes(False)

    def show_rounds(self, tokens: Sequence[int]) -> None:
        """Tokens of each round as bars, their moving mean as a line."""
        if len(tokens) < self._count:
            # Another answer.
            self.clear_curves()
        self._count = len(tokens)
        if not tokens:
            self.clear_curves()
            return
        values = np.asarray(tokens, dtype=float)
        # Thinner bars than these would only flicker.
        width = -(-len(values) // MOST_BARS)
        starts = np.arange(0, len(values), width)
        edges = np.append(starts, len(values))
        heights = np.add.reduceat(values, starts) / np.diff(edges)
        self._bars.setData(edges + 0.5, heights, stepMode="center", fillLevel=0)
        total = np.concatenate(([0.0], np.cumsum(values)))
        last = np.arange(1, len(values) + 1)
        first = np.maximum(0, last - MEAN_OVER)
        self._line.setData(last, (total[last] - total[first]) / (last - first))
        self._range(0.5, max(len(values) + 0.5, 24.5), float(values.max()))

    def show_rate(self, points: Sequence[tuple[float, float]]) -> None:
        """(seconds, tokens per second)."""
        if len(points) < 2 or points[-1][0] < self._last:
            self.clear_curves()
        if len(points) < 2:
            return
        self._last = points[-1][0]
        data = np.asarray(points, dtype=float)
        self._line.setData(data[:, 0], data[:, 1])
        self._range(0.0, max(4.0, float(data[-1, 0])), float(data[:, 1].max()))

    def _show_axes(self, on: bool) -> None:
        """Without a curve the numbers at the axes would mean nothing."""
        if on != self._shown:
            self._shown = on
            for side in ("left", "bottom"):
                self.getPlotItem().getAxis(side).setStyle(showValues=on)

    def _range(self, left: float, right: float, top: float) -> None:
        """Make room for the curve. In steps: new axes cost more than the curve."""
        if top > self._top:
            self._top = 1.15 * top
            self.setYRange(0, self._top, padding=0)
        if right > self._right:
            self._right = right if self._right == 0 else max(1.3 * self._right, right)
            self.setXRange(left, self._right, padding=0)
        self._show_axes(True)
