"""What is fetched for which kind of plan, and what a plan says beforehand."""

from __future__ import annotations

import json
import random

import pytest
from fake_hub import FakeHub, Fault
from hub_desk import REPO, Desk
from safetensors_files import index, safetensors

from engine.hub.errors import NoHeadError, SelectionError, ServerError
from engine.hub.plan import plan_from_json
from engine.hub.select import is_head, is_tower
from engine.weights.rename import Scope, scope_of

pytestmark = pytest.mark.asyncio
CONFIG = b'{"model_type": "inkling_mm_model"}'
BACKBONE = {
    f"model-0000{k}-of-00003.safetensors": [f"model.llm.layers.{k}.attn.wq_du.weight", f"model.llm.layers.{k}.norm"]
    for k in (1, 2, 3)
}
HEAD = [f"model.mtp.layers.{d}.input_proj.weight" for d in range(8)]
TOWERS = ["model.visual.layers.linear_0.weight", "model.audio.encoder.weight"]
SHARD = 1 << 20
"""Bytes per tensor of the backbone: far above what looking for a head may cost."""


def checkpoint(**more: bytes) -> dict[str, bytes]:
    """Three shards with their index."""
    files = {name: safetensors(names, SHARD) for name, names in BACKBONE.items()}
    return (
        {"config.json": CONFIG, "model.safetensors.index.json": index(BACKBONE), "tokenizer.json": b"{}"} | files | more
    )


def names(plan: object) -> set[str]:
    return {f.path for f in plan.files}  # type: ignore[attr-defined]


async def test_head_in_a_side_file_that_the_index_does_not_list(hub: FakeHub, desk: Desk) -> None:
    head = safetensors(HEAD, 10_000)
    hub.push(REPO, checkpoint(**{"mtp.safetensors": head}))
    async with desk.manager() as manager:
        plan = await desk.plan(manager, kind="head")
        assert names(plan) == {"config.json", "mtp.safetensors"}
        last = await manager.wait(await manager.start(plan))
    assert last.state == "ready"
    wanted = len(head) + len(CONFIG)
    assert last.total == wanted
    # Besides these files, at most 1 MB of headers was sent.
    assert hub.sent() - wanted <= 1_000_000
    assert plan.header_bytes < 100_000
    desk.check({"config.json": CONFIG, "mtp.safetensors": head})


async def test_head_without_any_index(hub: FakeHub, desk: Desk) -> None:
    files = checkpoint(**{"mtp.safetensors": safetensors(HEAD, 10, padding=100_000)})
    del files["model.safetensors.index.json"]
    hub.push(REPO, files)
    async with desk.manager() as manager:
        plan = await desk.plan(manager, kind="head")
    assert names(plan) == {"config.json", "mtp.safetensors"}
    assert hub.sent() <= 1_000_000


async def test_head_that_the_index_lists_in_a_shard_of_its_own(hub: FakeHub, desk: Desk) -> None:
    shards = {**BACKBONE, "model-mtp.safetensors": HEAD}
    files = checkpoint(
        **{"model-mtp.safetensors": safetensors(HEAD, 10), "model.safetensors.index.json": index(shards)}
    )
    hub.push(REPO, files)
    async with desk.manager() as manager:
        assert names(await desk.plan(manager, kind="head")) == {"config.json", "model-mtp.safetensors"}
    # The index says it all: no header was read.
    assert {r.file for r in hub.content_requests()} == {"model.safetensors.index.json"}


async def test_head_in_two_places_takes_the_smaller_one(hub: FakeHub, desk: Desk) -> None:
    big = "model-00003-of-00003.safetensors"
    shards = {**BACKBONE, big: BACKBONE[big] + HEAD}
    files = checkpoint(
        **{
            big: safetensors(shards[big], SHARD),
            "mtp.safetensors": safetensors(HEAD, 10),
            "model.safetensors.index.json": index(shards),
        }
    )
    hub.push(REPO, files)
    async with desk.manager() as manager:
        assert names(await desk.plan(manager, kind="head")) == {"config.json", "mtp.safetensors"}


