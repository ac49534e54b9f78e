"""The models of the user: what there is, loading and unloading, which head a model is used with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.bridge import Bridge
from app.controllers.downloads import DownloadsController
from app.controllers.model_upkeep import ModelUpkeep
from app.controllers.preferences import Preferences
from app.controllers.tasks import Tasks
from app.engine_host import EngineHost, LoadRequest
from app.hints import in_window, sentence_of
from app.hub_access import HubAccess
from app.library_scan import DEMO, Estimate, estimate, look
from app.model_rows import Note, Row, Shelf, cure_of, rows_of
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.hub.entry import Model
    from engine.hub.progress import DownloadProgress

Estimated = Callable[["Estimate | UserError"], object]


class ModelsController(QObject):
    """Signals:
    listed(list[Row]): the list, whenever anything in it changed.
    told(text): something was done; needs no action.
    trouble(UserError): something went wrong that belongs to no row.
    folder_changed(path, free bytes or None): where downloads go.
    """

    listed = Signal(object)
    told = Signal(str)
    trouble = Signal(object)
    folder_changed = Signal(object, object)

    def __init__(
        self,
        open_hub: Callable[[], HubAccess],
        host: EngineHost,
        preferences: Preferences,
        bridge: Bridge,
    ) -> None:
        super().__init__()
        self._open_hub = open_hub
        self._host, self._preferences = host, preferences
        self._tasks = Tasks()
        self.downloads = DownloadsController(self._tasks)
        self.upkeep = ModelUpkeep(
            self._tasks,
            bridge,
            preferences,
            hub=lambda: self._hub,
            model=self.model,
            unload=self._unload_if_loaded,
            adopt_folders=self._adopt_folders,
            scan=self._scan,
        )
        self._hub: HubAccess | None = None
        self._shelf = Shelf()
        self._scanning = self._scan_again = self._scanned = False
        self._complete: dict[str, DownloadProgress] = {}
        """By folder: complete downloads, until the library was looked into again."""
        self._asked: LoadRequest | None = None
        self.rows: list[Row] = []
        host.changed.connect(self._host_changed)
        host.progressed.connect(self._list)
        host.failed.connect(self._load_failed)
        preferences.changed.connect(self._configure)
        self.downloads.changed.connect(self._list)
        self.upkeep.progressed.connect(self._list)
        self.upkeep.changed.connect(self.refresh)
        self.upkeep.noted.connect(self.note)
        self.upkeep.told.connect(self.told)
        self.upkeep.failed.connect(self._fail)
        self.upkeep.trouble.connect(self.trouble)
        self.downloads.finished.connect(self._downloaded)
        self.downloads.failed.connect(self._fail)
        self.downloads.freed.connect(self._freed)

    # -- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open library and downloads, and let go on what was downloading when the program ended."""
        self._tasks.open()
        hub = await asyncio.to_thread(self._open_hub)
        self._hub = hub
        self._adopt_folders(hub)
        await self.downloads.open(hub.manager())
        self._configure()
        await self._scan()
        self.upkeep.finish_move()

    async def close(self) -> None:
        """Downloads stop within a moment and go on at the next start."""
        self.upkeep.stop()
        await self.downloads.close()
        await self._tasks.close()
        self._hub = None

    def _adopt_folders(self, hub: HubAccess) -> None:
        """The library's folders are those that the command line uses, too: the settings show them."""
        stored = hub.library.settings.read()
        folders = tuple(Path(folder) for folder in stored.folders if Path(folder).is_absolute())
        models = Path(stored.models) if stored.models else self._preferences.value.models_folder
        self._preferences.update(models_folder=models, further_folders=folders)

    def _configure(self, _settings: object = None) -> None:
        """Follow the settings."""
        settings, hub = self._preferences.value, self._hub
        self.downloads.configure(rate=settings.bandwidth_limit, endpoint=settings.endpoint)
        if hub is None:
            return
        models = str(settings.models_folder) if settings.models_folder else None
        folders = [str(folder) for folder in settings.further_folders]
        stored = hub.library.settings.read()
        if (stored.models, stored.folders) != (models, folders):
            try:
                with hub.library.settings.change() as change:
                    change.models, change.folders = models, folders
            except UserError as error:
                self.trouble.emit(error)
            self.refresh()

    # -- the list -----------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at the folders again."""
        self._scan_again = True
        if not self._scanning:
            self._tasks.spawn(self._scan(), self.trouble.emit, name="look for models")

    async def _scan(self) -> None:
        hub = self._hub
        if self._scanning:
            self._scan_again = True
        if hub is None or self._scanning:
            return
        self._scanning = True
        try:
            while True:
                self._scan_again = False
                complete = tuple(self._complete)
                found = await asyncio.to_thread(look, hub)
                if not self._scan_again:
                    break
        finally:
            self._scanning = False
        for folder in complete:
            self._complete.pop(folder, None)
        self._scanned = True
        self._shelf = replace(
            self._shelf,
            models=found.models,
            demo=found.demo,
            heads=found.heads,
            left_out=found.left_out,
            memory=found.memory,
        )
        self.folder_changed.emit(hub.library.models_folder, found.free)
        self._list()

    def _list(self) -> None:
        host = self._host
        loading = None if host.loading is None else (str(host.loading.directory), host.progress.fraction)
        self._shelf = replace(
            self._shelf,
            downloads=(*self.downloads.all(), *self._complete.values()),
            loaded=None if host.facts is None else str(host.facts.directory),
            loaded_depths=0 if host.facts is None else host.facts.depths,
            loading=loading,
            verifying=self.upkeep.verifying,
        )
        self.rows = rows_of(self._shelf) if self._scanned else []
        self.listed.emit(self.rows)

    @property
    def memory(self) -> int | None:
        """Bytes of this machine; None until the library was looked into."""
        return self._shelf.memory

    @property
    def models(self) -> Sequence[Model]:
        """What is on this machine, without the demo."""
        return self._shelf.models

    def row(self, key: str) -> Row | None:
        return next((row for row in self.rows if row.key == key), None)

    def model(self, key: str) -> Model | None:
        """The model in the folder `key`."""
        known = (*([self._shelf.demo] if self._shelf.demo else []), *self._shelf.models)
        return next((model for model in known if str(model.path) == key), None)

    def heads_for(self, key: str) -> list[Model]:
        """What has an MTP head that could be tried with a model."""
        return [model for model in self._shelf.models if model.usable_head and str(model.path) != key]

    def target_of(self, repo: str) -> Path | None:
        """Where a repository goes; None until the library is open."""
        return None if self._hub is None else self._hub.library.models_folder / repo

    def note(self, key: str, note: Note | None) -> None:
        """Put a sentence at a row, or take it away."""
        notes = {k: v for k, v in self._shelf.notes.items() if k != key}
        self._shelf = replace(self._shelf, notes=notes if note is None else {**notes, key: note})
        self._list()

    def _fail(self, key: str, error: UserError) -> None:
        self.note(key, cure_of(getattr(error, "reason", None), error.title, error.hint))

    def _freed(self, repo: str, text: object) -> None:
        self.told.emit(f"{repo} was cancelled. {text}")
        self.refresh()

    def _downloaded(self, progress: DownloadProgress) -> None:
        self._complete[progress.target] = progress
        self.note(progress.target, None)
        self.refresh()

    # -- loading ------------------------------------------------------------------------------

    def estimate(self, key: str, done: Estimated) -> Callable[[], object]:
        """Work out what loading a model takes; `done` takes the figures, or why there are none."""
        model, head = self.model(key), self._shelf.heads.get(key)
        held = self._host.memory() or 0

        async def work() -> None:
            if model is not None:
                done(await asyncio.to_thread(estimate, model.path, head.path if head else None, held))

        return self._tasks.spawn(work(), done, name=f"estimate {key}")

    def context_for(self, longest: int) -> int:
        """Tokens of context that the settings ask for, as far as a model goes."""
        return min(self._preferences.value.context_length or longest, longest)

    def load(self, key: str, context: int) -> None:
        """Replace what is loaded, with the head that the library pairs with the model.

        What holds no model that can be loaded is refused, and the row says why.
        """
        model, head = self.model(key), self._shelf.heads.get(key)
        if model is None:
            return
        if not model.loadable:
            why = in_window(model.problem or "") or "It holds no model that can be loaded."
            self.note(key, Note(f"{why} Choose another model, or download this one again."))
            return
        self.note(key, None)
        apart = None if head is None or head.path == model.path else head.path
        kind = "none" if key in self._shelf.left_out else "auto"
        self._asked = LoadRequest(model.path, model.name, apart, context, draft_kind=kind)
        self._host.load(self._asked)

    def reload(self, request: LoadRequest) -> None:
        """Load what is not in the library, such as a directory named at the start."""
        self._asked = replace(request, context=self._preferences.value.context_length)
        self._host.load(self._asked)

    def unload(self) -> None:
        self._host.unload()

    def _unload_if_loaded(self, key: str) -> None:
        if self._shelf.loaded == key:
            self.unload()

    def _host_changed(self) -> None:
        facts = self._host.facts
        if facts is not None:
            self._preferences.update(last_model=None if facts.name == DEMO else str(facts.directory))
        self._list()

    def _load_failed(self, error: BaseException) -> None:
        if self._asked is not None and isinstance(error, UserError):
            self.note(str(self._asked.directory), Note(sentence_of(error)))
        self._asked = None

    # -- pairing ------------------------------------------------------------------------------

    def paired_with(self, key: str) -> Path | None:
        """The folder that the user chose the head of a model from; None where the library chooses."""
        chosen = "" if self._hub is None else self._hub.library.settings.read().pairs.get(key, "")
        return Path(chosen) if chosen else None

    def leaves_out(self, key: str) -> bool:
        """Whether the user wants a model without a head."""
        return key in self._shelf.left_out

    def leave_head_out(self, key: str) -> None:
        """Use no head with a model from its next load on, although there is one."""
        model, hub = self.model(key), self._hub
        if model is not None and hub is not None:
            try:
                hub.library.pair(model, None)
            except UserError as error:
                self._fail(key, error)
                return
            self._paired(key)

    def pair(self, key: str, head: str | None) -> None:
        """Use the head in the folder `head` with a model; None goes back to its own or one that fits."""
        model, chosen, hub = self.model(key), self.model(head) if head else None, self._hub
        if model is None or hub is None:
            return
        try:
            hub.library.unpair(model) if chosen is None else hub.library.pair(model, chosen)
        except UserError as error:
            self._fail(key, error)
            return
        self._paired(key)

    def _paired(self, key: str) -> None:
        self.note(key, None)
        if self._shelf.loaded == key:
            self.told.emit("This holds once the model is loaded again.")
        self.refresh()
