"""An answer and its replay with the drafter the other way, side by side."""

from __future__ import annotations

from PySide6.QtCore import QTimer
from PySide6.QtGui import QCloseEvent, QResizeEvent
from PySide6.QtWidgets import QDialog, QFrame, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.controllers.replay import Replay
from app.store.figures import draft_from_json, stats_from_json
from app.store.records import Message
from app.theme import GRID, Theme
from app.views.chat.message import display_source
from app.views.chat.pacer import FRAME_MS
from app.views.chat.text_body import TextBody
from app.views.labels import Hairline, Label, Surface
from app.wording import footer, truth


class _Sheet(Surface):
    """A text body as wide as its scroll area."""

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__(theme, "window")
        self.body = TextBody(theme, name, self)
        self.body.height_changed.connect(self._fit)

    def _fit(self) -> None:
        width = max(80, self.width() - 2 * GRID)
        height = self.body.height_for(width)
        self.body.setGeometry(0, GRID, width, height)
        self.setMinimumHeight(height + 2 * GRID)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()


class Column(QWidget):
    """One side."""

    def __init__(self, theme: Theme, title: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._sheet = _Sheet(theme, title)
        self.body = self._sheet.body
        self.figures = Label(theme, "", self, color="text_2", delta=-1, tabular=True)
        self.truth = Label(theme, "", self, color="text_3", delta=-2, wrap=True)
        scroll = QScrollArea(self)
        scroll.setWidget(self._sheet)
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(GRID // 2)
        layout.addWidget(Label(theme, title, self, weight=600, delta=1))
        layout.addWidget(self.figures)
        layout.addWidget(self.truth)
        layout.addWidget(scroll, 1)

    def show_message(self, message: Message) -> None:
        stats = stats_from_json(message.stats)
        self.figures.set_text(footer(stats) or "…")
        self.truth.set_text(truth(draft_from_json(message.draft), stats)[0])


class ReplayDialog(QDialog):
    """Starts the replay when shown and cancels it when closed."""

    def __init__(self, theme: Theme, replay: Replay, parent: QWidget | None) -> None:
        super().__init__(parent)
        self._replay = replay
        self.setWindowTitle("The other way")
        self.resize(1040, 640)
        off, on = "MTP off", "MTP on"
        first, second = (off, on) if replay.drafting else (on, off)
        self.left = Column(theme, f"{first}: the answer in the chat", self)
        self.right = Column(theme, f"{second}: replayed", self)
        self.difference = Label(theme, "Comparing…", self, weight=600, wrap=True)
        self.note = Label(theme, "", self, color="text_2", wrap=True)
        close = QPushButton("Close", self)
        close.setDefault(True)
        close.clicked.connect(self.close)
        columns = QHBoxLayout()
        columns.setSpacing(2 * GRID)
        columns.addWidget(self.left, 1)
        columns.addWidget(Hairline(theme, self, vertical=True))
        columns.addWidget(self.right, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(3 * GRID, 2 * GRID, 3 * GRID, 2 * GRID)
        layout.setSpacing(GRID)
        layout.addWidget(Label(theme, "The same turn, the other way", self, delta=5, weight=600))
        layout.addWidget(self.difference)
        layout.addWidget(self.note)
        layout.addSpacing(GRID)
        layout.addLayout(columns, 1)
        line = QHBoxLayout()
        line.addStretch(1)
        line.addWidget(close)
        layout.addLayout(line)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self._flush)
        self.left.body.set_source(display_source(replay.answer))
        self.left.show_message(replay.answer)
        greedy = replay.answer.options.get("sampling", {}).get("temperature") == 0
        self.note.set_text(
            "At temperature 0 both must say the same."
            if greedy
            else "With sampling both draw from the same distribution, but the draws fall differently, so the text may "
            "differ. At temperature 0 it must not."
        )
        replay.streamed.connect(self._streamed)
        replay.finished.connect(self._finished)
        replay.start()

    def _streamed(self, message: Message, pieces: object) -> None:
        if isinstance(pieces, list):
            for channel, text in pieces:  # pyright: ignore[reportUnknownVariableType]
                if channel == "text":
                    self.right.body.append(text)  # pyright: ignore[reportUnknownArgumentType]
        if not self._timer.isActive():
            self._timer.start()

    def _flush(self) -> None:
        self.right.body.flush()
        live = self._replay.live
        if live.stats is not None:
            self.right.figures.set_text(footer(live.stats))
        self._show_difference(done=False)

    def _finished(self, message: Message) -> None:
        self._timer.stop()
        if message.state == "failed":
            self.difference.set_text((message.error or "").replace("\n", " "))
            self.difference.set_color("danger")
            return
        self.right.body.show_source(display_source(message), final=True)
        self.right.show_message(message)
        self._show_difference(done=message.state == "done")

    def _show_difference(self, *, done: bool) -> None:
        found = self._replay.difference()
        count = len(self._replay.live.token_ids)
        if found.index is None:
            text = f"Equal, all {count} tokens." if done else f"Equal so far: {count} tokens."
        else:
            text = f"They differ first at token {found.index + 1}: “{found.first}” against “{found.second}”."
        self.difference.set_text(text)
        self.difference.set_color("text" if found.index is not None else "success")

    def closeEvent(self, event: QCloseEvent) -> None:
        self._replay.cancel()
        super().closeEvent(event)