async def test_head_spread_over_shards_takes_them_all_and_no_more(hub: FakeHub, desk: Desk) -> None:
    shards = {
        "a.safetensors": HEAD[:3],
        "b.safetensors": HEAD[2:6],
        "c.safetensors": HEAD[5:],
        "d.safetensors": HEAD[3:5],
    }
    files = {name: safetensors(tensors, 100) for name, tensors in shards.items()}
    hub.push(REPO, {"config.json": CONFIG, **files})
    async with desk.manager() as manager:
        plan = await desk.plan(manager, kind="head")
    assert names(plan) == {"config.json", "a.safetensors", "b.safetensors", "c.safetensors"}


async def test_no_head_is_said_plainly_whatever_the_config_promises(hub: FakeHub, desk: Desk) -> None:
    promise = json.dumps({"mtp_config": {"num_nextn_predict_layers": 8}}).encode()
    hub.push(REPO, checkpoint(**{"config.json": promise, "mtp.safetensors": safetensors(["model.llm.norm"], 1)}))
    async with desk.manager() as manager:
        with pytest.raises(NoHeadError, match=r"owner/model has no MTP head: none of its 4 safetensors") as error:
            await desk.plan(manager, kind="head")
    assert "--mtp-head" in error.value.hint


@pytest.mark.parametrize(
    ("weights", "said"),
    [((), "it holds no safetensors file with model.mtp"), (("a",), "its only safetensors file holds no model.mtp")],
)
async def test_no_head_in_one_file_or_none(hub: FakeHub, desk: Desk, weights: tuple[str, ...], said: str) -> None:
    hub.push(REPO, {"config.json": CONFIG} | {f"{w}.safetensors": safetensors(["model.llm.norm"], 1) for w in weights})
    async with desk.manager() as manager:
        with pytest.raises(NoHeadError, match=said):
            await desk.plan(manager, kind="head")


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 64, (5).to_bytes(8, "little") + b"[1,2]" + b"x" * 9])
async def test_a_damaged_header_is_named(hub: FakeHub, desk: Desk, data: bytes) -> None:
    hub.push(REPO, {"config.json": CONFIG, "mtp.safetensors": data})
    async with desk.manager() as manager:
        with pytest.raises(ServerError, match=r"owner/model/mtp\.safetensors"):
            await desk.plan(manager, kind="head")


async def test_a_server_without_ranges_does_not_send_the_shards_for_their_headers(hub: FakeHub, desk: Desk) -> None:
    files = checkpoint(**{"mtp.safetensors": safetensors(HEAD, 10)})
    del files["model.safetensors.index.json"]
    files["model-00001-of-00003.safetensors"] = safetensors(["model.llm.x"], 30 << 20)
    hub.push(REPO, files)
    hub.fault = lambda request: Fault(ignore_range=True)
    async with desk.manager() as manager:
        assert names(await desk.plan(manager, kind="head")) == {"config.json", "mtp.safetensors"}
    assert hub.sent("model-00001-of-00003.safetensors") < 20 << 20


async def test_text_only_leaves_out_separate_towers(hub: FakeHub, desk: Desk) -> None:
    shards = {**BACKBONE, "model-towers.safetensors": TOWERS}
    files = checkpoint(
        **{
            "model-towers.safetensors": safetensors(TOWERS),
            "model.safetensors.index.json": index(shards),
            "processor_config.json": b"{}",
        }
    )
    hub.push(REPO, files)
    async with desk.manager() as manager:
        plan = await desk.plan(manager, kind="text")
    assert names(plan) == set(checkpoint())
    assert {s.path for s in plan.skipped} == {"model-towers.safetensors", "processor_config.json"}


async def test_text_only_where_towers_share_a_shard_takes_it_and_says_so(hub: FakeHub, desk: Desk) -> None:
    name = next(iter(BACKBONE))
    shards = {**BACKBONE, name: BACKBONE[name] + TOWERS}
    hub.push(REPO, checkpoint(**{name: safetensors(shards[name]), "model.safetensors.index.json": index(shards)}))
    async with desk.manager() as manager:
        plan = await desk.plan(manager, kind="text")
    assert names(plan) == set(checkpoint())
    assert "all weights are fetched" in plan.notes[0]


