"""Models on disk: what is listed, what is loadable, what may be deleted or moved."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from fake_hub import FakeHub, Fault
from hub_desk import CHUNK, REPO, Desk, until

from engine.errors import UserError
from engine.hub.catalog import CATALOG, find_entry, that_run_in
from engine.hub.entry import Model
from engine.hub.errors import BusyError, DiskFullError, NoHeadError, TargetError, UnavailableError, UnknownModelError
from engine.hub.library import Library
from engine.hub.move import move_models
from engine.hub.partfile import Disk
from engine.hub.storage import lock_folder, remove_model, verify_model
from engine.installed import Checkpoint, find_checkpoint, read_facts

TINY = Path(__file__).parents[1] / "data" / "inkling-tiny"
SHARD = "model-00001-of-00001.safetensors"
FILES = {p.name: p.read_bytes() for p in TINY.iterdir()}


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path, read_facts, cache=tmp_path / "hf-cache")


def download(desk: Desk, repo: str = REPO, files: dict[str, bytes] | None = None, **request: object) -> None:
    if files is not None or repo not in desk.hub.repos:
        desk.hub.push(repo, files or FILES)

    async def fetch() -> None:
        async with desk.manager() as manager:
            plan = await manager.plan(_request(repo, **request), desk.home / "models" / repo)
            assert (await manager.wait(await manager.start(plan))).state == "ready"

    asyncio.run(fetch())


def _request(repo: str, **request: object):  # type: ignore[no-untyped-def]
    from engine.hub.plan import PlanRequest

    return PlanRequest(repo, **request)  # type: ignore[arg-type]


def only(library: Library) -> Model:
    (model,) = library.models()
    return model


def put(folder: Path, *names: str) -> Path:
    """Copies files of the tiny checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or FILES:
        (folder / name).write_bytes(FILES[name])
    return folder


def cache_snapshot(cache: Path, repo: str, commit: str, names: list[str]) -> Path:
    """A repository in the Hugging Face cache: blobs named by hash, links to them."""
    from fake_hub import FakeFile

    folder = cache / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    for path in (folder / "blobs", folder / "refs", snapshot):
        path.mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    for name in names:
        blob = folder / "blobs" / FakeFile(FILES[name], lfs=name.endswith(".safetensors")).etag
        blob.write_bytes(FILES[name])
        (snapshot / name).symlink_to(blob)
    return snapshot


def test_a_downloaded_model_is_known_through_and_through(desk: Desk, library: Library) -> None:
    download(desk)
    model = only(library)
    assert (model.name, model.repo, model.source, model.status) == (REPO, REPO, "inkstand", "ready")
    assert model.loadable
    assert model.verified
    assert model.commit == desk.hub.repos[REPO].head
    assert model.size >= sum(map(len, FILES.values()))
    assert model.facts is not None
    assert (model.facts.family, model.facts.layout, model.facts.quantization) == ("Inkling", "published", "float32")
    assert model.has_head
    assert "3 depths" in (model.facts.head_note or "")
    assert json.loads(json.dumps(model.to_json()))["loadable"] is True


def test_a_head_alone_is_no_model_but_a_head(desk: Desk, library: Library) -> None:
    download(desk, kind="head")
    model = only(library)
    assert (model.status, model.loadable, model.usable_head) == ("ready", False, True)


@pytest.mark.parametrize("name", [SHARD, "mtp.safetensors", "config.json"])
def test_a_missing_file_is_named_before_anything_is_loaded(desk: Desk, library: Library, name: str) -> None:
    download(desk)
    (desk.target / name).unlink()
    model = only(library)
    assert (model.status, model.loadable) == ("incomplete", False)
    assert name in model.missing
    assert name in (model.problem or "")


def test_a_model_being_fetched_is_not_loadable(hub: FakeHub, desk: Desk, library: Library) -> None:
    hub.push(REPO, FILES)
    hub.slice = 1 << 12
    hub.fault = lambda request: Fault(rate=4e5)

    async def half() -> None:
        async with desk.manager() as manager:
            await manager.start(await desk.plan(manager))
            await until(lambda: manager.downloads()[0].done >= 8 * CHUNK)
            model = await asyncio.to_thread(only, library)
            assert (model.status, model.loadable) == ("incomplete", False)
            with pytest.raises(BusyError):
                await asyncio.to_thread(remove_model, model, library.journals)

    asyncio.run(half())
    model = only(library)
    assert SHARD in model.missing
    # Deleting it takes the unfinished parts along, and the memory of the download.
    removal = remove_model(model, library.journals)
    assert removal.freed >= 8 * CHUNK
    assert removal.kept == ()
    assert not desk.target.exists()
    assert list(library.journals.glob("*.jsonl")) == []


