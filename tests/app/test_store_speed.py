"""The history is quick enough for the window; `app.bench` measures the full size."""

from __future__ import annotations

from app.bench.store import measure_store


def test_a_long_chat_opens_and_searches_at_once() -> None:
    timings = {timing.name: timing for timing in measure_store(messages=2_000, long_chat=2_000)}
    # Far above what is measured, since a test machine is busy with other things.
    assert timings["open a chat of 2000 messages"].median_ms < 300
    assert max(timing.median_ms for name, timing in timings.items() if name.startswith("search")) < 50
