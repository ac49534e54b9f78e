"""Looking after models on disk: verifying, deleting, forgetting, moving them to another folder."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from app.bridge import Bridge, Stamped
from app.controllers.preferences import Preferences
from app.controllers.tasks import Tasks, in_background
from app.hub_access import HubAccess
from app.library_scan import verified
from engine.cli.units import size
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.hub.entry import Model


class ModelUpkeep(QObject):
    """Signals:
    progressed: a verification came further, see `verifying`.
    changed: what is on disk is not what it was.
    noted(key, Note or None): what a row should say.
    told(text): something was done; needs no action.
    failed(key, UserError): something about one model went wrong.
    trouble(UserError): something went wrong that belongs to no row.

    Args:
        hub: the library once it is open.
        model: the model in a folder.
        unload: unloads a model if it is the loaded one.
        adopt_folders: brings the settings in line with the library.
        scan: looks into the library again.
    """

    progressed = Signal()
    changed = Signal()
    noted = Signal(str, object)
    told = Signal(str)
    failed = Signal(str, object)
    trouble = Signal(object)

    def __init__(
        self,
        tasks: Tasks,
        bridge: Bridge,
        preferences: Preferences,
        *,
        hub: Callable[[], HubAccess | None],
        model: Callable[[str], Model | None],
        unload: Callable[[str], object],
        adopt_folders: Callable[[HubAccess], object],
        scan: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__()
        self._tasks, self._bridge, self._preferences = tasks, bridge, preferences
        self._hub, self._model, self._unload = hub, model, unload
        self._adopt_folders, self._scan = adopt_folders, scan
        self._stopping = threading.Event()
        self.verifying: dict[str, float] = {}
        """Share done of each verification, by the model's folder."""

    def stop(self) -> None:
        """Verifications end within a moment."""
        self._stopping.set()

    def verify(self, key: str) -> None:
        """Read every file again and compare checksums."""
        model = self._model(key)
        if model is None or key in self.verifying:
            return
        self.noted.emit(key, None)
        total = max(1, model.size)

        def progressed(events: Sequence[Stamped]) -> None:
            if key in self.verifying:
                self._verifying(key, events[-1][1])

        async def work() -> None:
            from engine.hub.storage import verify_model  # noqa: PLC0415

            finished = 0
            last = ""

            def report(name: str, done: int, whole: int) -> None:
                nonlocal finished, last
                if done == whole and name != last:
                    finished, last = finished + whole, name
                    done = 0
                self._bridge.post(progressed, min(1.0, (finished + done) / total))
                if self._stopping.is_set():
                    raise asyncio.CancelledError

            try:
                found = await in_background(lambda: verify_model(model, report))
            finally:
                self._verifying(key, None)
            self.noted.emit(key, verified(found.good, found.damaged, found.missing, found.unknown))
            self.changed.emit()

        self._verifying(key, 0.0)
        self._tasks.spawn(work(), lambda error: self.failed.emit(key, error), name=f"verify {key}")

    def _verifying(self, key: str, fraction: float | None) -> None:
        others = {k: v for k, v in self.verifying.items() if k != key}
        self.verifying = others if fraction is None else {**others, key: fraction}
        self.progressed.emit()

    def delete(self, key: str) -> None:
        """Delete what this program downloaded, unloading it first."""
        model, hub = self._model(key), self._hub()
        if model is None or hub is None:
            return
        self._unload(key)

        async def work() -> None:
            from engine.hub.storage import remove_model  # noqa: PLC0415

            removal = await asyncio.to_thread(remove_model, model, hub.library.journals)
            await asyncio.to_thread(hub.library.forget, model)
            kept = f" {len(removal.kept)} files that are not Inkstand's were left." if removal.kept else ""
            self.told.emit(f"{model.name} was deleted, {size(removal.freed)} freed.{kept}")
            self.noted.emit(key, None)
            self.changed.emit()

        self._tasks.spawn(work(), lambda error: self.failed.emit(key, error), name=f"delete {key}")

    def forget(self, key: str) -> None:
        """Drop a model whose folder is not there."""
        model, hub = self._model(key), self._hub()
        if model is not None and hub is not None:
            try:
                hub.library.forget(model)
            except UserError as error:
                self.failed.emit(key, error)
                return
            self.noted.emit(key, None)
            self.changed.emit()

    def to_move(self, models: Sequence[Model]) -> tuple[int, int]:
        """How many of `models` the models folder holds, and their bytes."""
        hub = self._hub()
        own = [m for m in models if hub and m.path.is_relative_to(hub.library.models_folder)]
        return len(own), sum(model.size for model in own)

    def finish_move(self) -> None:
        """Go on with a move of the models folder that ended with the program."""
        hub = self._hub()
        begun = None if hub is None else hub.library.settings.read().moving
        if hub is None or begun is None or not Path(begun.source).is_dir():
            return
        folder = hub.library.models_folder

        async def work() -> None:
            from engine.hub.move import move_models  # noqa: PLC0415

            await in_background(lambda: move_models(hub.library, folder))
            self._adopt_folders(hub)
            self.told.emit(f"The models that were being moved are in {folder} now.")
            await self._scan()

        self._tasks.spawn(work(), self.trouble.emit, name="finish the move")

    def use_folder(self, folder: Path, models: Sequence[Model], *, move: bool) -> None:
        """Let downloads go to `folder`; the `models` that are there already go along, or stay and stay listed."""
        hub = self._hub()
        if hub is None or folder == hub.library.models_folder:
            return
        old = hub.library.models_folder

        async def work() -> None:
            if move:
                from engine.hub.move import move_models  # noqa: PLC0415

                moved = await in_background(lambda: move_models(hub.library, folder))
                self._adopt_folders(hub)
                self.told.emit(f"{size(moved)} moved to {folder}.")
            else:
                from engine.hub.partfile import make_folder  # noqa: PLC0415

                await in_background(lambda: make_folder(folder))
                further = [f for f in self._preferences.value.further_folders if f != folder]
                keep = [old] if any(m.path.is_relative_to(old) for m in models) else []
                kept = tuple(dict.fromkeys((*further, *keep)))
                self._preferences.update(models_folder=folder, further_folders=kept)
            await self._scan()

        self._tasks.spawn(work(), self.trouble.emit, name="choose folder")
