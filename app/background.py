"""Work that would stall the window, done on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from app.bridge import Bridge, Stamped

T = TypeVar("T")


class Outcome(Generic[T]):
    """What a piece of work returned or raised."""

    def __init__(self, value: T | None = None, error: BaseException | None = None) -> None:
        self._value = value
        self.error = error

    def get(self) -> T:
        """The value. Raises what the work raised."""
        if self.error is not None:
            raise self.error
        return self._value  # pyright: ignore[reportReturnType]


class Background:
    """Runs one piece of work after another; what came of it arrives in the window's thread."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="inkstand-background")

    def run(self, work: Callable[[], T], done: Callable[[Outcome[T]], object]) -> None:
        """Call `work` on the thread, then `done` in the window's."""

        def sink(events: Sequence[Stamped]) -> None:
            for _, outcome in events:
                done(outcome)

        def job() -> None:
            outcome: Outcome[Any]
            try:
                outcome = Outcome(work())
            except BaseException as error:
                outcome = Outcome(error=error)
            self._bridge.post(sink, outcome)

        self._pool.submit(job)

    def close(self) -> None:
        """Wait for what runs; what waits is dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
