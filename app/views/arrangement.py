"""Which parts of the window are shown beside the page: what the user wants, as far as there is room for it."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QMainWindow, QSplitter, QVBoxLayout, QWidget

from app.theme import GRID, Theme
from app.views.labels import Hairline

SIDEBAR = 29 * GRID
SIDEBAR_LEAST, SIDEBAR_MOST = 22 * GRID, 50 * GRID
PAGE = 45 * GRID
"""Least width of a page at the usual size of type."""
LEAST = QSize(640, 480)


class Arrangement:
    """Lays out sidebar, toolbar, pages and panel, and hides sidebar or panel where a page would get too narrow.

    Of the two, the one that was asked for last stays.
    """

    def __init__(
        self, theme: Theme, window: QMainWindow, *, sidebar: QWidget, toolbar: QWidget, pages: QWidget, panel: QWidget
    ) -> None:
        self._theme, self._window = theme, window
        self._sidebar, self._panel = sidebar, panel
        self.sidebar_wanted = self.panel_wanted = True
        self._last = panel
        right = QWidget()
        column = QVBoxLayout(right)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(toolbar)
        column.addWidget(Hairline(theme, right))
        lower = QSplitter(Qt.Orientation.Horizontal, right)
        lower.setHandleWidth(0)
        lower.addWidget(pages)
        lower.addWidget(panel)
        lower.setStretchFactor(0, 1)
        lower.setCollapsible(0, False)
        column.addWidget(lower, 1)
        self.splitter = QSplitter(Qt.Orientation.Horizontal, window)
        self.splitter.setHandleWidth(1)
        self.splitter.addWidget(sidebar)
        self.splitter.addWidget(right)
        self.splitter.setStretchFactor(1, 1)
        self.splitter.setCollapsible(0, False)
        self.splitter.setCollapsible(1, False)
        self.splitter.setSizes([SIDEBAR, 1200 - SIDEBAR])
        sidebar.setMinimumWidth(SIDEBAR_LEAST)
        sidebar.setMaximumWidth(SIDEBAR_MOST)
        window.setCentralWidget(self.splitter)
        # Below what the layouts ask for: parts are hidden then, and nothing is cut off.
        right.setMinimumWidth(1)
        theme.changed.connect(self.fit)

    @property
    def page_width(self) -> int:
        """What a page needs at least in the size of type that is set."""
        return round(PAGE * max(1.0, self._theme.base / 13))

    def toggle_sidebar(self) -> None:
        self.sidebar_wanted = self._sidebar.isHidden()
        self._toggled(self._sidebar, on=self.sidebar_wanted)

    def toggle_panel(self) -> None:
        self.panel_wanted = self._panel.isHidden()
        self._toggled(self._panel, on=self.panel_wanted)

    def show_sidebar(self) -> None:
        self.sidebar_wanted = True
        self._toggled(self._sidebar, on=True)

    def _toggled(self, part: QWidget, *, on: bool) -> None:
        if on:
            self._last = part
        self.fit()

    def restore(self, *, sidebar: bool, panel: bool, sizes: tuple[int, ...]) -> None:
        """What was wanted and how wide the parts were."""
        self.sidebar_wanted, self.panel_wanted = sidebar, panel
        self.splitter.setSizes(sizes)
        self.fit()

    def fit(self) -> None:
        """Show what is wanted and fits."""
        # A splitter's handle takes a pixel.
        page, panel = self.page_width + 1, self._panel.minimumWidth()
        least = max(LEAST.width(), page + (panel if self.panel_wanted else 0))
        screen = self._window.screen().availableGeometry().width()
        self._window.setMinimumSize(min(least, screen), LEAST.height())
        width = self._window.width()
        show_sidebar, show_panel = self.sidebar_wanted, self.panel_wanted
        if show_sidebar and show_panel and SIDEBAR_LEAST + page + panel > width:
            show_sidebar, show_panel = self._last is self._sidebar, self._last is self._panel
        if show_panel and page + panel > width:
            show_panel = False
        rest = page + 1 + (panel if show_panel else 0)
        if show_sidebar and SIDEBAR_LEAST + rest > width:
            show_sidebar = False
        self._panel.setVisible(show_panel)
        self._sidebar.setVisible(show_sidebar)
        if show_sidebar and width - self._sidebar.width() < rest:
            self.splitter.setSizes([width - rest, rest])
