"""Coroutines that the window starts: kept until they end, and nothing they raise is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from engine.errors import UserError

T = TypeVar("T")


async def in_background(function: Callable[[], T]) -> T:
    """Run what may take hours on a thread that does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # pyright: ignore[reportArgumentType] (T may include None)

    def run() -> None:
        value, failure = None, None
        try:
            value = function()
        except BaseException as error:
            failure = error
        # The loop is closed when the program ended meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=run, name="inkstand-background", daemon=True).start()
    return await future


class Tasks:
    """Belongs to the loop that runs when `open` is called; before that nothing is started."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    def spawn(
        self, work: Coroutine[Any, Any, None], failed: Callable[[UserError], object], *, name: str
    ) -> Callable[[], object]:
        """Run `work`. What the user can mend goes to `failed`, a bug to the loop's exception handler.

        Returns:
            a function that cancels it.
        """
        loop = self._loop
        if loop is None:
            work.close()
            return lambda: False

        async def run() -> None:
            try:
                await work
            except UserError as error:
                failed(error)

        task = loop.create_task(run(), name=name)
        self._running.add(task)
        # A task that is cancelled before its first step never gets to `work`.
        task.add_done_callback(lambda _: work.close())
        task.add_done_callback(self._ended)
        return task.cancel

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._loop is not None:
            self._loop.call_exception_handler({"message": task.get_name(), "exception": error, "task": task})

    async def close(self) -> None:
        """Cancel what runs and wait for its end; nothing can be started any more."""
        self._loop = None
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
