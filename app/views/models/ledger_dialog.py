"""What loading a model takes, against what there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QDialog, QGridLayout, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.hints import in_window, sentence_of
from app.theme import GRID, Theme
from app.views.labels import Hairline, Label
from app.views.models.meters import DividedBar, Part, Swatch
from app.wording import DASH, count
from engine.cli.units import size
from engine.errors import UserError

if TYPE_CHECKING:
    from app.library_scan import Estimate

AskEstimate = Callable[["Callable[[Estimate | UserError], object]"], Callable[[], object]]
CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
_ROWS = (
    ("weights", "Weights", "accent_fill"),
    ("head", "MTP head", "success"),
    ("cache", "Cache", "warning"),
    ("working", "Working memory", "track"),
)
NOTES = {
    "weights": "Bytes of the model's arrays as they will be in memory, from the headers of its files.",
    "head": "Bytes of the MTP head's arrays.",
    "cache": "Keys, values and convolution states once the context is full, those of earlier turns included.",
    "working": "For a moment while a prompt is read or a file is loaded; estimated.",
}


class LedgerDialog(QDialog):
    """Signal: chosen(context): load with so many tokens.

    Args:
        ask: works the figures out.
        context_for: tokens that the settings ask for, given the most that the model takes.
        left_out: the user wants the model without its head.
    """

    chosen = Signal(int)

    def __init__(
        self,
        theme: Theme,
        name: str,
        *,
        ask: AskEstimate,
        context_for: Callable[[int], int],
        replaces: str = "",
        left_out: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._theme, self._context_for, self._left_out = theme, context_for, left_out
        self.estimate: Estimate | None = None
        self.setWindowTitle(f"Load {name}")
        self.setMinimumWidth(520)
        self.status = Label(theme, "Reading the headers…", self, color="text_2", wrap=True)
        self.context = QComboBox(self)
        self.context.setAccessibleName("Context length")
        self.context.activated.connect(self._chosen_context)
        self.bar = DividedBar(theme, "Memory", self)
        self.figures: dict[str, Label] = {}
        self.free, self.headroom = (self._figure() for _ in range(2))
        self.verdict = Label(theme, "", self, wrap=True)
        self.cancel_button, self.go = QPushButton("Cancel", self), QPushButton("Load", self)
        self._details = QWidget(self)
        self._build(name, replaces)
        self._cancel = ask(self._take)

    def _figure(self, *, weight: int = 400) -> Label:
        label = Label(self._theme, DASH, self, tabular=True, weight=weight)
        label.setAlignment(Qt.AlignmentFlag.AlignRight)
        return label

    def _build(self, name: str, replaces: str) -> None:
        theme = self._theme
        details = QVBoxLayout(self._details)
        details.setContentsMargins(0, 0, 0, 0)
        details.setSpacing(GRID + 4)
        line = QHBoxLayout()
        label = Label(theme, "Context", self._details)
        label.setBuddy(self.context)
        line.addWidget(label)
        line.addWidget(self.context)
        line.addStretch(1)
        details.addLayout(line)
        details.addWidget(self.bar)
        grid = QGridLayout()
        grid.setHorizontalSpacing(GRID + 4)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(1, 1)
        for i, (key, title, color) in enumerate(_ROWS):
            named = Label(theme, title, self._details)
            named.setToolTip(NOTES[key])
            self.figures[key] = self._figure()
            self.figures[key].setToolTip(NOTES[key])
            grid.addWidget(Swatch(theme, color, self._details), i, 0)
            grid.addWidget(named, i, 1)
            grid.addWidget(self.figures[key], i, 2)
        grid.addWidget(Hairline(theme, self._details), 4, 0, 1, 3)
        self.figures["total"] = self._figure(weight=600)
        rows = (("Needed", self.figures["total"]), ("Free memory", self.free), ("Headroom", self.headroom))
        for i, (title, figure) in enumerate(rows, start=5):
            grid.addWidget(Label(theme, title, self._details, weight=600 if i == 5 else 400), i, 1)
            grid.addWidget(figure, i, 2)
        details.addLayout(grid)
        details.addWidget(self.verdict)
        self._details.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(3 * GRID, 2 * GRID, 3 * GRID, 2 * GRID)
        layout.setSpacing(GRID + 4)
        layout.addWidget(Label(theme, f"Load {name}", self, delta=3, weight=600))
        if replaces:
            layout.addWidget(Label(theme, f"{replaces} is unloaded first.", self, color="text_2", wrap=True))
        layout.addWidget(self.status)
        layout.addWidget(self._details)
        layout.addStretch(1)
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(self.cancel_button)
        buttons.addWidget(self.go)
        layout.addLayout(buttons)
        self.cancel_button.setAutoDefault(False)
        self.go.setProperty("primary", True)
        self.go.setDefault(True)
        self.go.setEnabled(False)
        self.cancel_button.clicked.connect(self.reject)
        self.go.clicked.connect(self._accept)

    def _take(self, got: Estimate | UserError) -> None:
        if isinstance(got, UserError):
            self.status.set_text(sentence_of(got))
            self.status.set_color("danger")
            return
        self.estimate = got
        longest = got.footprint.max_context
        wanted = self._context_for(longest)
        for tokens in sorted({*(c for c in CONTEXTS if c < longest), longest, wanted}):
            note = " (the model's own)" if tokens == longest else ""
            self.context.addItem(f"{count(tokens)} tokens{note}", tokens)
        self.context.setCurrentIndex(self.context.findData(wanted))
        self.status.hide()
        self._details.show()
        self.go.setEnabled(True)
        self._show()
        self.go.setFocus()

    def _chosen_context(self, _index: int) -> None:
        self._show()

    @property
    def tokens(self) -> int:
        return int(self.context.currentData())

    def _show(self) -> None:
        estimate = self.estimate
        assert estimate is not None
        seen, context = estimate.footprint, self.tokens
        values = {
            "weights": seen.weights,
            "head": seen.drafter,
            "cache": seen.cache(context),
            "working": seen.working(context),
        }
        for key, value in values.items():
            self.figures[key].set_text(size(value) if value else DASH)
        self.figures["total"].set_text(size(seen.total(context)))
        headroom = estimate.headroom(context)
        self.free.set_text(DASH if estimate.available is None else size(estimate.available))
        self.headroom.set_text(
            DASH if headroom is None else size(headroom) if headroom >= 0 else f"\N{MINUS SIGN}{size(-headroom)}"
        )
        self.bar.show_parts([Part(values[key], color) for key, _, color in _ROWS], estimate.available or 0)
        short = headroom is not None and headroom < 0
        self.headroom.set_color("danger" if short else "success" if headroom is not None else "text")
        self.go.setText("Load anyway" if short else "Load")
        self.verdict.set_text(self._sentence(headroom))
        self.verdict.set_color("danger" if short else "text_2")
        self.verdict.setVisible(bool(self.verdict.text()))
        self.bar.setAccessibleName(f"{size(seen.total(context))} needed, {self.free.text()} free")

    def _sentence(self, headroom: int | None) -> str:
        assert self.estimate is not None
        seen = self.estimate.footprint
        parts: list[str] = []
        if headroom is None:
            parts.append("This system does not tell how much memory is free.")
        elif headroom < 0:
            parts.append(f"{size(-headroom)} are missing. The system may slow down or end programs. {self._cure()}")
        if seen.head_problem:
            parts.append(f"The MTP head is left out: {in_window(seen.head_problem)}")
        elif self._left_out:
            parts.append("The MTP head is left out, as chosen under Models: every token takes a full step.")
        elif not seen.depths:
            parts.append("There is no MTP head, so every token takes a full step.")
        return " ".join(parts)

    def _cure(self) -> str:
        """What helps where memory is missing."""
        estimate = self.estimate
        assert estimate is not None
        offered = [int(self.context.itemData(i)) for i in range(self.context.count())]
        fitting = [tokens for tokens in offered if (estimate.headroom(tokens) or 0) >= 0]
        if fitting:
            return f"{count(max(fitting))} tokens of context fit; closing other programs makes room for more."
        if estimate.machine is not None and estimate.footprint.total(min(offered)) > estimate.machine:
            return "No context is short enough for this machine: choose a smaller checkpoint, or one of fewer bits."
        return "No context is short enough: close other programs, or choose a checkpoint of fewer bits."

    def _accept(self) -> None:
        self.chosen.emit(self.tokens)
        self.accept()

    def done(self, result: int) -> None:
        self._cancel()
        super().done(result)
