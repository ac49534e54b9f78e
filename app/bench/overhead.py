"""What streaming in the window costs, beside `inkstand generate` with the same prompt."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from dataclasses import dataclass

from app.bench.figures import Figure
from app.bench.frames import PROMPTS
from app.bench.rig import perform, settled
from app.composition import DEMO, Gui
from app.engine_host import Checkpoint, LoadRequest
from app.settings import Sampling
from engine.paths import demo_checkpoint

COST = 10.0
"""Per cent of the tokens per second that the window may take."""
TOKENS = 256


@dataclass(frozen=True, slots=True)
class _Run:
    """One answer: what it says, its tokens per second, and what it took of the window's thread in per cent of a core
    (0 outside of the window)."""

    token_ids: tuple[int, ...]
    rate: float
    share: float = 0.0


def measure_overhead(pairs: int) -> list[Figure]:
    """Pairs of the same answer in the open window and from the command, each while the other is idle.

    The window's first answer, which sets the model up, is not counted.

    Raises:
        RuntimeError: an answer failed, or the two did not write the same tokens, so that their speeds cannot be
            compared.
    """
    runs: list[tuple[_Run, _Run]] = []

    async def scene(gui: Gui) -> None:
        gui.services.preferences.update(sampling=Sampling(temperature=0.0, max_tokens=TOKENS))
        await _in_window(gui, PROMPTS[0])
        runs.extend([await _pair(gui, PROMPTS[i % len(PROMPTS)], command_first=i % 2 == 1) for i in range(pairs)])

    perform(scene, Checkpoint, LoadRequest(demo_checkpoint(), DEMO))
    window, command = ([run.rate for run in side] for side in zip(*runs, strict=True))
    costs = [100 * (1 - here.rate / there.rate) for here, there in runs]
    spread = f"median of {pairs} pairs, {min(costs):.1f} to {max(costs):.1f} %"
    share = statistics.median(here.share for here, _ in runs)
    return [
        Figure("streaming", "tok/s in the window", statistics.median(window), "tok/s"),
        Figure("streaming", "tok/s of inkstand generate", statistics.median(command), "tok/s"),
        Figure("streaming", "cost of the window", statistics.median(costs), "%", COST, spread),
        Figure("streaming", "processor time of the window's thread", share, "% of a core"),
    ]


async def _pair(gui: Gui, prompt: str, *, command_first: bool) -> tuple[_Run, _Run]:
    """The answer of the window and that of the command. They take turns in going first, so that a machine that grows
    busier or warmer favours neither."""
    if command_first:
        there = await _generate(gui, prompt)
        here = await _in_window(gui, prompt)
    else:
        here = await _in_window(gui, prompt)
        there = await _generate(gui, prompt)
    if here.token_ids != there.token_ids:
        raise RuntimeError("window and command gave different answers")
    return here, there


async def _in_window(gui: Gui, prompt: str) -> _Run:
    """In a chat of its own: the command finds nothing in its caches either."""
    s = gui.services
    gui.window.new_chat()
    cpu, began = time.thread_time(), time.perf_counter()
    s.chat.send(prompt)
    await settled(gui)
    share = 100 * (time.thread_time() - cpu) / (time.perf_counter() - began)
    answer = s.chat.path[-1]
    if answer.state != "done" or answer.stats is None:
        raise RuntimeError(f"the answer in the window {answer.state}: {answer.error}")
    return _Run(s.history.messages.trace(answer.id).token_ids, answer.stats["decode_tps"], share)


async def _generate(gui: Gui, prompt: str) -> _Run:
    """Apart from the window's thread, which stays responsive and idle."""
    command = [sys.executable, "-m", "app", "generate", "--json", "-p", prompt]
    command += ["--temperature", "0", "--max-tokens", str(TOKENS), "--effort", gui.services.chat.effort]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"`{' '.join(command[1:])}` ended with {process.returncode}")
    result = json.loads(out)
    return _Run(tuple(result["token_ids"]), result["stats"]["decode_tps"])
