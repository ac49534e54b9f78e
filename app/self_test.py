"""`inkstand --self-test`: whether this installation works, in a few seconds, without a network and without a trace.

Imports every module of the program, lets the bundled model write with and without its drafter, and sends a message in a
window that is drawn offscreen. Each step prints a line. What a package leaves out (a library, a data file, a plugin of
Qt) shows in one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pkgutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

import engine
from app.licences import components
from engine.errors import UserError
from engine.paths import HOME, demo_checkpoint, user_paths
from engine.wording import counted

if TYPE_CHECKING:
    from PySide6.QtGui import QImage

    from app.composition import Gui
    from engine.session import Engine

TOKENS = 20
PROMPT = "Write a haiku about tide pools."
PATIENCE_S = 60.0
WIDTH, HEIGHT = 1100, 720
LEAST_COLOURS = 24
"""Text alone has more, by its smooth edges; a window that was not drawn has one."""
LEAST_SHARE = 0.02
"""Of the picture's pixels, how many differ from the most frequent colour at least."""


class SelfTestError(Exception):
    """A step that did not do what it should; the message says what was seen."""


def main(steps: Sequence[tuple[str, Callable[[], str]]] | None = None) -> int:
    """Runs the steps in order and prints one line for each; 0 when all of them worked, else 1 after the first failure.

    Meant for a process of its own: the window's platform and the user's directories are replaced in its environment,
    and connections to other machines are refused from here on.
    """
    began = time.perf_counter()
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    os.environ["GSETTINGS_BACKEND"] = "memory"  # GLib, which Qt may load, else leaves a file in the cache directory
    sys.addaudithook(refuse_network)
    with tempfile.TemporaryDirectory(prefix="inkstand-self-test-", ignore_cleanup_errors=True) as home:
        os.environ[HOME] = home
        for name, step in STEPS if steps is None else steps:
            try:
                found = step()
            except Exception as error:
                _report_failure(name, error)
                return 1
            sys.stdout.write(f"{name:<10}{found}\n")
            sys.stdout.flush()
    sys.stdout.write(f"Inkstand {engine.__version__} works ({time.perf_counter() - began:.1f} s).\n")
    return 0


def _report_failure(name: str, error: Exception) -> None:
    expected = isinstance(error, (SelfTestError, UserError))
    if not expected:
        traceback.print_exception(error)
    reason = str(error) if expected else f"{type(error).__name__}: {error}"
    sys.stderr.write(f"FAILED {name}: {reason}\n")


