"""What a download would fetch and whether it fits, before anything is fetched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QDialog,
    QFileDialog,
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QPushButton,
    QRadioButton,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app.hints import in_window
from app.model_rows import TITLES, Action, cure_of
from app.theme import GRID, Theme
from app.views.controls import TextButton
from app.views.labels import Label, tip_of
from app.views.models.meters import DividedBar, Part
from app.wording import count, plural
from engine.cli.units import size
from engine.errors import UserError
from engine.hub.catalog import CONTEXT, find_entry

if TYPE_CHECKING:
    from engine.hub.plan import Plan
    from engine.hub.select import Kind

KINDS: tuple[tuple[Kind, str, str], ...] = (
    ("whole", "Whole checkpoint", "Everything that a loader may read."),
    ("text", "Text only", "Without the files of the vision and audio encoders, which a chat has no use for."),
    ("head", "MTP head only", "The head and its config, for a checkpoint that has none."),
)
NOTHING_TO_LOAD = (
    "Type the name of another checkpoint, one with config.json and .safetensors files, or take one of the catalog."
)
"""What to do about a repository without a model."""
LOW, HIGH = 260, 600
"""Height of the dialog without and with the list of files."""
AskPlan = Callable[["str", "Kind", Path, "Callable[[Plan | UserError], object]"], Callable[[], object]]
"""(owner/name, kind, folder, what takes the plan) to what cancels."""


class PlanDialog(QDialog):
    """Signals: accepted_plan(Plan), wanted(action) for a cure that is elsewhere.

    Args:
        ask: makes the plans.
        folder_of: the folder that a repository goes to, until another one is chosen.
        memory: bytes of this machine.
        editable: the repository can be typed here.
    """

    accepted_plan = Signal(object)
    wanted = Signal(str)

    def __init__(
        self,
        theme: Theme,
        repo: str,
        kind: Kind,
        *,
        ask: AskPlan,
        folder_of: Callable[[str], Path],
        memory: int | None = None,
        editable: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._theme, self._ask, self._folder_of, self._memory = theme, ask, folder_of, memory
        self._kind: Kind = kind
        self._folder: Path | None = None
        self._cancel: Callable[[], object] = lambda: None
        self._asked = 0
        self._error_action: Action | None = None
        self.plan: Plan | None = None
        self.setWindowTitle("Download")
        self.resize(720, LOW)
        self.title = Label(theme, _title(repo), self, delta=3, weight=600)
        self.repo = QLineEdit(repo, self)
        self.repo.setPlaceholderText("owner/name of a checkpoint that has the head")
        self.repo.setAccessibleName("Checkpoint, as owner/name")
        self.repo.setVisible(editable)
        self.repo.returnPressed.connect(self.ask)
        self.kinds = QButtonGroup(self)
        self.status = Label(theme, "", self, color="text_2", wrap=True)
        self.error_button = QPushButton("Try again", self)
        self.target = Label(theme, "", self, color="text_2", delta=-1, wrap=True)
        self.change = TextButton(theme, "Change…", "Choose another folder", self, color="accent", delta=-1, link=True)
        self.space = DividedBar(theme, "Space on the volume", self)
        self.space_text = Label(theme, "", self, color="text_2", delta=-1, wrap=True, tabular=True)
        self.notes = Label(theme, "", self, color="text_2", delta=-1, wrap=True)
        self.files = QTreeWidget(self)
        self.promise = Label(theme, "Nothing is fetched before you say so.", self, color="text_3", delta=-1)
        self.cancel_button, self.go = QPushButton("Cancel", self), QPushButton("Download", self)
        self._build()
        if repo:
            self.ask()
        else:
            self._show_nothing("Type the checkpoint and press Return to see what would be fetched.")

    def _build(self) -> None:
        self.files.setColumnCount(3)
        self.files.setHeaderLabels(["File", "Size", ""])
        self.files.setRootIsDecorated(False)
        self.files.setUniformRowHeights(True)
        self.files.setAccessibleName("Files")
        self.files.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.files.headerItem().setTextAlignment(1, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        header = self.files.header()
        header.setStretchLastSection(False)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        for section in (1, 2):
            header.setSectionResizeMode(section, QHeaderView.ResizeMode.ResizeToContents)
        self.go.setProperty("primary", True)
        self.go.setDefault(True)
        for button in (self.cancel_button, self.error_button):
            button.setAutoDefault(False)
        self.cancel_button.clicked.connect(self.reject)
        self.go.clicked.connect(self._accept)
        self.change.clicked.connect(self._change_folder)
        self.error_button.clicked.connect(self._mend)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(3 * GRID, 2 * GRID, 3 * GRID, 2 * GRID)
        layout.setSpacing(GRID)
        layout.addWidget(self.title)
        layout.addWidget(self.repo)
        kinds = QHBoxLayout()
        kinds.setSpacing(2 * GRID)
        for kind, title, note in KINDS:
            button = QRadioButton(title, self)
            button.setToolTip(note)
            button.setAccessibleDescription(note)
            button.setChecked(kind == self._kind)
            button.toggled.connect(self._kind_chooser(kind))
            self.kinds.addButton(button)
            kinds.addWidget(button)
        kinds.addStretch(1)
        layout.addLayout(kinds)
        layout.addSpacing(GRID // 2)
        line = QHBoxLayout()
        line.addWidget(self.status, 1)
        line.addWidget(self.error_button, 0, Qt.AlignmentFlag.AlignTop)
        layout.addLayout(line)
        where = QHBoxLayout()
        where.addWidget(self.target, 1)
        where.addWidget(self.change, 0, Qt.AlignmentFlag.AlignTop)
        layout.addLayout(where)
        layout.addWidget(self.space)
        layout.addWidget(self.space_text)
        layout.addWidget(self.notes)
        layout.addWidget(self.files, 100)
        layout.addStretch(1)
        buttons = QHBoxLayout()
        buttons.addWidget(self.promise)
        buttons.addStretch(1)
        buttons.addWidget(self.cancel_button)
        buttons.addWidget(self.go)
        layout.addLayout(buttons)

    # -- asking -------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask what would be fetched; an answer to an earlier question is not shown any more."""
        from engine.hub.names import parse_repo  # noqa: PLC0415 (imports the hub's client)

        self._cancel()
        try:
            repo, _ = parse_repo(self.repo.text())
        except UserError as error:
            self._show_error(error)
            return
        self._asked += 1
        number = self._asked
        self._show_nothing("Asking the hub…")
        folder = self._folder or self._folder_of(repo)
        self._cancel = self._ask(self.repo.text().strip(), self._kind, folder, lambda got: self._take(number, got))

    def _take(self, number: int, got: Plan | UserError) -> None:
        if number != self._asked:
            return
        if isinstance(got, UserError):
            self._show_error(got)
        else:
            self.show_plan(got)

    @property
    def repo_name(self) -> str:
        """owner/name of what was typed or pasted; as it stands where it is neither that nor an address."""
        return _parsed(self.repo.text())[0]

    def _kind_chooser(self, kind: Kind) -> Callable[[bool], None]:
        def choose(on: bool) -> None:
            if on:
                self._kind = kind
                if self.repo.text().strip():
                    self.ask()

        return choose

    def _change_folder(self) -> None:
        start = self.plan.target.parent if self.plan is not None else Path.home()
        chosen = QFileDialog.getExistingDirectory(self, "Folder for this download", str(start))
        if chosen:
            # A folder of its own: what else lies in the chosen one stays apart.
            self._folder = Path(chosen) / self.repo_name.rpartition("/")[2]
            self.ask()

    # -- showing ------------------------------------------------------------------------------

    def _show_nothing(self, status: str) -> None:
        self.plan = None
        self.status.set_text(status)
        self.status.set_color("text_2")
        self.error_button.hide()
        for widget in (self.target, self.change, self.space, self.space_text, self.notes):
            widget.setVisible(False)
        self.files.clear()
        self.files.hide()
        self._offer("Download", enabled=False)

    def _show_error(self, error: UserError) -> None:
        note = cure_of(getattr(error, "reason", None), error.title, error.hint)
        self._show_nothing(note.text)
        self.status.set_color("danger")
        action = note.action if note.action in ("settings", "web-page") else None
        self._error_action = action
        self.error_button.setText("Try again" if action is None else TITLES[action])
        self.error_button.show()

    def show_plan(self, plan: Plan) -> None:
        self.plan = plan
        self.title.set_text(f"Download {plan.request.repo}")
        self.error_button.hide()
        self.status.set_text(_status(plan))
        self.status.set_color("text")
        self.target.set_text(f"{'To' if plan.remaining else 'In'} {plan.target}")
        after = plan.free - plan.remaining
        self.space.show_parts([Part(plan.remaining, "accent_fill"), Part(plan.reserve, "track")], plan.free)
        text = f"{size(plan.free)} free on that volume, {size(max(0, after))} afterwards; "
        self.space_text.set_text(f"{text}{size(plan.reserve)} are always left free.")
        self.space_text.set_color("text_2")
        if not plan.fits:
            short = plan.remaining + plan.reserve - plan.free
            self.space_text.set_text(
                f"{size(plan.free)} free on that volume, {size(plan.remaining)} and {size(plan.reserve)} in reserve "
                f"needed: {size(short)} are missing. Free some space, or change the folder to another volume."
            )
            self.space_text.set_color("danger")
        notes = [note for note in plan.notes if note != plan.unusable]
        if plan.unusable is None:
            notes += self._memory_note(plan)
        else:
            self.status.set_text(f"{in_window(plan.unusable) or plan.unusable} {NOTHING_TO_LOAD}")
            self.status.set_color("danger")
        self.notes.set_text("\n".join(notes))
        for widget in (self.target, self.change):
            widget.setVisible(True)
        for widget in (self.space, self.space_text):
            widget.setVisible(plan.remaining > 0)
        self.notes.setVisible(bool(self.notes.text()))
        self._show_files(plan)
        usable = plan.fits and bool(plan.files) and plan.unusable is None
        if plan.complete and usable:
            self._offer("Close", nothing=True)
        elif plan.remaining == 0 and usable:
            self._offer("Verify")
        else:
            self._offer("Continue" if plan.have else "Download", enabled=usable)
        if self.go.isEnabled() and self.repo.isHidden():
            self.go.setFocus()

    def _offer(self, text: str, *, enabled: bool = True, nothing: bool = False) -> None:
        """What the main button says; `nothing` where there is nothing to do but to close."""
        self.go.setText(text)
        self.go.setEnabled(enabled)
        self.cancel_button.setVisible(not nothing)
        self.promise.setVisible(text in ("Download", "Continue"))

    def _memory_note(self, plan: Plan) -> list[str]:
        entry = find_entry(plan.request.repo)
        if entry is None or plan.request.kind == "head":
            return []
        note = f"It runs with about {size(entry.memory)} of memory at {count(CONTEXT)} tokens of context"
        if self._memory is None:
            return [f"{note}."]
        return [f"{note}; this machine has {size(self._memory)}."]

    def _show_files(self, plan: Plan) -> None:
        self.files.clear()
        self.files.show()
        self.resize(self.width(), max(self.height(), HIGH))
        words = {"there": "there", "unchecked": "there, to be verified", "absent": ""}
        rows = [
            (f.path, size(f.size), words.get(f.presence, f"{size(f.have)} are there"), True)
            for f in sorted(plan.files, key=lambda f: -f.size)
        ]
        rows += [(f.path, size(f.size), f"left out: {f.why}", False) for f in plan.skipped]
        for path, figure, state, wanted in rows:
            item = QTreeWidgetItem([path, figure, state])
            item.setTextAlignment(1, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            item.setToolTip(0, tip_of(path))
            item.setDisabled(not wanted)
            self.files.addTopLevelItem(item)

    # -- ending -------------------------------------------------------------------------------

    def _mend(self) -> None:
        if self._error_action is None:
            self.ask()
        else:
            self.wanted.emit(self._error_action)

    def _accept(self) -> None:
        if self.plan is None or not self.go.isEnabled():
            return
        if not self.plan.complete:
            self.accepted_plan.emit(self.plan)
        self.accept()

    def done(self, result: int) -> None:
        self._asked += 1
        self._cancel()
        super().done(result)


def _status(plan: Plan) -> str:
    """What is to be fetched, what is there, of which version."""
    files = plural(len(plan.files), "file")
    if plan.complete:
        parts = [f"Everything is here: {size(plan.total)}", files]
    elif plan.files and plan.remaining == 0:
        parts = [f"Everything is here, {plural(plan.unverified, 'file')} still to be verified", size(plan.total), files]
    else:
        parts = [f"{size(plan.remaining)} to fetch"]
        parts += [f"{size(plan.have)} of {size(plan.total)} are there already"] if plan.have else []
        parts.append(files)
    return "  ·  ".join([*parts, f"commit {plan.commit[:8]}"])


def _parsed(text: str) -> tuple[str, str | None]:
    """owner/name and the revision that an address names."""
    from engine.hub.names import parse_repo  # noqa: PLC0415 (imports the hub's client)

    try:
        return parse_repo(text)
    except UserError:
        return text.strip(), None


def _title(repo: str) -> str:
    if not repo:
        return "Add an MTP head"
    name, revision = _parsed(repo)
    return f"Download {name}{f' at {revision}' if revision else ''}"
