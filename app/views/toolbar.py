"""Which model runs and how: model picker, MTP switch with depth, effort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QAction, QActionGroup, QFontMetrics
from PySide6.QtWidgets import QHBoxLayout, QMenu, QWidget

from app.theme import GRID, Theme
from app.views.controls import IconButton, Label, Surface, Switch, TextButton
from app.views.menus import slot
from app.wording import plural
from engine.text.effort import EFFORT_LEVELS

REASON = 40 * GRID
"""Width of the sentence that stands in place of the depth menu."""


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
    """Signals: sidebar, panel, new_chat, drafting(on), depth_chosen(int or None), effort(name), model(key), manage."""

    sidebar = Signal(bool)
    panel = Signal(bool)
    new_chat = Signal()
    drafting = Signal(bool)
    depth_chosen = Signal(object)
    effort = Signal(str)
    model = Signal(str)
    manage = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "window", parent)
        self._theme = theme
        self._choices: Sequence[ModelChoice] = ()
        self._model = ""
        self._depth: int | None = None
        self._depths = 0
        self._effort = "high"
        self.setFixedHeight(6 * GRID)
        self.sidebar_button = IconButton(theme, "sidebar", "Show or hide the sidebar", self)
        self.new_button = IconButton(theme, "compose", "New chat", self)
        self.panel_button = IconButton(theme, "panel", "Show or hide the statistics", self)
        self.model_button = TextButton(theme, "No model", "Model", self, menu=True, strong=True)
        self.switch = Switch(theme, "Multi-token prediction (MTP)", self)
        self._label = Label(theme, "MTP", self, color="text_2")
        self.depth_button = TextButton(theme, "Depth: Auto", "Drafts per round", self, menu=True)
        self.reason = Label(theme, "", self, color="text_3", delta=-1)
        self.effort_button = TextButton(theme, "Effort: High", "Thinking effort", self, menu=True)
        self.reason.setMinimumWidth(20)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(GRID + 4, 0, GRID + 4, 0)
        layout.setSpacing(GRID // 2)
        layout.addWidget(self.sidebar_button)
        layout.addWidget(self.new_button)
        layout.addSpacing(GRID // 2)
        layout.addWidget(self.model_button)
        layout.addStretch(1)
        layout.addWidget(self._label)
        layout.addWidget(self.switch)
        layout.addWidget(self.depth_button)
        layout.addWidget(self.reason)
        layout.addSpacing(GRID // 2)
        layout.addWidget(self.effort_button)
        layout.addWidget(self.panel_button)
        self.sidebar_button.clicked.connect(lambda: self.sidebar.emit(True))
        self.panel_button.clicked.connect(lambda: self.panel.emit(True))
        self.new_button.clicked.connect(self.new_chat)
        self.switch.clicked.connect(lambda: self.drafting.emit(self.switch.isChecked()))
        self.model_button.clicked.connect(lambda: self._pop(self.model_menu(), self.model_button))
        self.depth_button.clicked.connect(lambda: self._pop(self.depth_menu(), self.depth_button))
        self.effort_button.clicked.connect(lambda: self._pop(self.effort_menu(), self.effort_button))
        self.show_drafting(None)

    # -- what is shown ------------------------------------------------------------------------

    def show_models(self, choices: Sequence[ModelChoice], current: str, title: str) -> None:
        self._choices, self._model = choices, current
        self.model_button.set_text(title)
        self.model_button.set_name(f"Model: {title}")

    def show_drafting(self, on: bool | None, *, depths: int = 0, depth: int | None = None, reason: str = "") -> None:
        """On, off, or (None) not available because of `reason`, which then stands where the depth menu was."""
        available = on is not None
        self.switch.setEnabled(available)
        self.switch.setChecked(bool(on))
        state = "not available" if on is None else "on" if on else "off"
        self.switch.set_name(f"Multi-token prediction (MTP): {state}")
        self._depths, self._depth = depths, depth
        shown = "Auto" if depth is None else str(depth)
        self.depth_button.set_text(f"Depth: {shown}")
        self.depth_button.set_name(f"Drafts per round: {shown}")
        self.depth_button.setVisible(available)
        self.depth_button.setEnabled(bool(on))
        self.reason.setVisible(not available and bool(reason))
        shortened = QFontMetrics(self.reason.font()).elidedText(reason, Qt.TextElideMode.ElideRight, REASON)
        self.reason.set_text(shortened)
        self.reason.setToolTip(reason)
        self.reason.setAccessibleName(f"MTP is not available: {reason}")

    def show_effort(self, effort: str) -> None:
        self._effort = effort
        self.effort_button.set_text(f"Effort: {effort_title(effort)}")
        self.effort_button.set_name(f"Thinking effort: {effort_title(effort)}")

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