def test_damage_on_the_disk_is_found_marked_and_mended(desk: Desk, library: Library) -> None:
    download(desk)
    shard = desk.target / SHARD
    content = bytearray(shard.read_bytes())
    content[-3] ^= 1
    shard.write_bytes(content)
    found = verify_model(only(library))
    assert (found.ok, found.damaged) == (False, (SHARD,))
    model = only(library)
    assert (model.status, model.loadable) == ("corrupt", False)
    since = len(desk.hub.log)
    download(desk)
    assert desk.hub.sent(since=since) == len(FILES[SHARD])
    assert only(library).loadable
    assert verify_model(only(library)).ok


def test_a_copied_model_is_recognized_by_verifying(desk: Desk, library: Library) -> None:
    download(desk)
    for path in desk.target.iterdir():
        path.touch()
    assert only(library).status == "incomplete"
    assert verify_model(only(library)).ok
    assert only(library).loadable


def test_models_of_other_folders_and_of_the_hugging_face_cache(tmp_path: Path, library: Library) -> None:
    put(tmp_path / "shelf" / "someone" / "tiny")
    put(tmp_path / "shelf" / "flat", "config.json", SHARD, "model.safetensors.index.json", "tokenizer.json")
    (tmp_path / "shelf" / "other").mkdir()
    (tmp_path / "shelf" / "other" / "config.json").write_text('{"model_type": "llama"}')
    snapshot = cache_snapshot(tmp_path / "hf-cache", "maker/cached", "a" * 40, list(FILES))
    cache_snapshot(tmp_path / "hf-cache", "maker/partial", "b" * 40, ["config.json", "model.safetensors.index.json"])
    library.add_folder(tmp_path / "shelf")
    models = {m.name: m for m in library.models()}
    assert set(models) == {"someone/tiny", "flat", "maker/cached", "maker/partial"}
    assert {m.name for m in models.values() if m.loadable} == {"someone/tiny", "flat", "maker/cached"}
    assert models["maker/partial"].missing == (SHARD,)
    assert (models["maker/cached"].source, models["maker/cached"].path) == ("hf-cache", snapshot)
    assert (models["maker/cached"].verified, models["maker/cached"].commit) == (False, "a" * 40)
    for name in ("someone/tiny", "maker/cached"):
        with pytest.raises(TargetError, match="not downloaded by Inkstand"):
            remove_model(models[name], library.journals)
    assert set(verify_model(models["maker/cached"]).good) == set(FILES)
    (snapshot / SHARD).resolve().write_bytes(b"rot")
    assert SHARD in verify_model(library.find("maker/cached")).damaged
    assert set(verify_model(models["flat"]).unknown) == {
        "config.json",
        SHARD,
        "model.safetensors.index.json",
        "tokenizer.json",
    }


@pytest.mark.parametrize("root", ["models", "shelf"])
def test_an_absent_folder_keeps_its_models_in_the_list(tmp_path: Path, desk: Desk, root: str) -> None:
    library = Library(tmp_path, read_facts, cache=tmp_path / "none")
    if root == "models":
        download(desk)
    else:
        put(tmp_path / "shelf" / REPO)
        library.add_folder(tmp_path / "shelf")
    before = only(library)
    (tmp_path / root).rename(tmp_path / "unmounted")
    for again in (library, Library(tmp_path, read_facts, cache=tmp_path / "none")):
        model = only(again)
        assert (model.name, model.status, model.loadable) == (before.name, "unavailable", False)
        assert (model.size, model.facts) == (before.size, before.facts)
        with pytest.raises(UnavailableError):
            verify_model(model)
    (tmp_path / "unmounted").rename(tmp_path / root)
    assert only(library) == before
    # Deleted for good, it can be forgotten.
    shutil.rmtree(tmp_path / root)
    library.forget(only(library))
    assert library.models() == []


def test_deleting_takes_only_what_was_put_there(desk: Desk, library: Library) -> None:
    download(desk)
    (desk.target / "notes.txt").write_text("mine")
    (desk.target / "tokenizer_config.json").write_text('{"edited": true}')
    elsewhere = desk.home / "elsewhere.bin"
    elsewhere.write_text("mine, too")
    (desk.target / "config.json").unlink()
    (desk.target / "config.json").symlink_to(elsewhere)
    removal = remove_model(only(library), library.journals)
    assert removal.kept == ("config.json", "notes.txt", "tokenizer_config.json")
    assert sorted(p.name for p in desk.target.iterdir()) == list(removal.kept)
    assert elsewhere.read_text() == "mine, too"
    assert removal.freed > len(FILES[SHARD])


