"""Whatever a hub answers: a plan or a message; nothing is written outside of the folders, and the token stays there."""

from __future__ import annotations

from fuzz_hub import HUBS, REQUESTS, MadeUpHub, hub_download, hub_plan
from hypothesis import given, settings

from engine.hub.plan import PlanRequest


@settings(max_examples=200)
@given(HUBS, REQUESTS)
def test_any_answers_make_a_plan_or_a_message(hub: MadeUpHub, request_: PlanRequest) -> None:
    hub_plan(hub, request_)


@settings(max_examples=100)
@given(HUBS, REQUESTS)
def test_any_answers_stay_in_the_folders(hub: MadeUpHub, request_: PlanRequest) -> None:
    hub_download(hub, request_)
