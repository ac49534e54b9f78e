"""The downloads of the program: they belong to it and not to a page, and go on when it is started again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from app.controllers.tasks import Tasks
from app.model_rows import ACTIVE
from engine.cli.units import size
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.hub.manager import DownloadManager
    from engine.hub.plan import Plan
    from engine.hub.progress import DownloadProgress
    from engine.hub.select import Kind

Planned = Callable[["Plan | UserError"], object]


class DownloadsController(QObject):
    """Signals:
    changed: a report came, or a download was taken off the list.
    finished(DownloadProgress): a download is complete.
    freed(repo, text): what cancelling gave back, in words: counts of bytes do not fit Qt's integers.
    failed(folder, UserError): something about one download went wrong.
    """

    changed = Signal()
    finished = Signal(object)
    freed = Signal(str, object)
    failed = Signal(str, object)

    def __init__(self, tasks: Tasks) -> None:
        super().__init__()
        self._tasks = tasks
        self._manager: DownloadManager | None = None
        self._endpoint: str | None = None

    async def open(self, manager: DownloadManager) -> None:
        """Take up what earlier runs left: what was running goes on."""
        self._manager = manager
        manager.subscribe(self._report)
        await manager.restore()
        self.changed.emit()

    async def close(self) -> None:
        """Stop everything within a moment, to go on at the next start."""
        manager, self._manager = self._manager, None
        if manager is not None:
            await manager.close()

    def configure(self, *, rate: int | None, endpoint: str | None) -> None:
        """Bandwidth cap in bytes per second over all downloads, and the hub that new plans ask."""
        self._endpoint = endpoint
        if self._manager is not None:
            self._manager.limiter.rate = rate

    def all(self) -> tuple[DownloadProgress, ...]:
        """The last report of every download that is not complete."""
        known = () if self._manager is None else self._manager.downloads()
        return tuple(progress for progress in known if progress.state != "ready")

    def of_folder(self, folder: str) -> DownloadProgress | None:
        return next((progress for progress in self.all() if progress.target == folder), None)

    @property
    def busy(self) -> bool:
        return any(progress.state in ACTIVE for progress in self.all())

    # -- commands -----------------------------------------------------------------------------

    def plan(self, repo: str, kind: Kind, target: Path, done: Planned) -> Callable[[], object]:
        """Ask what a download would fetch; `done` takes the plan, or why there is none. Returns what cancels."""

        async def work() -> None:
            from engine.hub.plan import PlanRequest  # noqa: PLC0415 (imports the hub's client)

            manager = self._manager
            if manager is not None:
                done(await manager.plan(PlanRequest(repo, kind=kind), target, endpoint=self._endpoint))

        return self._tasks.spawn(work(), done, name=f"plan {repo}")

    def start(self, plan: Plan) -> None:
        async def work() -> None:
            if self._manager is not None:
                await self._manager.start(plan)

        self._act(str(plan.target), work, "start")

    def resume(self, folder: str) -> None:
        async def work() -> None:
            progress = self.of_folder(folder)
            if self._manager is not None and progress is not None:
                await self._manager.resume(progress.job)

        self._act(folder, work, "resume")

    def pause(self, folder: str) -> None:
        async def work() -> None:
            progress = self.of_folder(folder)
            if self._manager is not None and progress is not None:
                await self._manager.pause(progress.job)

        self._act(folder, work, "pause")

    def cancel(self, folder: str, *, delete: bool) -> None:
        """Take a download off the list, with what it fetched if `delete`."""

        async def work() -> None:
            progress = self.of_folder(folder)
            if self._manager is None or progress is None:
                return
            freed = await self._manager.cancel(progress.job, delete=delete)
            self.freed.emit(progress.repo, f"{size(freed)} freed." if delete else "What was fetched is kept.")
            self.changed.emit()

        self._act(folder, work, "cancel")

    def _act(self, folder: str, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._tasks.spawn(work(), lambda error: self.failed.emit(folder, error), name=f"{name} {folder}")

    def _report(self, progress: DownloadProgress) -> None:
        if progress.state == "ready":
            self.finished.emit(progress)
        self.changed.emit()
