"""The window around the real engine and the bundled model."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.composition import DEMO
from app.engine_host import Checkpoint, LoadRequest, OpenModel, Progress
from app.views.chat.message import AssistantMessage
from app.views.chat.replay_dialog import ReplayDialog
from engine.paths import demo_checkpoint

if TYPE_CHECKING:
    from conftest import Opened

    from app.composition import Gui

PROMPT = "Write a haiku about tide pools, then explain its structure."


def ids(gui: Gui) -> tuple[int, ...]:
    return gui.services.history.messages.trace(gui.services.chat.path[-1].id).token_ids


def test_chat_switch_rounds_replay_and_unload(opened: Opened, wait) -> None:
    loaded: list[weakref.ref[OpenModel]] = []

    def loader(request: LoadRequest, progress: Progress) -> OpenModel:
        model = Checkpoint(LoadRequest(demo_checkpoint(), DEMO), progress)
        loaded.append(weakref.ref(model))
        return model

    gui = opened(loader, loaded=False)
    s = gui.services
    wait(lambda: s.host.facts is not None, 60)
    assert s.host.facts is not None
    assert s.host.facts.depths == 4
    sampling = replace(s.preferences.value.sampling, temperature=0.0, max_tokens=64)
    s.preferences.update(sampling=sampling)
    QTest.keyClicks(gui.window.page.composer.editor, PROMPT)
    QTest.keyClick(gui.window.page.composer.editor, Qt.Key.Key_Return)
    wait(lambda: not s.queue.busy, 60)
    answer = s.chat.path[-1]
    assert answer.state == "done"
    assert answer.content
    assert answer.stats is not None
    assert answer.stats["acceptance_length"] > 2
    assert s.host.memory()
    first = ids(gui)
    assert len(first) == 64

    s.chat.regenerate(answer.id)
    wait(lambda: s.chat.running and len(s.chat.running.live.rounds) > 3, 60)
    gui.window.toolbar.switch.click()
    wait(lambda: not s.chat.running or s.chat.running.live.rounds[-1].drafted == 0, 60)
    gui.window.toolbar.switch.click()
    wait(lambda: not s.queue.busy, 60)
    assert ids(gui) == first, "the switch changes the speed and not the text"
    drafted = {one.drafted for one in s.history.messages.trace(s.chat.path[-1].id).rounds[1:]}
    assert 0 in drafted
    assert max(drafted) > 0

    runs = s.chat.rounds(s.chat.path[-1].id)
    text = s.chat.path[-1].content
    assert "".join(text[run.start : run.end] for run in runs) == text
    gui.window.page.toggle_rounds(s.chat.path[-1].id)
    view = gui.window.page.transcript.view(s.chat.path[-1].id)
    assert isinstance(view, AssistantMessage)
    assert view.body.spans

    gui.window.answers.replay(s.chat.path[-1].id)
    dialog = gui.window.findChild(ReplayDialog)
    assert dialog is not None
    wait(lambda: dialog.difference.text() == "Equal, all 64 tokens.", 60)
    dialog.close()
    assert gui.window.panel.verdict.text().startswith("MTP"), "plain steps were measured"

    s.host.unload()
    wait(lambda: loaded[0]() is None, 20)


def test_a_context_beyond_the_model_s_own_is_cut_to_it() -> None:
    """The setting holds for all models; the demo was made for 2,048 tokens."""
    model = Checkpoint(LoadRequest(demo_checkpoint(), DEMO, context=100_000), lambda share, text: None)
    assert model.facts.context == 2048
    assert model.session(drafting=True, block_size=None, context=None).context == 2048
