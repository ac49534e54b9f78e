"""The settings in force, saved whenever they change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.settings import Settings
from app.settings_file import SettingsFile
from engine.errors import UserError


class Preferences(QObject):
    """Signals: changed(Settings), failed(UserError)."""

    changed = Signal(object)
    failed = Signal(object)

    def __init__(self, file: SettingsFile, settings: Settings) -> None:
        super().__init__()
        self._file = file
        self.value = settings

    def get(self) -> Settings:
        return self.value

    def update(self, **changes: Any) -> bool:
        """Change fields of `Settings` by name. A wrong value is reported and changes nothing.

        Returns:
            whether the settings now hold the changes.
        """
        try:
            value = replace(self.value, **changes)
        except UserError as error:
            self.failed.emit(error)
            return False
        if value != self.value:
            self.value = value
            self.save()
            self.changed.emit(value)
        return True

    def save(self) -> None:
        try:
            self._file.save(self.value)
        except UserError as error:
            self.failed.emit(error)