async def test_the_plan_and_the_loader_agree_on_what_a_tensor_belongs_to() -> None:
    names = [*HEAD, *TOWERS, "mtp.layers.0.x", "language_model.mtp.chain_norm.weight", "model.vision_tower.x"]
    names += ["vision_tower.x", "audio_tower.x", "model.audio_tower.x", "model.llm.layers.0.attn_norm.weight"]
    names += ["language_model.model.layers.0.mlp.router", "model.layers.1.x", "lm_head.weight", "model.mtpx.y"]
    for name in names:
        scope = scope_of(name)
        assert (is_head(name), is_tower(name)) == (scope is Scope.MTP, scope in (Scope.VISION, Scope.AUDIO)), name


async def test_globs(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, checkpoint(**{"mtp.safetensors": safetensors(HEAD), "docs/a.md": b"a", "docs/b.md": b"b"}))
    async with desk.manager() as manager:
        two = await desk.plan(manager, include=("config.json", "mtp.safetensors"))
        assert names(two) == {"config.json", "mtp.safetensors"}
        shards = await desk.plan(manager, include=("model-*",), exclude=("*-00002-*",))
        assert names(shards) == {"model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"}
        assert names(await desk.plan(manager, include=("docs/",))) == {"docs/a.md", "docs/b.md"}
        half = await desk.plan(manager, include=("config.json", "nothing*"))
        assert half.notes == ("Nothing matches --include nothing*.",)
        with pytest.raises(SelectionError, match="No file of owner/model matches") as error:
            await desk.plan(manager, include=("nothing*",))
        assert "config.json" in error.value.hint


async def test_code_and_pickles_are_never_fetched(hub: FakeHub, desk: Desk) -> None:
    bad = dict.fromkeys(
        ("modeling.py", "pytorch_model.bin", "a.pkl", "run.sh", "setup", "x.so", ".gitattributes"), b"import os"
    )
    hub.push(REPO, {"config.json": CONFIG, "LICENSE": b"free", **bad})
    async with desk.manager() as manager:
        plan = await desk.plan(manager)
        assert names(plan) == {"config.json", "LICENSE"}
        assert {s.path for s in plan.skipped} == set(bad)
        with pytest.raises(SelectionError, match=r"modeling\.py is never fetched: code"):
            await desk.plan(manager, include=("*.py",))
        await manager.wait(await manager.start(plan))
    assert not {r.file for r in hub.log} & set(bad)


async def test_a_plan_says_what_it_costs_and_what_is_there(hub: FakeHub, desk: Desk) -> None:
    files = {"config.json": CONFIG, "a.safetensors": random.Random(2).randbytes(5000), "b.safetensors": b"b" * 70}
    commit = hub.push(REPO, files)
    async with desk.manager(reserve=123) as manager:
        fresh = await desk.plan(manager)
        assert (fresh.commit, fresh.total, fresh.have, fresh.remaining) == (
            commit,
            5000 + 70 + len(CONFIG),
            0,
            fresh.total,
        )
        assert fresh.free > 0
        assert (fresh.reserve, fresh.fits) == (123, True)
        await manager.wait(await manager.start(await desk.plan(manager, include=("a*",))))
        later = await desk.plan(manager)
    assert {f.path: f.presence for f in later.files} == {
        "config.json": "absent", "a.safetensors": "there", "b.safetensors": "absent",
    }  # fmt: skip
    assert later.have == 5000
    assert plan_from_json(json.loads(json.dumps(later.to_json()))) == later


async def test_the_address_of_a_page_names_repository_and_revision(hub: FakeHub, desk: Desk) -> None:
    commit = hub.push(REPO, {"config.json": CONFIG})
    hub.push(REPO, {"config.json": b"{}"})
    async with desk.manager() as manager:
        request = type((await desk.plan(manager)).request)
        plan = await manager.plan(request(f"https://huggingface.co/{REPO}/tree/{commit}"), desk.target)
    assert (plan.request.repo, plan.commit) == (REPO, commit)


async def test_a_hub_that_has_no_tree(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, checkpoint())
    hub.tree = False
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert last.state == "ready"
    desk.check(checkpoint())
