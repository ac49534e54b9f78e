"""What can go wrong with the history that the user can do something about."""

from __future__ import annotations

from engine.errors import UserError


class StoreError(UserError):
    """The history cannot be read or written; the title says what happened to what was to be saved."""


class BusyError(StoreError):
    """Another program held the write lock for longer than the time to wait. Nothing was written."""


class ReadOnlyError(StoreError):
    """The history was opened for reading only."""


class DamagedError(StoreError):
    """The file is no SQLite database any more, or parts of it are garbled."""


class MissingError(StoreError):
    """A chat or message that is not in the history (any more)."""


class ImportFileError(StoreError):
    """A file that cannot be imported; names the field. Nothing of it was imported."""
