"""Whatever a hub answers: a plan or a message; nothing is written outside of the folders, and the token stays there."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from fuzz_hub import HUBS, REPO, REQUESTS, MadeUpHub, connected, download, plan
from fuzz_paths import told
from guard import confined
from hypothesis import given, settings

from engine.errors import UserError
from engine.hub.plan import PlanRequest


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@settings(max_examples=200)
@given(HUBS, REQUESTS)
def test_any_answers_make_a_plan_or_a_message(home: Path, hub: MadeUpHub, request_: PlanRequest) -> None:
    def run() -> None:
        try:
            made = asyncio.run(plan(home, request_))
        except UserError as error:
            told(error)
            return
        target = home / "models" / REPO
        assert made.target == target
        assert all((target / file.path).resolve().is_relative_to(target) for file in made.files)
        assert all(0 <= file.size < 1 << 63 for file in made.files)

    with confined():
        connected(hub, run)
    assert list(home.iterdir()) == []


@settings(max_examples=100)
@given(HUBS, REQUESTS)
def test_any_answers_stay_in_the_folders(home: Path, hub: MadeUpHub, request_: PlanRequest) -> None:
    def run() -> None:
        try:
            assert asyncio.run(download(home, request_)) in ("ready", "failed")
        except UserError as error:
            told(error)

    try:
        with confined(home):
            connected(hub, run)
    finally:
        shutil.rmtree(home / "models", ignore_errors=True)
        shutil.rmtree(home / "downloads", ignore_errors=True)
