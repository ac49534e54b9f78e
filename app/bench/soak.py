"""Memory over a long time of scripted use."""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from app.bench.figures import Figure
from app.bench.prose import Prose, add_chat
from app.bench.rig import perform, settled, until, widget_count
from app.composition import Gui
from app.engine_host import LoadRequest
from app.scripted import Said, Script, scripted_loader

GROWTH = 5.0
"""Per cent that memory may grow by over the second half of the soak."""
WIDGETS = 50
RATE = 600
PAUSE_S = 0.05


def measure_soak(minutes: float) -> list[Figure]:
    """A user's hour in a loop: ask, stop, regenerate, tint rounds, look elsewhere, search, delete, change the looks."""
    prose = Prose(seed=3)
    answers = [prose.answer(n) for n in (400, 900, 2500)]
    script = Script(lambda messages: Said(answers[len(messages) % 3], "Let me think."), rate=RATE, context=100_000)
    samples: list[tuple[float, float]] = []
    widgets: list[int] = []
    began = time.monotonic()

    async def scene(gui: Gui) -> None:
        cycle = 0
        while time.monotonic() - began < 60 * minutes:
            await _cycle(gui, cycle)
            samples.append((time.monotonic() - began, resident_mb()))
            widgets.append(widget_count())
            cycle += 1

    request = LoadRequest(Path("scripted"), "Scripted")
    perform(scene, scripted_loader(script), request, lambda history: [add_chat(history, 60) for _ in range(8)])
    return _judge(minutes, samples, widgets)


def _judge(minutes: float, samples: list[tuple[float, float]], widgets: list[int]) -> list[Figure]:
    """From the second half alone: in the first, caches and pools fill up."""
    half = samples[len(samples) // 2 :]
    slope = 3600 * slope_of(half)
    middle = statistics.median(mb for _, mb in half)
    grown = 100 * slope * (half[-1][0] - half[0][0]) / 3600 / middle
    peak = max(mb for _, mb in samples)
    note = f"{slope:+.0f} MB/h around {middle:.0f} MB, peak {peak:.0f} MB, {len(samples)} cycles"
    section = f"soak of {minutes:g} min"
    third = max(1, len(half) // 3)
    before, after = (round(statistics.median(part)) for part in (widgets[-len(half) :][:third], widgets[-third:]))
    return [
        Figure(section, "growth of memory in the second half", grown, "%", GROWTH, note),
        Figure(section, "growth of the number of widgets", after - before, "", WIDGETS, f"{before} to {after}"),
    ]


def slope_of(points: Sequence[tuple[float, float]]) -> float:
    """Slope of the line through the points that outliers do not bend: the median over all pairs (Theil and Sen)."""
    slopes = [(b - a) / (t - s) for (s, a), (t, b) in combinations(points, 2) if t > s]
    return statistics.median(slopes) if slopes else 0.0


async def _cycle(gui: Gui, number: int) -> None:
    s, window = gui.services, gui.window
    window.new_chat()
    s.chat.send("How does the tide turn?")
    await settled(gui)
    chat = s.chat.chat
    assert chat is not None
    s.chat.send("And again, at length?")
    await until(lambda: s.chat.running is None or len(s.chat.running.live.rounds) > 8)
    window.model.set_drafting(number % 2 == 0)
    others = [other.id for other in s.history.chats.list() if other.id != chat.id]
    window.chats.open(others[number % len(others)])
    await asyncio.sleep(PAUSE_S)
    window.page.transcript.verticalScrollBar().setValue(0)
    await asyncio.sleep(PAUSE_S)
    window.chats.open(chat.id)
    await until(lambda: s.chat.running is None or len(s.chat.running.live.rounds) > 30)
    s.chat.stop()
    await settled(gui)
    answer = s.chat.path[-1].id
    window.page.toggle_rounds(answer)
    await asyncio.sleep(PAUSE_S)
    window.page.toggle_rounds(answer)
    s.chat.regenerate(answer)
    await settled(gui)
    s.chat.switch(s.chat.path[-1].id, -1)
    s.chats.search("starfish tide")
    await asyncio.sleep(PAUSE_S)
    s.chats.search("")
    if number % 5 == 0:
        s.preferences.update(theme="dark" if number % 10 else "light")
        await asyncio.sleep(PAUSE_S)
    window.toggle_panel()
    await asyncio.sleep(PAUSE_S)
    window.toggle_panel()
    s.chats.delete(chat.id)
    s.history.chats.purge_deleted(0)
    await asyncio.sleep(PAUSE_S)


def resident_mb() -> float:
    """Memory of this process that is in RAM, in megabytes; on a Mac the most it ever had."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
