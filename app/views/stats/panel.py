"""The statistics of the answer that streams, or of the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.attachments import size_text
from app.controllers.stats import PanelState
from app.theme import GRID, Theme
from app.views.labels import Hairline, Label, Surface
from app.views.scrolling import scrolling
from app.views.stats.bars import PositionBars
from app.wording import DASH, DEFINITIONS, count, drafts_per_round, milliseconds, number, percent, rate, seconds

if TYPE_CHECKING:
    from app.views.stats.plots import Plot

WIDTH = 34 * GRID
PLOT_HEIGHT = 11 * GRID
DRAW_MS = 250


def _frame(parent: QWidget) -> QWidget:
    """The place of a plot."""
    frame = QWidget(parent)
    QVBoxLayout(frame).setContentsMargins(0, 0, 0, 0)
    return frame


class Figure(QWidget):
    """A large number and its unit on one baseline."""

    def __init__(self, theme: Theme, unit: str, definition: str, parent: QWidget, *, delta: int) -> None:
        super().__init__(parent)
        self.setToolTip(definition)
        self._theme, self.unit, self._delta = theme, unit, delta
        self._text = DASH
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.updateGeometry)

    def _font(self) -> QFont:
        return self._theme.font(self._delta, weight=400 if self._text == DASH else 600, tabular=True)

    def sizeHint(self) -> QSize:
        return QSize(200, round(1.15 * QFontMetrics(self._font()).ascent()))

    def set(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self.update()
        self.setAccessibleName(f"{text} {self.unit}")

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        font = self._font()
        metrics = QFontMetrics(font)
        baseline = metrics.ascent()
        painter.setFont(font)
        painter.setPen(self._theme.color("text_3" if self._text == DASH else "text"))
        painter.drawText(0, baseline, self._text)
        painter.setFont(self._theme.font(-1))
        painter.setPen(self._theme.color("text_2"))
        painter.drawText(metrics.horizontalAdvance(self._text) + 6, baseline, self.unit)


class Rows(QWidget):
    """Names at the left, figures at the right."""

    def __init__(self, theme: Theme, names: dict[str, str], parent: QWidget) -> None:
        super().__init__(parent)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(0, 1)
        self.names = names
        self._labels: dict[str, Label] = {}
        self._values: dict[str, Label] = {}
        for i, (key, name) in enumerate(names.items()):
            left = Label(theme, name, self, color="text_2", delta=-1)
            right = Label(theme, DASH, self, delta=-1, tabular=True)
            right.setAlignment(Qt.AlignmentFlag.AlignRight)
            for label in (left, right):
                label.setToolTip(DEFINITIONS[key])
            grid.addWidget(left, i, 0)
            grid.addWidget(right, i, 1)
            self._labels[key], self._values[key] = left, right

    def set(self, key: str, text: str) -> None:
        self._values[key].set_text(text)
        self._values[key].setAccessibleName(f"{self.names[key]}: {text}")

    def show_row(self, key: str, *, shown: bool) -> None:
        self._labels[key].setVisible(shown)
        self._values[key].setVisible(shown)


class StatsPanel(Surface):
    """Shows a `PanelState`. Figures that nothing was measured for are dashes; nothing changes its width."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "panel", parent)
        self._theme = theme
        self.setAccessibleName("Statistics")
        content = Surface(theme, "panel")
        body = QVBoxLayout(content)
        body.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        body.setSpacing(GRID)
        self.length = Figure(theme, "tokens / round", DEFINITIONS["acceptance_length"], content, delta=19)
        self._plots: tuple[Plot, Plot] | None = None
        self._frames = tuple(_frame(content) for _ in range(2))
        theme.changed.connect(self._fit)
        self._fit()
        self.rate = Figure(theme, "tok/s", DEFINITIONS["decode_tps"], content, delta=11)
        self.verdict = Label(theme, "", content, weight=600, wrap=True)
        self.verdict.setToolTip(DEFINITIONS["break_even"])
        self.break_even = Label(theme, "", content, color="text_2", delta=-1, wrap=True)
        self.accepted = Figure(theme, "of the drafts accepted", DEFINITIONS["acceptance_rate"], content, delta=3)
        self.bars = PositionBars(theme, content)
        self.bars.setToolTip(DEFINITIONS["per_position"])
        names = {
            "ms_per_round": "Per round",
            "ms_per_plain_step": "Per plain step",
            "plain_steps": "Rounds, plain steps",
            "depth": "Drafts per round",
            "ttft_s": "Time to first token",
            "prefill_tps": "Prefill",
            "memory": "Memory",
            "context": "Context",
        }
        self.rows = Rows(theme, names, content)
        self.truth = Label(theme, "", content, color="text_3", delta=-2, wrap=True)
        groups: tuple[tuple[QWidget, ...], ...] = (
            (self.length, self._frames[0]),
            (self.rate, self._frames[1]),
            (self.verdict, self.break_even),
            (self.accepted, self.bars),
            (self.rows,),
            (self.truth,),
        )
        lines: list[QWidget] = []
        for i, group in enumerate(groups):
            if i:
                lines.append(Hairline(theme, content))
                body.addWidget(lines[-1])
            for widget in group:
                body.addWidget(widget)
        self._of_drafts = (*groups[0], lines[0], *groups[3], lines[3])
        """What a model without a head has no figures for."""
        body.addStretch(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(Hairline(theme, self, vertical=True))
        layout.addWidget(scrolling(content, self))
        self._depths = 4
        self._state = PanelState()
        self._drawing = QTimer(self)
        self._drawing.setSingleShot(True)
        self._drawing.setInterval(DRAW_MS)
        self._drawing.timeout.connect(self._draw)
        self.show_state(PanelState())

    def _fit(self) -> None:
        """As wide as its figures, and as high as the numbers beside its curves need in the size of type that is set."""
        scale = max(1.0, self._theme.base / 13)
        self.setFixedWidth(round(WIDTH * scale))
        for frame in self._frames:
            frame.setFixedHeight(round(PLOT_HEIGHT * scale))

    def set_depths(self, depths: int) -> None:
        """Positions that the loaded head has, 0 without one."""
        if depths != self._depths:
            self._depths = depths
            self.show_state(self._state)

    def show_state(self, state: PanelState) -> None:
        """Figures and curves of `state`."""
        stats = state.stats
        self._show_parts(drafts=self._depths > 0 or bool(stats and stats.rounds))
        self.length.set(number(stats.acceptance_length if stats else None))
        self.rate.set(rate(state.rate))
        self.accepted.set(percent(stats.acceptance_rate if stats else None))
        self.bars.show_shares(stats.per_position if stats else None, self._depths)
        self._show_verdict(state)
        rows = self.rows
        rows.set("ms_per_round", milliseconds(stats.ms_per_round if stats else None))
        rows.set("ms_per_plain_step", milliseconds(state.ms_per_plain_step))
        rows.set("plain_steps", DASH if stats is None else f"{count(stats.rounds)}, {count(stats.plain_steps)}")
        mean = number(drafts_per_round(stats), 1)
        rows.set("depth", mean if state.depth is None else f"{mean}, now {state.depth}")
        rows.set("ttft_s", seconds(stats.ttft_s if stats else None))
        prefill = f"{rate(stats.prefill_tps)} tok/s" if stats and stats.prefill_tps is not None else DASH
        if state.prefill is not None:
            prefill = f"{count(state.prefill[0])} of {count(state.prefill[1])}"
        rows.set("prefill_tps", prefill)
        rows.set("memory", DASH if state.memory is None else size_text(state.memory))
        used = DASH if state.context_used is None else count(state.context_used)
        rows.set("context", used if state.context is None else f"{used} of {count(state.context)}")
        self.truth.set_text(state.truth)
        self.truth.set_color("warning" if state.differs else "text_3")
        self._state = state
        if not state.running:
            self._draw()
        elif not self._drawing.isActive():
            self._drawing.start()

    def _show_parts(self, *, drafts: bool) -> None:
        """A model without a head has no bars to fill; answers that were drafted earlier keep their figures."""
        for widget in self._of_drafts:
            widget.setVisible(drafts)
        for key in ("ms_per_round", "depth"):
            self.rows.show_row(key, shown=drafts)

    def _draw(self) -> None:
        """The curves: less often than the figures, since they cost more to paint."""
        self._drawing.stop()
        if self._plots is not None and not self.isHidden():
            self._plots[0].show_rounds(self._state.round_tokens)
            self._plots[1].show_rate(self._state.rates)

    def show_plots(self) -> None:
        """Make the plots. Apart from the rest, since importing what draws them takes half a second."""
        if self._plots is None:
            from app.views.stats.plots import Plot  # noqa: PLC0415

            names = ("Tokens per round over rounds", "Tokens per second over time")
            self._plots = (Plot(self._theme, names[0], self._frames[0]), Plot(self._theme, names[1], self._frames[1]))
            for frame, plot in zip(self._frames, self._plots, strict=True):
                layout = frame.layout()
                assert layout is not None
                layout.addWidget(plot)

    def _show_verdict(self, state: PanelState) -> None:
        stats = state.stats
        text, below = state.verdict, ""
        if not text:
            if stats is None or not (stats.rounds or stats.plain_steps):
                text = "No rounds yet" if self._depths else "Nothing measured yet"
                below = "Figures appear here while an answer streams."
            elif stats.acceptance_length is None:
                text = "Plain decoding"
                below = "Turn MTP on to compare." if self._depths else "The model has no MTP head."
            else:
                text = "Break-even not measured yet"
                below = "Turn MTP off for a few tokens, or replay the answer the other way."
        head, _, tail = text.partition(": ")
        if tail:
            text, below = tail[0].upper() + tail[1:], head
        self.verdict.set_text(text)
        self.break_even.set_text(below)
        slower = "slower" in text
        self.verdict.set_color("warning" if slower else "success" if "faster" in text else "text")
