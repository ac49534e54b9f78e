"""Running coroutines together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def to_end(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a blocking function in a thread. Cancelled, it still waits for its end: nothing is left working behind."""
    return await _to_end(asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs)))


async def in_pool(pool: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`to_end` in threads of a pool."""
    return await _to_end(asyncio.get_running_loop().run_in_executor(pool, partial(function, *args, **kwargs)))


async def _to_end(future: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # seen, so that it is not reported as forgotten
        raise


async def run_all(work: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Waits for all. The first failure cancels the others, waits for their end and is raised by itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in work:
                group.create_task(coroutine)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


class Signal:
    """Something changed. Unlike an Event it cannot miss a change between looking and waiting.

    Take `count`, look, then `changed(count)`: it returns at once if there was a change since.
    """

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def set(self) -> None:
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    async def changed(self, since: int) -> None:
        while self.count == since:
            await self._event.wait()