def test_deleting_leaves_no_empty_folder(desk: Desk, library: Library) -> None:
    download(desk)
    assert remove_model(only(library), library.journals).kept == ()
    assert not desk.target.parent.exists()


def test_a_forged_manifest_deletes_nothing_outside(desk: Desk, library: Library) -> None:
    download(desk)
    victim = desk.home / "victim"
    victim.write_text("mine")
    manifest = desk.target / ".inkstand.json"
    value = json.loads(manifest.read_text())
    entry = {**value["files"]["config.json"], "size": 4, "mtime_ns": victim.stat().st_mtime_ns}
    value["files"] |= {"../../../victim": entry, str(victim): entry}
    manifest.write_text(json.dumps(value))
    remove_model(only(library), library.journals)
    assert victim.read_text() == "mine"


def test_moving_takes_the_models_and_leaves_the_rest(desk: Desk, library: Library, tmp_path: Path) -> None:
    download(desk)
    download(desk, "owner/second", {"config.json": FILES["config.json"], "mtp.safetensors": FILES["mtp.safetensors"]})
    put(tmp_path / "models" / "own" / "handmade")
    (desk.target / "notes.txt").write_text("mine")
    library.pair(library.find(REPO), library.find("owner/second"))
    reports: list[tuple[int, int]] = []
    moved = move_models(
        library, tmp_path / "volume" / "models", report=lambda done, total: reports.append((done, total))
    )
    assert reports[-1] == (moved, moved)
    assert library.models_folder == tmp_path / "volume" / "models"
    models = {m.name: m for m in library.models()}
    assert set(models) == {REPO, "owner/second"}
    assert models[REPO].path == tmp_path / "volume" / "models" / REPO
    assert models[REPO].loadable
    head = library.head_for(models[REPO], models.values())
    assert head is not None
    assert head.name == "owner/second"
    assert sorted(p.name for p in desk.target.iterdir()) == ["notes.txt"]
    assert len(list((tmp_path / "models" / "own" / "handmade").iterdir())) == len(FILES)
    assert not (tmp_path / "models" / "owner" / "second").exists()


def test_moving_takes_an_unfinished_download_along(hub: FakeHub, desk: Desk, library: Library, tmp_path: Path) -> None:
    hub.push(REPO, FILES)
    hub.slice = 1 << 12
    hub.fault = lambda request: Fault(rate=4e5)

    async def half() -> None:
        async with desk.manager() as manager:
            job = await manager.start(await desk.plan(manager))
            await until(lambda: manager.downloads()[0].done >= 8 * CHUNK)
            await manager.pause(job)

    async def rest() -> None:
        async with desk.manager() as manager:
            (job,) = await manager.restore()
            shown = manager.downloads()[0]
            assert (shown.state, shown.target) == ("paused", str(tmp_path / "new" / REPO))
            assert shown.done >= 8 * CHUNK
            await manager.resume(job)
            assert (await manager.wait(job)).state == "ready"

    asyncio.run(half())
    since = len(hub.log)
    hub.fault = lambda request: None
    move_models(library, tmp_path / "new")
    asyncio.run(rest())
    assert hub.sent(since=since) <= sum(map(len, FILES.values())) - 8 * CHUNK
    assert only(library).loadable


def test_moving_refuses_before_anything_is_touched(desk: Desk, library: Library, tmp_path: Path) -> None:
    class Small(Disk):
        def free(self, folder: Path) -> int:
            return 10

    download(desk)
    in_the_way = tmp_path / "new" / REPO / "config.json"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("theirs")
    with pytest.raises(TargetError, match="in the way"):
        move_models(library, tmp_path / "new")
    with pytest.raises(TargetError, match="inside each other"):
        move_models(library, tmp_path / "models" / "deeper")
    if Path("/dev/shm").is_dir():
        with pytest.raises(DiskFullError):
            move_models(library, Path("/dev/shm/inkstand-test-never-made"), disk=Small())
    with lock_folder(library.journals, desk.target), pytest.raises(BusyError):
        move_models(library, tmp_path / "other")
    for folder in (in_the_way / "below", tmp_path / "made" / ("n" * 300)):
        with pytest.raises(TargetError, match="cannot be written"):
            move_models(library, folder)
    assert library.settings.read().moving is None
    assert only(library).loadable
    assert library.models_folder == tmp_path / "models"


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a second volume")
def test_moving_to_another_volume(desk: Desk, library: Library) -> None:
    download(desk)
    volume = Path("/dev/shm") / f"inkstand-{desk.home.name}-{id(desk)}"
    try:
        move_models(library, volume)
        model = only(library)
        assert (model.path, model.loadable) == (volume / REPO, True)
        assert not desk.target.exists()
    finally:
        shutil.rmtree(volume, ignore_errors=True)


