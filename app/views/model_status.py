"""Keeps toolbar, welcome page and panel in step with the model that is loaded and how it drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject

from app.controllers.chat import ChatController
from app.controllers.preferences import Preferences
from app.crash import blame
from app.engine_host import EngineHost
from app.hints import in_window
from app.settings import DraftDefault
from app.views.chat.page import ChatPage
from app.views.stats.panel import StatsPanel
from app.views.toolbar import ModelChoice, Toolbar
from app.wording import count, plural

NO_HEAD = "This checkpoint has no MTP head."


class ModelStatus(QObject):
    """Shows the model's state and carries the switches to the engine."""

    def __init__(
        self,
        *,
        host: EngineHost,
        chat: ChatController,
        preferences: Preferences,
        toolbar: Toolbar,
        page: ChatPage,
        panel: StatsPanel,
        crashed: Callable[[BaseException], object],
    ) -> None:
        super().__init__()
        self._host, self._chat, self._preferences = host, chat, preferences
        self._toolbar, self._page, self._panel, self._crashed = toolbar, page, panel, crashed
        self._choices: Sequence[ModelChoice] = ()
        self._current = ""
        self._failure: BaseException | None = None
        toolbar.drafting.connect(self.set_drafting)
        toolbar.depth_chosen.connect(self.set_depth)
        toolbar.effort.connect(chat.set_effort)
        chat.settings_changed.connect(self.show_switches)
        host.changed.connect(self._changed)
        host.progressed.connect(self._changed)
        host.failed.connect(self._failed)
        preferences.changed.connect(self.show_switches)

    def show_models(self, choices: Sequence[ModelChoice], current: str) -> None:
        """What the picker offers; `current` is the key of the one in use."""
        self._choices, self._current = choices, current
        self._changed()

    def _changed(self) -> None:
        host, welcome = self._host, self._page.welcome
        if host.loading is not None:
            self._failure = None
            title = f"Loading {host.loading.name}…"
            welcome.show_model(title, host.progress.text or "Opening the files", host.progress.fraction)
            self._title(title)
        elif host.facts is not None:
            facts = host.facts
            head = f"MTP head with {plural(facts.depths, 'depth')}" if facts.depths else "No MTP head"
            text = f"{head}, context of {count(facts.context)} tokens. Try one:"
            welcome.show_model(f"{facts.name} is ready", text, drafts=bool(facts.depths))
            self._title(facts.name)
            self._panel.set_depths(facts.depths)
        elif self._failure is None:
            welcome.show_model("No model is loaded", "Choose one in the toolbar.", drafts=False)
            self._title("No model")
        self.show_switches()

    def _title(self, title: str) -> None:
        self._toolbar.show_models(self._choices, self._current, title)

    def _failed(self, error: BaseException) -> None:
        self._failure = error
        title, hint, bug = blame(error)
        self._page.welcome.show_model("The model could not be loaded", f"{title} {hint}", drafts=False)
        self._title("No model")
        if self._chat.path:
            self._page.toast.say(f"{title} {hint}", seconds=20)
        if bug:
            self._crashed(error)

    # -- switches -----------------------------------------------------------------------------

    def show_switches(self, _settings: object = None) -> None:
        """On, off, or not available and why."""
        facts = self._host.facts
        self._toolbar.show_effort(self._chat.effort)
        self._toolbar.show_own_settings(bool(self._chat.own_settings))
        if facts is None:
            self._toolbar.show_drafting(None)
        elif not facts.depths:
            self._toolbar.show_drafting(None, reason=in_window(facts.head_reason or "") or NO_HEAD)
        else:
            self._toolbar.show_drafting(self._host.drafting, depths=facts.depths, depth=self._host.depth)

    def set_drafting(self, on: bool) -> None:
        """Also in the middle of an answer: it holds from the next round on."""
        self._host.set_drafting(on)
        self._keep()

    def toggle_drafting(self) -> None:
        if self._host.facts is not None and self._host.facts.depths:
            self.set_drafting(not self._host.drafting)

    def set_depth(self, depth: int | None) -> None:
        self._host.set_depth(depth)
        self._keep()

    def _keep(self) -> None:
        self._preferences.update(draft=DraftDefault(enabled=self._host.drafting, depth=self._host.depth))
        self.show_switches()
