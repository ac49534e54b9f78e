"""Connects the models page, its dialogs, the sidebar's bar and the toolbar's picker to their controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QMenu

from app.controllers.models import ModelsController
from app.engine_host import LoadRequest
from app.hints import sentence_of
from app.library_scan import Estimate
from app.model_rows import Action, Note, Row, overall
from app.theme import Theme
from app.views.controls import TextButton
from app.views.main_window import MainWindow
from app.views.menus import slot
from app.views.models.confirm import Confirm
from app.views.models.download_bar import DownloadBar
from app.views.models.ledger_dialog import LedgerDialog
from app.views.models.page import ModelsPage
from app.views.models.plan_dialog import PlanDialog
from app.views.toolbar import ModelChoice
from engine.cli.units import size
from engine.errors import UserError
from engine.hub.catalog import find_entry

if TYPE_CHECKING:
    from engine.hub.plan import Plan
    from engine.hub.select import Kind

HUB = "https://huggingface.co"
OpenUrl = Callable[[QUrl], object]


class ModelManager:
    """Puts the page into the window's stack and the ways to it into sidebar and toolbar.

    Args:
        open_url: shows a folder or a web page.
    """

    def __init__(
        self,
        theme: Theme,
        window: MainWindow,
        models: ModelsController,
        *,
        endpoint: Callable[[], str | None],
        open_url: OpenUrl = QDesktopServices.openUrl,
    ) -> None:
        self._theme, self._window, self._models = theme, window, models
        self._endpoint, self._open_url = endpoint, open_url
        self._first: LoadRequest | None = None
        self.page = ModelsPage(theme, window)
        self.bar = DownloadBar(theme, window.sidebar)
        self._place()
        self._connect()

    def _place(self) -> None:
        window = self._window
        window.stack.addWidget(self.page)
        button = TextButton(self._theme, "Models", "Models", window.sidebar, icon="models")
        button.clicked.connect(self.show_page)
        window.sidebar.footer.insertWidget(0, self.bar)
        window.sidebar.footer.insertWidget(2, button)

    def _connect(self) -> None:
        models, page, window = self._models, self.page, self._window
        models.listed.connect(self._listed)
        models.told.connect(page.say)
        models.trouble.connect(self._trouble)
        models.folder_changed.connect(self._folder)
        page.chosen.connect(self.act)
        page.typed.connect(self._typed)
        page.choose_folder.connect(self.choose_folder)
        page.look_again.connect(models.refresh)
        page.back.connect(lambda: window.stack.setCurrentWidget(window.page))
        self.bar.clicked.connect(self.show_page)
        window.toolbar.add_head.connect(self._add_head_of_loaded)
        window.models_wanted.connect(self.show_page)
        window.models_folder_wanted.connect(self.show_page)
        window.models_folder_wanted.connect(self.choose_folder)
        window.toolbar.model.connect(self.pick)
        window.toolbar.manage.connect(self.show_page)

    # -- what is shown ------------------------------------------------------------------------

    def show_page(self) -> None:
        self._window.stack.setCurrentWidget(self.page)
        self._models.refresh()
        self.page.field.setFocus()

    def offer(self, first: LoadRequest) -> None:
        """What is loaded at the start: in the picker before the library was looked into."""
        self._first = first
        self._window.model.show_models([ModelChoice(str(first.directory), first.name)], str(first.directory))

    def _listed(self, rows: list[Row]) -> None:
        self.page.show_rows(rows)
        self.bar.show_overall(overall(row.progress for row in rows if row.progress is not None))
        loaded = next((row for row in rows if row.state.startswith("Loaded")), None)
        self._window.toolbar.offer_head(_offer_of(loaded))
        choices = [ModelChoice(r.key, r.title) for r in rows if r.main == "load" or r.state.startswith("Load")]
        first = self._first
        if first is not None and all(choice.key != str(first.directory) for choice in choices):
            choices.append(ModelChoice(str(first.directory), first.name))
        current = next((r.key for r in rows if r.state.startswith("Load")), "")
        self._window.model.show_models(choices, current)

    def _trouble(self, error: UserError) -> None:
        self.page.say(sentence_of(error), error=True)

    def _folder(self, folder: Path, free: int | None) -> None:
        self.page.show_folder(folder, free)

    # -- actions ------------------------------------------------------------------------------

    def act(self, key: str, action: Action) -> None:
        """Do what a button or menu of a row asks for."""
        models, row = self._models, self._models.row(key)
        if row is None:
            return
        acts: Mapping[Action, Callable[[], object]] = {
            "download": lambda: self.plan(row.repo or key),
            "repair": lambda: self._plan_again(row),
            "resume": lambda: models.downloads.resume(key) if row.progress else self._plan_again(row),
            "pause": lambda: models.downloads.pause(key),
            "cancel": lambda: models.downloads.cancel(key, delete=False),
            "discard": lambda: self._discard(row),
            "load": lambda: self.load(key),
            "unload": models.unload,
            "add-head": lambda: self.plan(row.head_repo or "", "head", editable=row.head_repo is None),
            "pair": lambda: self._pair(row),
            "use-head": lambda: models.pair(key, None),
            "verify": lambda: models.upkeep.verify(key),
            "delete": lambda: self._delete(row),
            "forget": lambda: models.upkeep.forget(key),
            "show": lambda: self._open_url(QUrl.fromLocalFile(key)),
            "look-again": models.refresh,
            "settings": self._show_settings,
            "web-page": lambda: self._open_url(QUrl(f"{self._endpoint() or HUB}/{row.repo or key}")),
            "folder": self.choose_folder,
        }
        acts[action]()

    def _typed(self, text: str) -> None:
        from engine.hub.names import parse_repo  # noqa: PLC0415 (imports the hub's client)

        try:
            repo, _ = parse_repo(text)
        except UserError as error:
            self.page.refuse(sentence_of(error))
            return
        # The address may name a revision, so it goes on as it was typed.
        self.plan(text if "/tree/" in text else repo)

    def plan(
        self, repo: str, kind: Kind = "whole", *, folder: Path | None = None, editable: bool = False
    ) -> PlanDialog | None:
        """Open the dialog that says what a download would fetch; None until the library is open."""
        models = self._models
        if models.target_of("") is None:
            self.page.say("The library is still being opened. Try again in a moment.")
            return None
        dialog = PlanDialog(
            self._theme,
            repo,
            kind,
            ask=models.downloads.plan,
            folder_of=lambda name: folder or models.target_of(name) or Path(name),
            memory=models.memory,
            editable=editable,
            parent=self._window,
        )
        dialog.accepted_plan.connect(self._start)
        dialog.wanted.connect(partial(self._cure, dialog))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def _start(self, plan: Plan) -> None:
        self._models.note(str(plan.target), None)
        self._models.downloads.start(plan)
        self._window.stack.setCurrentWidget(self.page)
        self.page.field.clear()

    def _cure(self, dialog: PlanDialog, action: str) -> None:
        if action == "settings":
            self._show_settings()
            dialog.ask()
        elif action == "web-page":
            self._open_url(QUrl(f"{self._endpoint() or HUB}/{dialog.repo_name}"))

    def _plan_again(self, row: Row) -> None:
        """What a model lacks goes into the folder where the rest of it is."""
        if row.repo is not None:
            self.plan(row.repo, "head" if row.section == "MTP heads" else "whole", folder=Path(row.key))

    def _add_head_of_loaded(self) -> None:
        row = next((row for row in self._models.rows if row.state.startswith("Loaded")), None)
        if row is not None:
            self.act(row.key, row.head_action)

    def load(self, key: str) -> LedgerDialog:
        """Show what loading takes; it is loaded from there."""
        models, row = self._models, self._models.row(key)
        loaded = next((r for r in models.rows if r.state.startswith("Loaded")), None)
        dialog = LedgerDialog(
            self._theme,
            row.title if row else Path(key).name,
            ask=lambda done: models.estimate(key, done),
            context_for=models.context_for,
            replaces=loaded.title if loaded is not None else "",
            left_out=models.leaves_out(key),
            parent=self._window,
        )
        dialog.chosen.connect(partial(models.load, key))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def pick(self, key: str) -> None:
        """The toolbar's picker: loads at once what fits, and asks about what does not."""
        models, first = self._models, self._first
        if models.model(key) is None and first is not None:
            models.reload(first)
            return

        def decide(got: Estimate | UserError) -> None:
            if isinstance(got, UserError):
                models.note(key, Note(sentence_of(got)))
                self.show_page()
                return
            context = models.context_for(got.footprint.max_context)
            headroom = got.headroom(context)
            if headroom is None or headroom >= 0:
                models.load(key, context)
            else:
                self.load(key)

        models.estimate(key, decide)

    def _pair(self, row: Row) -> None:
        menu = self.head_menu(row.key)
        view = self.page.views[row.key]
        menu.exec(view.more.mapToGlobal(QPoint(view.more.width() - menu.sizeHint().width(), view.more.height() + 2)))
        menu.deleteLater()

    def head_menu(self, key: str) -> QMenu:
        """The heads that a model could be used with."""
        menu, models = QMenu(self.page), self._models
        chosen, none = models.paired_with(key), models.leaves_out(key)

        def item(text: str, act: Callable[[], object], *, checked: bool) -> None:
            action = menu.addAction(text)
            action.setCheckable(True)
            action.setChecked(checked)
            if checked:
                action.setIcon(self._theme.icon("check", "accent"))
            action.triggered.connect(slot(act))

        automatic = chosen is None and not none
        item("Automatic: its own, or one that fits", lambda: models.pair(key, None), checked=automatic)
        item("No MTP head", lambda: models.leave_head_out(key), checked=none)
        menu.addSeparator()
        for head in models.heads_for(key):
            item(head.name, lambda head=head: models.pair(key, str(head.path)), checked=head.path == chosen)
        menu.addAction("Download a head…").triggered.connect(slot(lambda: self.act(key, "add-head")))
        return menu

    def _delete(self, row: Row) -> None:
        text = f"{row.size} in {row.key} are deleted. Files that Inkstand did not put there stay."
        answers = (("Delete", lambda: self._models.upkeep.delete(row.key)),)
        Confirm(self._theme, f"Delete {row.title}?", text, answers, self._window).open()

    def _discard(self, row: Row) -> None:
        done = size(row.progress.done) if row.progress else "What was fetched"
        text = f"{done} are deleted. What was in the folder before stays."
        answers = (("Delete", lambda: self._models.downloads.cancel(row.key, delete=True)),)
        Confirm(self._theme, f"Cancel the download of {row.title}?", text, answers, self._window).open()

    def _show_settings(self) -> None:
        """Where the access token is."""
        self._window.show_settings("Downloads")

    def choose_folder(self) -> None:
        """Ask for the folder that downloads go to, and whether the models move there."""
        start = self._models.target_of("") or Path.home()
        chosen = QFileDialog.getExistingDirectory(self._window, "Folder for downloads", str(start))
        if chosen:
            self.use_folder(Path(chosen))

    def use_folder(self, folder: Path) -> None:
        models = self._models
        number, count = models.upkeep.to_move(models.models)
        if not number:
            models.upkeep.use_folder(folder, models.models, move=False)
            return
        text = (
            f"{number} downloaded models, {size(count)}, can move to {folder}, or stay where they are and stay listed."
        )
        answers = (
            ("Leave them", lambda: models.upkeep.use_folder(folder, models.models, move=False)),
            ("Move them", lambda: models.upkeep.use_folder(folder, models.models, move=True)),
        )
        Confirm(self._theme, "Move the models as well?", text, answers, self._window).open()


def _offer_of(loaded: Row | None) -> str:
    """The toolbar's button for a head that the loaded model could be used with; empty without one."""
    if loaded is None or not (loaded.main == "add-head" or loaded.head_offer):
        return ""
    if loaded.head_action == "use-head":
        return loaded.head_offer
    known = find_entry(loaded.repo) if loaded.repo else None
    return f"Add MTP head ({size(known.original.head)})" if known and known.original.head else "Add MTP head…"
