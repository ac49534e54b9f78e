"""From the start of the process to the first paint and to the loaded demo, as a user sees them.

Each start is a process that runs this module: `inkstand` itself, with an eye on the window.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from app.bench.figures import Figure
from engine.paths import HOME

PAINT_S = 2.0
LOADED_S = 5.0
QUIT_S = 5.0
POLL_MS = 5


def measure_startup(repeats: int) -> list[Figure]:
    """Starts the program with an empty home, again and again."""
    # One for the disk caches, which is not counted.
    starts = [_start() for _ in range(repeats + 1)][1:]
    limits = {"first paint": PAINT_S, "demo loaded": LOADED_S, "quit": QUIT_S}
    return [
        Figure("start", name, statistics.median(times), "s", limit, f"median of {repeats}, worst {max(times):.2f} s")
        for name, limit in limits.items()
        if (times := [start[name] for start in starts])
    ]


def _start() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as home:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(began)],
            env={**os.environ, HOME: home},
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        )
        return {**json.loads(done.stdout), "quit": time.monotonic() - json.loads(done.stdout)["asked to quit"]}


def main(began: float) -> int:
    """Run the program, note when its window is painted and its model loaded, and quit it.

    Args:
        began: `time.monotonic` before the process was started; that clock is the same in all processes.
    """
    from PySide6.QtCore import QTimer  # noqa: PLC0415 (counts to the start)
    from PySide6.QtWidgets import QApplication  # noqa: PLC0415

    from app.__main__ import main as run  # noqa: PLC0415
    from app.bench.rig import PaintWatch  # noqa: PLC0415
    from app.composition import application  # noqa: PLC0415
    from app.views.main_window import MainWindow  # noqa: PLC0415

    qt = application([])
    times: dict[str, float] = {}

    def painted() -> None:
        times["first paint"] = time.monotonic() - began
        qt.removeEventFilter(watch)
        poll.start()

    def look() -> None:
        window = next(w for w in QApplication.topLevelWidgets() if isinstance(w, MainWindow))
        # The switch can be used as soon as there is a model with a head.
        if window.toolbar.switch.isEnabled():
            poll.stop()
            times["demo loaded"] = time.monotonic() - began
            times["asked to quit"] = time.monotonic()
            window.request_quit()

    watch = PaintWatch(lambda watched: isinstance(watched, MainWindow), painted)
    poll = QTimer()
    poll.setInterval(POLL_MS)
    poll.timeout.connect(look)
    qt.installEventFilter(watch)
    sys.argv = ["inkstand"]
    code = run()
    sys.stdout.write(json.dumps(times))
    return code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
