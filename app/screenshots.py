"""Renders the states of the window to PNG files, for the documentation and for looking at them.

    python -m app.screenshots OUTDIR

A scripted model speaks, so that every run gives the same pictures; a temporary directory takes the history.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.config import ModelConfig
from engine.errors import UserError
from engine.messages import Message
from engine.paths import HOME, demo_checkpoint, user_paths

HAIKU = """\
Small pools hold the sky,
starfish rest on silent stones,
the sea breathes them in.

**Structure.** A haiku has three lines of *five*, *seven* and *five* syllables:

| Line | Syllables | Image |
|------|----------:|-------|
| one | 5 | still water |
| two | 7 | animals on stone |
| three | 5 | the tide returns |

The turn comes with the last line: until there nothing moves. To count them yourself:

```python
def syllables(line: str) -> int:
    return sum(len(re.findall(r"[aeiouy]+", word)) for word in line.split())
```
"""
RAIN = """\
Five ways to spend a rainy Sunday:

1. **Bake bread.** The kitchen is the warmest room anyway.
2. **Read the book** that has been waiting since last winter.
3. **Sort photographs**, and send three of them to whom they show.
4. **Walk in it.** Good boots make the weather a matter of opinion.
5. **Do nothing**, on purpose, for an hour.
"""
PROMPT = "Write a haiku about tide pools, then explain its structure."
THOUGHT = "They want a haiku first. Five, seven, five, about tide pools, then how it is built."
OLDER = (("Sourdough that does not rise", True), ("Names for a sailing boat", False), ("Regex for ISO dates", False))


def _speak(messages: Sequence[Message]) -> tuple[str, str]:
    last = messages[-1].content or ""
    return (RAIN, "Five ideas, one sentence each.") if "rainy" in last else (HAIKU, THOUGHT)


@dataclass(frozen=True, slots=True)
class Look:
    """Theme, and device pixels per pixel."""

    mode: str
    ratio: int

    @property
    def suffix(self) -> str:
        return f"{self.mode}@{self.ratio}x"


class Studio:
    """One window in one look, and the camera."""

    def __init__(self, out: Path, look: Look) -> None:
        from app.composition import application, build, start  # noqa: PLC0415 (after the platform is chosen)
        from app.engine_host import LoadRequest  # noqa: PLC0415
        from app.scripted import Said, Script, scripted_loader  # noqa: PLC0415

        self.out, self.look = out, look
        self._qt = application([])
        self.script = Script(lambda messages: Said(*_speak(messages)), rate=150, prefill_rate=900)
        self.script.accepted = (4, 3, 4, 1, 4, 4, 2, 4, 0, 4, 3, 4, 4, 2)
        # What it says of itself is true of the bundled demo.
        demo = ModelConfig.from_directory(demo_checkpoint())
        assert demo.mtp is not None
        self.script.context, self.script.depths = demo.text.max_positions, demo.mtp.depths
        self.gui = build(user_paths(), scripted_loader(self.script))
        self.s, self.window = self.gui.services, self.gui.window
        sampling = replace(self.s.preferences.value.sampling, temperature=0.0)
        self.s.preferences.update(theme=look.mode, sampling=sampling)
        for title, pinned in OLDER:
            self.s.history.chats.set_pinned(self.s.history.chats.create(title=title).id, pinned)
        start(self.gui, LoadRequest(Path("demo"), "Inkstand Demo"), [])
        self.window.resize(1280, 820)
        self.wait(lambda: self.s.host.facts is not None)
        self.turn(0.3)

    def turn(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._qt.processEvents()
            time.sleep(0.002)

    def wait(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + 30
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError("the window did not get where the picture is taken")
            self.turn(0.01)

    def settle(self) -> None:
        self.wait(lambda: not self.s.queue.busy)
        self.turn(0.2)

    def shoot(self, name: str, widget: object = None) -> None:
        """Save what a window shows."""
        from PySide6.QtGui import QPixmap  # noqa: PLC0415
        from PySide6.QtWidgets import QWidget  # noqa: PLC0415

        # Twice: what is laid out in the first turn may need another one to find its height.
        for _ in range(2):
            self.turn(0.05)
        target = widget if isinstance(widget, QWidget) else self.window
        pixmap = QPixmap(target.size() * self.look.ratio)
        pixmap.setDevicePixelRatio(self.look.ratio)
        target.render(pixmap)
        path = self.out / f"{name}-{self.look.suffix}.png"
        pixmap.save(str(path))
        sys.stdout.write(f"{path}\n")

    def close(self) -> None:
        from PySide6.QtCore import QEvent  # noqa: PLC0415

        asyncio.run(self.gui.shutdown())
        self.window.deleteLater()
        self._qt.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def shoot_all(studio: Studio) -> None:
    """Go through the window and save each state."""
    s, window = studio.s, studio.window
    studio.shoot("first-run")
    s.chat.send(PROMPT)
    studio.wait(lambda: s.chat.running is not None and len(s.chat.running.live.rounds) > 12)
    window.model.set_drafting(False)
    studio.wait(lambda: s.chat.running is None or s.chat.running.live.rounds[-1].drafted == 0)
    studio.turn(0.12)
    window.model.set_drafting(True)
    studio.wait(lambda: s.chat.running is None or len(s.chat.path[-1].content) > 330)
    studio.shoot("streaming")
    studio.settle()
    answer = s.chat.path[-1].id
    window.page.toggle_rounds(answer)
    studio.shoot("rounds")
    _shoot_replay(studio, answer)
    window.page.toggle_rounds(answer)
    s.chat.regenerate(answer)
    studio.settle()
    s.chat.send("List five ways to spend a rainy Sunday, one sentence each.")
    studio.settle()
    studio.shoot("conversation")
    _shoot_finding(studio)
    context = studio.script.context
    studio.script.failure = UserError(
        f"The prompt has {context + 214} tokens; the context holds {context} with at least one for the answer.",
        "Shorten the prompt or start a new conversation.",
    )
    s.chat.send("And now the same as a table, please.")
    studio.settle()
    studio.shoot("error")
    _shoot_dialogs(studio)
    studio.script.depths = 0
    studio.script.head_reason = "This checkpoint has no MTP head."
    from app.engine_host import LoadRequest  # noqa: PLC0415

    s.host.load(LoadRequest(Path("plain"), "Inkling without a head"))
    studio.wait(lambda: s.host.facts is not None)
    window.new_chat()
    studio.shoot("no-head")
    from app.screenshots_models import shoot_models  # noqa: PLC0415 (imports Qt)

    shoot_models(studio)


def _shoot_finding(studio: Studio) -> None:
    bar, finder = studio.window.page.find_bar, studio.window.page.finder
    bar.open_bar()
    bar.field.setText("line")
    bar.field.textEdited.emit("line")
    studio.wait(lambda: finder.complete)
    studio.shoot("find")
    bar.close_bar()
    width, height = studio.window.width(), studio.window.height()
    studio.window.resize(640, 480)
    studio.turn(0.1)
    studio.shoot("narrow")
    studio.window.resize(width, height)


def _shoot_replay(studio: Studio, answer: int) -> None:
    from app.views.chat.replay_dialog import ReplayDialog  # noqa: PLC0415

    studio.window.answers.replay(answer)
    dialog = studio.window.findChild(ReplayDialog)
    assert dialog is not None
    studio.wait(lambda: dialog.difference.text().startswith("Equal, all"))
    studio.shoot("side-by-side", dialog)
    dialog.close()


def _shoot_help(studio: Studio) -> None:
    from app.views.help_window import HelpWindow  # noqa: PLC0415

    studio.window.show_help()
    pages = studio.window.findChild(HelpWindow)
    assert pages is not None
    studio.shoot("help", pages)
    for name in ("drafter", "statistics", "privacy", "troubleshooting"):
        pages.open_page(name)
        studio.shoot(f"help-{name}", pages)
    pages.open_page("drafter")
    pages.search.setText("tokens per round")
    studio.shoot("help-search", pages)
    pages.close()


def _shoot_dialogs(studio: Studio) -> None:
    from app.crash import report  # noqa: PLC0415
    from app.licences import components  # noqa: PLC0415
    from app.views.about import AboutDialog  # noqa: PLC0415
    from app.views.dialogs import TextDialog  # noqa: PLC0415
    from app.views.licences_dialog import LicencesDialog  # noqa: PLC0415
    from app.views.settings_dialog import SettingsDialog  # noqa: PLC0415

    chat = studio.window.chats.show_settings()
    studio.s.chat.set_own("top_p", 0.8)
    chat.close()
    chat = studio.window.chats.show_settings()
    studio.shoot("chat-settings", chat)
    studio.s.chat.reset_own()
    chat.close()
    settings = SettingsDialog(studio.s.theme, studio.s.preferences, studio.window)
    settings.show()
    for row in range(settings.pages.count()):
        settings.list.setCurrentRow(row)
        studio.shoot(f"settings-{settings.list.item(row).text().lower()}", settings)
    settings.close()
    about = AboutDialog(studio.s.theme, studio.window)
    about.show()
    studio.shoot("about", about)
    about.close()
    licences = LicencesDialog(studio.s.theme, components(), studio.window)
    licences.show()
    studio.shoot("licences", licences)
    licences.close()
    _shoot_help(studio)
    studio.window.show_report(report(KeyError("example")))
    dialog = studio.window.findChild(TextDialog)
    studio.shoot("bug-report", dialog)
    if dialog is not None:
        dialog.close()


def main(argv: Sequence[str]) -> int:
    """Render every state in light and dark, at 1x and 2x."""
    if len(argv) != 1:
        sys.stderr.write("usage: python -m app.screenshots OUTDIR\n")
        return 2
    out = Path(argv[0])
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    for look in (Look(mode, ratio) for mode in ("light", "dark") for ratio in (1, 2)):
        with tempfile.TemporaryDirectory() as home:
            os.environ[HOME] = home
            studio = Studio(out, look)
            try:
                shoot_all(studio)
            finally:
                studio.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