def refuse_network(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook: raises PermissionError where a name is looked up or another machine is called."""
    # The addresses of local sockets, which event loops and desktops use, are no tuples.
    remote = event in ("socket.connect", "socket.sendto") and isinstance(arguments[-1], tuple)
    if remote or event == "socket.getaddrinfo":
        raise PermissionError(f"the self-test uses no network, yet {event} was called with {arguments[-1]!r}")


def check_modules() -> str:
    """Imports all of the program."""
    import app  # noqa: PLC0415 (itself, for its path)

    names = [
        module.name
        for package in (engine, app)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.endswith("__main__")
    ]
    if not names:
        raise SelfTestError("no module of the program was found")
    for name in names:
        import_module(name)
    return f"{len(names)} imported"


def check_licences() -> str:
    """Looks for the licence texts of everything in a bundle; packages that are installed one by one keep their own."""
    if not getattr(sys, "frozen", False):
        return "those of the installed packages"
    found = components()
    lacking = [part.name for part in found if not any(text.is_file() and text.stat().st_size for text in part.texts)]
    if lacking or not found:
        raise SelfTestError(f"the bundle lacks the licence of {', '.join(lacking) or 'everything'}")
    return f"of {counted(len(found), 'component')}"


def check_tokens() -> str:
    """Lets the bundled model write with and without its drafter, on a thread of its own as MLX wants it."""
    if engine.BLAS.state == "unavailable" and getattr(sys, "frozen", False):
        raise SelfTestError(f"the bundle lacks its BLAS: {engine.BLAS.detail}")
    with ThreadPoolExecutor(1, "inkstand-self-test") as pool:
        return pool.submit(_compare_tokens).result()


def _compare_tokens() -> str:
    import mlx.core as mx  # noqa: PLC0415 (belongs to this thread)

    from engine.session import Engine  # noqa: PLC0415

    loaded = Engine.load(demo_checkpoint(), draft_kind="mtp")
    plain, _ = _write(loaded, drafting=False)
    drafted, drafts = _write(loaded, drafting=True)
    if len(plain) != TOKENS:
        raise SelfTestError(f"{len(plain)} tokens came instead of {TOKENS}")
    if plain != drafted:
        raise SelfTestError(f"the text differs with the drafter: {drafted} instead of {plain}")
    if not drafts:
        raise SelfTestError("the drafter drafted nothing")
    device = mx.default_device().type.name
    blas = "" if engine.BLAS.state == "not needed" else f", OpenBLAS {engine.BLAS.state}"
    return f"{TOKENS}, the same with the drafter ({drafts} drafts) as without; {device}{blas}"


def _write(loaded: Engine, *, drafting: bool) -> tuple[list[int], int]:
    """Token ids of a greedy answer, and how many drafts were made for it."""
    from engine.events import Failed, RoundDone  # noqa: PLC0415
    from engine.messages import Message  # noqa: PLC0415
    from engine.session import GenerationOptions, Session  # noqa: PLC0415

    # A block size of its own: left to itself, a round drafts only where that pays.
    session = Session(loaded, drafting=drafting, block_size=loaded.head_depths + 1)
    ids: list[int] = []
    drafts = 0
    for event in session.generate([Message("user", PROMPT)], GenerationOptions(max_tokens=TOKENS)):
        if isinstance(event, RoundDone):
            ids.extend(event.token_ids)
            drafts += event.drafted
        elif isinstance(event, Failed):
            raise event.error
    return ids, drafts


def check_window() -> str:
    """Sends a message in the window and looks at what it draws."""
    from PySide6.QtGui import QImageReader  # noqa: PLC0415 (after the platform is chosen)

    formats = {bytes(name.data()).decode() for name in QImageReader.supportedImageFormats()}
    if missing := {"png", "svg"} - formats:
        raise SelfTestError(f"Qt cannot read {', '.join(sorted(missing))}: a plugin is missing")
    with _window() as gui:
        _send(gui)
        image = gui.window.grab().toImage()
    colours, share = measure(image)
    if colours < LEAST_COLOURS or share < LEAST_SHARE:
        raise SelfTestError(
            f"the picture of {image.width()} x {image.height()} is blank: {colours} colours, "
            f"{100 * share:.1f} % of it differs from the most frequent one"
        )
    return f"{image.width()} x {image.height()}, {colours} colours; an answer of {TOKENS} tokens"


def measure(image: QImage) -> tuple[int, float]:
    """Number of colours, and the share of pixels that differ from the most frequent one."""
    import numpy as np  # noqa: PLC0415
    from PySide6.QtGui import QImage  # noqa: PLC0415

    plain = image.convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(plain.constBits(), np.uint32)
    _, counts = np.unique(pixels, return_counts=True)
    return len(counts), 1.0 - float(counts.max()) / pixels.size


@contextlib.contextmanager
def _window() -> Generator[Gui]:
    """The program's own window with the bundled model loaded."""
    from PySide6.QtCore import QEvent  # noqa: PLC0415

    from app.composition import application, build, choose_model, start  # noqa: PLC0415
    from app.engine_host import Checkpoint  # noqa: PLC0415

    qt = application([])
    notices: list[str] = []
    gui = build(user_paths(), Checkpoint, notices=notices)
    failures: list[Exception] = []
    gui.services.host.failed.connect(failures.append)
    try:
        start(gui, choose_model([], gui.services.preferences.value), notices)
        gui.window.resize(WIDTH, HEIGHT)
        _wait(lambda: failures or gui.services.host.facts is not None, "the model was not loaded")
        for failure in failures:
            raise failure
        yield gui
    finally:
        asyncio.run(gui.shutdown())
        gui.window.deleteLater()
        qt.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def _send(gui: Gui) -> None:
    s = gui.services
    sampling = replace(s.preferences.value.sampling, temperature=0.0, max_tokens=TOKENS)
    s.preferences.update(sampling=sampling)
    s.chat.send(PROMPT)
    _wait(lambda: s.chat.path and not s.queue.busy, "the answer did not end")
    answer = s.chat.path[-1]
    written = len(s.history.messages.trace(answer.id).token_ids)
    if answer.state != "done" or written != TOKENS:
        raise SelfTestError(f"the answer in the window is {answer.state} after {written} tokens, {answer.error}")
    settled = time.monotonic() + 0.3  # the footer and the panel follow the last token
    _wait(lambda: time.monotonic() > settled, "")


def _wait(condition: Callable[[], object], otherwise: str) -> None:
    """Lets Qt work until something holds. Raises SelfTestError after a minute."""
    from PySide6.QtWidgets import QApplication  # noqa: PLC0415

    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise SelfTestError(f"{otherwise} within {PATIENCE_S:.0f} s")
        QApplication.processEvents()
        time.sleep(0.005)


STEPS = (
    ("modules", check_modules),
    ("licences", check_licences),
    ("tokens", check_tokens),
    ("window", check_window),
)
