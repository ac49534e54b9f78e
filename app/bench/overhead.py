"""What streaming in the window costs, beside `inkstand generate` with the same prompt."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from typing import Any

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


def measure_overhead(pairs: int) -> list[Figure]:
    """Takes turns: an answer in the open window, one of the command, each while the other is idle.

    Raises:
        RuntimeError: an answer failed, or the two did not write the same tokens, so that their speeds cannot be
            compared.
    """
    window: list[float] = []
    command: list[float] = []
    shares: list[float] = []

    async def scene(gui: Gui) -> None:
        s = gui.services
        s.preferences.update(sampling=Sampling(temperature=0.0, max_tokens=TOKENS))
        for _ in range(pairs + 1):
            # In a chat of its own: the command finds nothing in its caches either.
            gui.window.new_chat()
            cpu, began = time.thread_time(), time.perf_counter()
            s.chat.send(PROMPTS[0])
            await settled(gui)
            shares.append(100 * (time.thread_time() - cpu) / (time.perf_counter() - began))
            answer = s.chat.path[-1]
            if answer.state != "done" or answer.stats is None:
                raise RuntimeError(f"the answer in the window {answer.state}: {answer.error}")
            window.append(answer.stats["decode_tps"])
            result = await _generate(s.chat.effort)
            command.append(result["stats"]["decode_tps"])
            if tuple(result["token_ids"]) != s.history.messages.trace(answer.id).token_ids:
                raise RuntimeError("window and command gave different answers")
            await asyncio.sleep(0.5)

    perform(scene, Checkpoint, LoadRequest(demo_checkpoint(), DEMO))
    # The first answer of a process compiles kernels; the command does so in every run, so this favours the command.
    costs = [100 * (1 - a / b) for a, b in zip(window[1:], command[1:], strict=True)]
    spread = f"median of {pairs} pairs, {min(costs):.1f} to {max(costs):.1f} %"
    return [
        Figure("streaming", "tok/s in the window", statistics.median(window[1:]), "tok/s"),
        Figure("streaming", "tok/s of inkstand generate", statistics.median(command[1:]), "tok/s"),
        Figure("streaming", "cost of the window", statistics.median(costs), "%", COST, spread),
        Figure("streaming", "processor time of the window's thread", statistics.median(shares[1:]), "% of a core"),
    ]


async def _generate(effort: str) -> dict[str, Any]:
    """Apart from the window's thread, which stays responsive and idle."""
    command = [sys.executable, "-m", "app", "generate", "--json", "-p", PROMPTS[0]]
    command += ["--temperature", "0", "--max-tokens", str(TOKENS), "--effort", effort]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"`{' '.join(command[1:])}` ended with {process.returncode}")
    return json.loads(out)
