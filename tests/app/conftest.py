"""The window's fixtures, for every test of this folder."""

from __future__ import annotations

from window_fixtures import (
    Opened,
    gui,
    no_cycle_left,
    no_widget_left,
    opened,
    qapp,
    qapp_cls,
    script,
    theme,
    wait,
)

__all__ = ["Opened", "gui", "no_cycle_left", "no_widget_left", "opened", "qapp", "qapp_cls", "script", "theme", "wait"]
