"""Coroutines that the window starts."""

from __future__ import annotations

import asyncio
import gc
import warnings

from app.controllers.tasks import Tasks


def test_a_task_cancelled_before_its_first_step_leaves_no_coroutine_behind() -> None:
    async def main() -> None:
        tasks = Tasks()
        tasks.open()
        ran: list[str] = []

        async def work() -> None:
            ran.append("work")

        tasks.spawn(work(), ran.append, name="never begun")()
        await tasks.close()
        gc.collect()
        assert ran == []

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
