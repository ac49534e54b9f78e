"""Gaps between frames while an answer streams, and the time to open a long chat."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from app.bench.figures import Figure, percentile
from app.bench.prose import Prose, add_chat
from app.bench.rig import PATIENCE_S, FrameGaps, PaintWatch, perform, settled
from app.composition import DEMO, Gui, application
from app.engine_host import Checkpoint, LoadRequest
from app.scripted import Said, Script, scripted_loader
from app.settings import Sampling
from app.store.history import History
from engine.paths import demo_checkpoint

P99_MS = 33.0
WORST_MS = 100.0
OPEN_MS = 300.0
RATE = 300
"""Tokens per second of the scripted engine."""
DEMO_TOKENS = 256
COMPUTED = "processor time of the window's thread"
WAITED = "for the interpreter, the disk or a processor"
PROMPTS = (
    "Write a haiku about tide pools, then explain its structure.",
    "List five ways to spend a rainy Sunday, one sentence each.",
    "Explain how bread rises.",
)


def measure_demo(answers: int) -> list[Figure]:
    """Frame gaps while the bundled model answers in one conversation."""
    meter = FrameGaps()

    async def scene(gui: Gui) -> None:
        # The demo may go on for long, and the machine may be busy.
        gui.services.preferences.update(sampling=Sampling(temperature=0.0, max_tokens=DEMO_TOKENS))
        for i in range(answers):
            if i % len(PROMPTS) == 0:
                gui.window.new_chat()
            meter.start()
            gui.services.chat.send(PROMPTS[i % len(PROMPTS)])
            await settled(gui)
            meter.stop()

    perform(scene, Checkpoint, LoadRequest(demo_checkpoint(), DEMO))
    return _figures("demo streams", meter)


def measure_scripted(seconds: float, messages: int) -> list[Figure]:
    """Frame gaps while a scripted engine sends 300 tokens/s into a long conversation."""
    tokens = round(RATE * seconds)
    # Pieces of the scripted model are 3.4 characters long on average; what is left over is cut off.
    text = Prose(seed=7).answer(5 * tokens)
    script = Script(lambda _messages: Said(text), rate=RATE, context=10_000_000, speedup=1.0)
    meter = FrameGaps()
    sent, took = 0, 0.0

    async def scene(gui: Gui) -> None:
        nonlocal sent, took
        s = gui.services
        s.preferences.update(sampling=Sampling(temperature=0.0, max_tokens=tokens))
        gui.window.chats.open(s.history.chats.list()[0].id)
        await asyncio.sleep(1)
        meter.start()
        s.chat.send("Tell me everything.")
        began = time.monotonic()
        await settled(gui, 3 * seconds + 60)
        meter.stop()
        took = time.monotonic() - began
        sent = len(s.history.messages.trace(s.chat.path[-1].id).token_ids)

    request = LoadRequest(Path("scripted"), "Scripted")
    perform(scene, scripted_loader(script), request, lambda history: add_chat(history, messages))
    section = f"{RATE} tokens/s into {messages} messages"
    rate = Figure(section, "tokens sent", float(sent), "", None, f"{sent / took:.0f}/s for {took:.0f} s")
    return [*_figures(section, meter), rate]


def measure_opening(messages: int, repeats: int) -> list[Figure]:
    """From the click on a chat to its messages on the screen, going to and fro between it and a short one."""
    ids: list[int] = []
    times: list[float] = []
    computed: list[float] = []

    async def scene(gui: Gui) -> None:
        for _ in range(repeats):
            gui.window.chats.open(ids[1])
            await asyncio.sleep(0.3)
            cpu = time.thread_time()
            times.append(await _time_opening(gui, ids[0]))
            computed.append(1e3 * (time.thread_time() - cpu))

    def prepare(history: History) -> None:
        ids.extend((add_chat(history, messages), add_chat(history, 2)))

    script = Script(lambda _messages: Said("Yes."))
    perform(scene, scripted_loader(script), LoadRequest(Path("scripted"), "Scripted"), prepare)
    note = f"worst of {repeats}, median {statistics.median(times):.0f} ms"
    return [
        Figure("window", f"open a chat of {messages} messages", max(times), "ms", OPEN_MS, note),
        Figure("window", "of it computed, worst", max(computed), "ms", None, COMPUTED),
    ]


async def _time_opening(gui: Gui, chat_id: int) -> float:
    """Milliseconds until the chat is painted."""
    viewport, painted = gui.window.page.transcript.viewport(), asyncio.Event()
    watch = PaintWatch(lambda watched: watched is viewport, painted.set)
    qt = application([])
    began = time.perf_counter()
    qt.installEventFilter(watch)
    gui.window.chats.open(chat_id)
    await asyncio.wait_for(painted.wait(), PATIENCE_S)
    took = 1e3 * (time.perf_counter() - began)
    qt.removeEventFilter(watch)
    return took


def _figures(section: str, meter: FrameGaps) -> list[Figure]:
    gaps, computed = meter.gaps, meter.computed
    note = f"{len(gaps)} gaps, median {statistics.median(gaps):.1f} ms"
    late = sum(gap > P99_MS for gap in gaps)
    return [
        Figure(section, "frame gap, 99th percentile", percentile(gaps, 0.99), "ms", P99_MS, note),
        Figure(section, "frame gap, worst", max(gaps), "ms", WORST_MS, f"{late} above {P99_MS:.0f} ms"),
        Figure(section, "of it computed, 99th percentile", percentile(computed, 0.99), "ms", None, COMPUTED),
        Figure(section, "of it computed, worst", max(computed), "ms"),
        Figure(section, "of it waited, worst", max(meter.waited), "ms", None, WAITED),
    ]