def test_heads_find_their_models(tmp_path: Path, library: Library) -> None:
    shelf = tmp_path / "models"
    put(shelf / "a" / "own")
    put(shelf / "b" / "plain", "config.json", SHARD, "model.safetensors.index.json")
    put(shelf / "c" / "head", "config.json", "mtp.safetensors")
    stranger = put(shelf / "d" / "stranger", "config.json", "mtp.safetensors")
    config = json.loads(FILES["config.json"])
    config["text_config"]["hidden_size"] = 128
    (stranger / "config.json").write_text(json.dumps(config))
    models = library.models()
    own, plain, head, other = (library.find(name, models) for name in ("a/own", "b/plain", "c/head", "d/stranger"))
    assert library.head_for(own, models) == own
    assert library.head_for(plain, models) == head
    with pytest.raises(NoHeadError, match="hidden_size is 128, that of b/plain is 64"):
        library.pair(plain, other)
    with pytest.raises(NoHeadError, match="has no MTP head"):
        library.pair(own, plain)
    library.pair(plain, own)
    assert library.head_for(plain, models) == own
    library.pair(own, None)
    assert library.head_for(own, models) is None
    library.unpair(own)
    assert library.head_for(own, models) == own


def test_only_what_is_complete_is_found_for_loading(desk: Desk, library: Library) -> None:
    download(desk)
    download(desk, "owner/head", kind="head")
    assert find_checkpoint(REPO, library) == Checkpoint(desk.target, desk.target)
    (desk.target / "mtp.safetensors").unlink()
    with pytest.raises(UserError, match=r"owner/model cannot be loaded: it is incomplete.*mtp\.safetensors"):
        find_checkpoint(REPO, library)
    with pytest.raises(UserError, match="only an MTP head"):
        find_checkpoint("owner/head", library)


def test_names_of_models(tmp_path: Path, library: Library) -> None:
    put(tmp_path / "models" / "a" / "Tiny")
    path = tmp_path / "models" / "a" / "Tiny"
    assert {library.find(name).path for name in ("a/Tiny", "tiny", str(path))} == {path}
    with pytest.raises(UnknownModelError, match="'nope'"):
        library.find("nope")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"folders": 3}', '{"seen": {"x": 1}}', '{"pairs": []}'])
def test_damaged_settings_are_the_defaults(tmp_path: Path, library: Library, text: str) -> None:
    (tmp_path / "library.json").write_text(text)
    put(tmp_path / "models" / "a" / "b")
    assert only(library).name == "a/b"


def test_the_catalog_knows_what_runs_where() -> None:
    assert len({e.repo for e in CATALOG}) == len(CATALOG)
    entry = find_entry("THINKINGMACHINES/inkling-small-nvfp4")
    assert entry is not None
    assert entry.has_head
    mxfp4 = find_entry("mlx-community/Inkling-Small-mxfp4")
    assert mxfp4 is not None
    # 140.3 GB of weights, 4.5 GB of head, 0.3 GB of cache at 8192 tokens.
    assert mxfp4.download == pytest.approx(144.7e9, rel=0.01)
    assert mxfp4.memory == pytest.approx(147e9, rel=0.01)
    assert [e.repo for e in that_run_in(16 * 10**9)] == ["inference-optimization/Inkling-0.6B-A0.6B"]
    assert mxfp4 in that_run_in(256 * 10**9)
    assert mxfp4 not in that_run_in(128 * 10**9)


def test_an_interrupted_move_goes_on_when_it_is_asked_for_again(desk: Desk, library: Library, tmp_path: Path) -> None:
    download(desk)

    class PowerCutError(Exception):
        pass

    def cut(_moved: int, _total: int) -> None:
        raise PowerCutError

    for _ in range(2):
        with pytest.raises(PowerCutError):
            move_models(library, tmp_path / "new", report=cut)
        assert library.settings.read().moving is not None
    # Another wish: first the old one is fulfilled.
    move_models(library, tmp_path / "newer")
    model = only(library)
    assert (model.path, model.verified) == (tmp_path / "newer" / REPO, True)
    settings = library.settings.read()
    assert (settings.moving, settings.folders) == (None, [])
    assert move_models(library, tmp_path / "newer") == 0
