"""Names from a server never lead out of the folder, onto a device, or onto each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_hub import FakeHub
from hub_desk import REPO, Desk
from hypothesis import given
from hypothesis import strategies as st

from engine.hub.errors import UnsafeNameError
from engine.hub.names import check_collisions, parse_repo, place, refused_kind, safe_path

EVIL = [
    "../evil.json", "a/../../evil.json", "/etc/evil.json", "a//b.json", "./a.json", "a/./b.json", "", "..", "a/",
    "C:\\evil.json", "C:evil.json", "a\\b.json", "\\\\host\\share\\x.json", "nul.json", "sub/CON", "aux.tar.json",
    "com1.json", "LPT¹.json", "x.json:stream", "bell\a.json", "nul\0l.json", "new\nline.json", "exe\u202egnp.json",
    "trailing.json ", " leading.json", "dot.json.", "a?.json", "a*.json", "a|b.json", "<x>.json", "x" * 300 + ".json",
    ".inkstand.json", "sub/.INKSTAND.JSON", "model.safetensors.part", "lone\ud800.json",
]  # fmt: skip
GOOD = [
    "config.json",
    "a/b/c.safetensors",
    "模型-é.json",
    "مرحبا.txt",
    "model-00001-of-00002.safetensors",
    ".x.json",
    "console.json",
]


@pytest.mark.parametrize("name", EVIL)
def test_evil_names_are_refused(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        safe_path(name)


@pytest.mark.parametrize("name", GOOD)
def test_good_names_stay_what_they_are(tmp_path: Path, name: str) -> None:
    assert place(tmp_path, name) == tmp_path / name


@given(st.text(max_size=40))
def test_whatever_is_accepted_stays_inside(name: str) -> None:
    root = Path("/models/owner/name")
    try:
        path = root / safe_path(name)
    except UnsafeNameError:
        return
    assert root in path.parents
    assert os.path.normpath(path) == str(path)


@pytest.mark.parametrize(
    "names",
    [
        ["Config.json", "config.json"], ["é.json", "e\u0301.json"], ["STRASSE.json", "straße.json"],
        ["a", "a/b.json"], ["A/b.json", "a"], ["ſ.json", "s.json"],
    ],
)  # fmt: skip
def test_names_that_are_one_file_on_some_systems_collide(names: list[str]) -> None:
    with pytest.raises(UnsafeNameError, match=r"same file|needs a folder"):
        check_collisions(names)


def test_names_that_only_look_alike_do_not_collide() -> None:
    check_collisions(["a.json", "b.json", "sub/a.json", "sub/b.json", "sub2/a.json"])


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_links_inside_the_folder_are_not_followed(tmp_path: Path, kind: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (outside / "x.json").write_text("theirs")
    if kind == "file":
        (root / "x.json").symlink_to(outside / "x.json")
        name = "x.json"
    else:
        (root / "sub").symlink_to(outside)
        name = "sub/x.json"
    with pytest.raises(UnsafeNameError, match="link"):
        place(root, name)


def test_a_linked_folder_of_the_users_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    assert place(tmp_path / "root", "x.json") == tmp_path / "root" / "x.json"


@pytest.mark.parametrize(
    "text", ["gpt2", "a/b/c", "../x", "owner/..", "o/na me", "owner/nul", "con/name", "o--x/y", ""]
)
def test_what_is_no_repository(text: str) -> None:
    with pytest.raises(UnsafeNameError):
        parse_repo(text)


def test_repositories_and_addresses() -> None:
    assert parse_repo(" thinkingmachines/Inkling-Small ") == ("thinkingmachines/Inkling-Small", None)
    assert parse_repo("https://huggingface.co/a/b") == ("a/b", None)
    assert parse_repo("hf.co/a/b/tree/v1.0") == ("a/b", "v1.0")


def test_only_data_is_fetched() -> None:
    fine = ["model.safetensors", "config.json", "chat_template.jinja", "tokenizer.model", "LICENSE", "a/README.md"]
    assert [refused_kind(name) for name in fine] == [None] * len(fine)
    bad = [
        "x.py",
        "x.PY",
        "x.bin",
        "x.pt",
        "x.pkl",
        "x.npz",
        "x.sh",
        "x.exe",
        "x.dylib",
        "x",
        "x.json.exe",
        ".gitignore",
    ]
    assert all(refused_kind(name) for name in bad)


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["../evil.json", "/tmp/evil.json", "sub/../../evil.json", "nul.json"])
async def test_an_evil_repository_writes_nothing(hub: FakeHub, desk: Desk, name: str) -> None:
    hub.push(REPO, {"config.json": b"{}", name: b"evil"})
    async with desk.manager() as manager:
        with pytest.raises(UnsafeNameError, match="--exclude"):
            await desk.plan(manager)
        # The cure that is offered works.
        plan = await desk.plan(manager, exclude=("*evil*", "nul*"))
        assert (await manager.wait(await manager.start(plan))).state == "ready"
    desk.check({"config.json": b"{}"})
    assert sorted(p.name for p in desk.home.iterdir()) == ["downloads", "models"]


@pytest.mark.asyncio
async def test_colliding_files_are_refused_before_anything_is_written(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, {"config.json": b"{}", "Config.json": b"[]"})
    async with desk.manager() as manager:
        with pytest.raises(UnsafeNameError, match="same file"):
            await desk.plan(manager)
    assert not desk.target.exists()


@pytest.mark.asyncio
async def test_a_link_planted_where_a_file_goes_is_refused(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, {"config.json": b"{}", "sub/a.json": b"a"})
    victim = desk.home / "victim"
    victim.write_text("mine")
    desk.target.mkdir(parents=True)
    async with desk.manager() as manager:
        (desk.target / "config.json.part").symlink_to(victim)
        last = await desk.fetch(manager)
        assert last.state == "failed"
    assert victim.read_text() == "mine"
