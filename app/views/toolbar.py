"""Which model runs and how: model picker, MTP switch with depth, effort, the chat's own settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPoint, Signal
from PySide6.QtGui import QAction, QActionGroup, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QMenu, QWidget

from app.theme import GRID, Theme
from app.views.controls import IconButton, Switch, TextButton
from app.views.labels import ElidedLabel, Label, Surface, tip_of
from app.views.menus import slot
from app.wording import plural
from engine.text.effort import EFFORT_LEVELS

REASON = 40 * GRID
"""Most width of the sentence that stands in place of the depth menu."""
MODEL = 14 * GRID
"""Width below which the model's name gives way only when everything else has."""
SAME_TEXT = (
    "It works in the middle of an answer, from the next round on. At temperature 0 the text stays the same; with "
    "sampling it may differ, since the draws fall differently."
)

AUTO = "Drafts per round: as many as pay, measured while it runs; plain steps where those are faster."


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that can be picked."""

    key: str
    name: str
    detail: str = ""


def effort_title(effort: str) -> str:
    """A level or a number, as it is shown."""
    return effort.capitalize() if effort in EFFORT_LEVELS else effort


class Toolbar(Surface):
    """Signals: sidebar, panel, new_chat, drafting(on), depth_chosen(int or None), effort(name), model(key), manage,
    chat_settings, add_head, menu.

    Where it gets narrow, words go first and then what can be reached elsewhere.

    Args:
        menu: with a button for all commands, where there is no menu bar.
    """

    sidebar = Signal(bool)
    panel = Signal(bool)
    new_chat = Signal()
    drafting = Signal(bool)
    depth_chosen = Signal(object)
    effort = Signal(str)
    model = Signal(str)
    manage = Signal()
    chat_settings = Signal()
    add_head = Signal()
    menu = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None, *, menu: bool = False) -> None:
        super().__init__(theme, "window", parent)
        self._theme = theme
        self._choices: Sequence[ModelChoice] = ()
        self._model = ""
        self._available = False
        self._reason = self._offer = ""
        self._depth: int | None = None
        self._depths = 0
        self._effort = "high"
        self._fitting = False
        self.sidebar_button = IconButton(theme, "sidebar", "Show or hide the sidebar", self)
        self.new_button = IconButton(theme, "compose", "New chat", self)
        self.panel_button = IconButton(theme, "panel", "Show or hide the statistics", self)
        self.model_button = TextButton(theme, "No model", "Model", self, menu=True, strong=True, elides=True)
        self.switch = Switch(theme, "Multi-token prediction (MTP)", self)
        self._label = Label(theme, "MTP", self, color="text_2")
        self.depth_button = TextButton(theme, "Depth: Auto", "Drafts per round", self, menu=True)
        self.reason = ElidedLabel(theme, self, color="text_3", delta=-1)
        self.reason.setMaximumWidth(REASON)
        self.head_button = TextButton(theme, "", "Add an MTP head", self, color="accent")
        self.effort_button = TextButton(theme, "Effort: High", "Thinking effort", self, menu=True)
        self.settings_button = IconButton(theme, "tune", "Chat settings", self)
        self.menu_button = IconButton(theme, "more", "Menu", self)
        self.menu_button.setVisible(menu)
        self._build()
        self._connect()
        self.show_drafting(None)

    def _build(self) -> None:
        layout = QHBoxLayout(self)
        layout.setContentsMargins(GRID + 4, 0, GRID + 4, 0)
        layout.setSpacing(GRID // 2)
        layout.addWidget(self.sidebar_button)
        layout.addWidget(self.new_button)
        layout.addWidget(self.model_button)
        layout.addStretch(1)
        layout.addWidget(self._label)
        layout.addWidget(self.switch)
        layout.addWidget(self.depth_button)
        layout.addWidget(self.reason)
        layout.addWidget(self.head_button)
        layout.addWidget(self.effort_button)
        layout.addWidget(self.settings_button)
        layout.addWidget(self.panel_button)
        layout.addWidget(self.menu_button)

    def _connect(self) -> None:
        self.sidebar_button.clicked.connect(lambda: self.sidebar.emit(True))
        self.panel_button.clicked.connect(lambda: self.panel.emit(True))
        self.new_button.clicked.connect(self.new_chat)
        self.switch.clicked.connect(lambda: self.drafting.emit(self.switch.isChecked()))
        self.model_button.clicked.connect(lambda: self._pop(self.model_menu(), self.model_button))
        self.depth_button.clicked.connect(lambda: self._pop(self.depth_menu(), self.depth_button))
        self.effort_button.clicked.connect(lambda: self._pop(self.effort_menu(), self.effort_button))
        self.head_button.clicked.connect(self.add_head)
        self.settings_button.clicked.connect(self.chat_settings)
        self.menu_button.clicked.connect(self.menu)
        self._theme.changed.connect(self._fit)

    # -- what is shown ------------------------------------------------------------------------

    def show_models(self, choices: Sequence[ModelChoice], current: str, title: str) -> None:
        self._choices, self._model = choices, current
        self.model_button.set_text(title)
        self.model_button.set_name(f"Model: {title}")
        self._fit()

    def show_drafting(self, on: bool | None, *, depths: int = 0, depth: int | None = None, reason: str = "") -> None:
        """On, off, or (None) not available because of `reason`, which then stands where the depth menu was."""
        self._available, self._reason = on is not None, reason
        self.switch.setEnabled(self._available)
        self.switch.setChecked(bool(on))
        state = "not available" if on is None else "on" if on else "off"
        self.switch.set_name(f"Multi-token prediction (MTP): {state}")
        missing = tip_of(reason) or "MTP is not available"
        self.switch.setToolTip(f"MTP is {state}. {SAME_TEXT}" if self._available else missing)
        self._depths, self._depth = depths, depth
        self.depth_button.set_name(f"Drafts per round: {self._depth_title()}")
        if depth is None:
            self.depth_button.setToolTip(AUTO)
        self.depth_button.setEnabled(bool(on))
        self.reason.set_text(reason)
        self.reason.setAccessibleName(f"MTP is not available: {reason}")
        self._fit()

    def offer_head(self, text: str) -> None:
        """The button that adds an MTP head to what is loaded; empty hides it."""
        self._offer = text
        self.head_button.set_text(text)
        self.head_button.set_name(text or "Add an MTP head")
        self._fit()

    def show_effort(self, effort: str) -> None:
        self._effort = effort
        self.effort_button.set_name(f"Thinking effort: {effort_title(effort)}")
        self._fit()

    def show_own_settings(self, own: bool) -> None:
        """Whether the chat in sight has sampling settings of its own."""
        self.settings_button.set_name("Chat settings, changed for this chat" if own else "Chat settings")
        self.settings_button.set_marked(own)

    def _depth_title(self) -> str:
        return "Auto" if self._depth is None else str(self._depth)

    # -- geometry -----------------------------------------------------------------------------

    def _fit(self) -> None:
        """Say as much as there is room for."""
        layout = self.layout()
        if self._fitting or layout is None:
            return
        self._fitting = True
        self.setFixedHeight(max(6 * GRID, self.model_button.sizeHint().height() + 2 * GRID))
        for level in range(5):
            self._show_level(level)
            layout.invalidate()
            model = self.model_button
            spare = min(model.sizeHint().width(), MODEL) - model.minimumSizeHint().width()
            if layout.minimumSize().width() + spare <= self.width():
                break
        self._fitting = False

    def _show_level(self, level: int) -> None:
        """0 shows everything; each level leaves out more."""
        depth, effort = self._depth_title(), effort_title(self._effort)
        self.depth_button.set_text(f"Depth: {depth}" if level < 1 else depth)
        self.effort_button.set_text(f"Effort: {effort}" if level < 1 else effort)
        self.reason.setVisible(not self._available and bool(self._reason) and (level < 2 or not self._offer))
        self._label.setVisible(level < 2)
        self.head_button.setVisible(bool(self._offer))
        # Effort is among the chat's settings, a new chat in the sidebar and the menus.
        self.effort_button.setVisible(level < 3)
        self.new_button.setVisible(level < 4)
        self.depth_button.setVisible(self._available and level < 4)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._fit()

    # -- menus --------------------------------------------------------------------------------

    def model_menu(self) -> QMenu:
        menu = QMenu(self)
        group = QActionGroup(menu)
        for choice in self._choices:
            text = f"{choice.name}   {choice.detail}".strip()
            self._item(menu, group, text, choice.key == self._model, lambda key=choice.key: self.model.emit(key))
        menu.addSeparator()
        menu.addAction("Manage models…").triggered.connect(slot(self.manage.emit))
        return menu

    def depth_menu(self) -> QMenu:
        menu = QMenu(self)
        group = QActionGroup(menu)
        self._item(menu, group, "Auto", self._depth is None, lambda: self.depth_chosen.emit(None))
        for n in range(1, self._depths + 1):
            self._item(menu, group, plural(n, "draft"), self._depth == n, lambda n=n: self.depth_chosen.emit(n))
        return menu

    def effort_menu(self) -> QMenu:
        menu = QMenu(self)
        group = QActionGroup(menu)
        for level in EFFORT_LEVELS:
            chosen = level == self._effort
            self._item(menu, group, effort_title(level), chosen, lambda level=level: self.effort.emit(level))
        return menu

    def _item(self, menu: QMenu, group: QActionGroup, text: str, checked: bool, act: Callable[[], object]) -> None:
        action = QAction(text, menu)
        action.setCheckable(True)
        action.setChecked(checked)
        if checked:
            action.setIcon(self._theme.icon("check", "accent"))
        action.triggered.connect(slot(act))
        group.addAction(action)
        menu.addAction(action)

    def _pop(self, menu: QMenu, button: QWidget) -> None:
        menu.exec(button.mapToGlobal(QPoint(0, button.height() + 2)))
        menu.deleteLater()
