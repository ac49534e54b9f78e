"""A few kills in every place; `make faults` makes 200."""

from __future__ import annotations

import random
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from kill_chat import Chatting
from kill_convert import Converting
from kill_download import Downloading
from kill_migrate import Migrating
from kill_move import Moving
from killing import Place, forked, kill

Maker = Callable[[Path, random.Random, ForkServerContext], Place]


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> ForkServerContext:
    monkeypatch.setenv("PYTHONPATH", "")  # put back at the end
    return forked()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("maker", "kills"),
    [
        pytest.param(Chatting, 3, id="chatting"),
        pytest.param(Downloading, 3, id="downloading"),
        pytest.param(Converting, 3, id="converting"),
        pytest.param(Migrating, 3, id="migrating"),
        pytest.param(Moving, 3, id="moving"),
    ],
)
def test_nothing_is_lost(maker: Maker, kills: int, context: ForkServerContext, tmp_path: Path) -> None:
    tally = kill(maker(tmp_path / "place", random.Random(7), context), kills)
    assert tally.kills == kills
    assert tally.losses == []
