from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.engine_host import Checkpoint, LoadRequest
from engine.installed import open_library
from engine.paths import user_paths

TINY = Path(__file__).parents[1] / "data" / "inkling-tiny"


def put(folder: Path, *, head: bool, backbone: bool) -> Path:
    folder.mkdir(parents=True)
    for path in TINY.iterdir():
        wanted = path.name == "config.json" or (head if path.name == "mtp.safetensors" else backbone)
        if wanted:
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_a_model_started_again_gets_the_head_it_is_paired_with() -> None:
    models = user_paths().models
    plain = put(models / "owner" / "plain", head=False, backbone=True)
    request = LoadRequest(plain, "plain")
    alone = Checkpoint(request, lambda _fraction, _text: None)
    assert alone.facts.depths == 0
    assert alone.facts.head_reason is not None
    put(models / "owner" / "head", head=True, backbone=False)
    paired = Checkpoint(request, lambda _fraction, _text: None)
    assert paired.facts.depths == 3


def test_a_head_that_is_left_out_stays_out_at_every_start() -> None:
    models = user_paths().models
    whole = put(models / "owner" / "whole", head=True, backbone=True)
    request = LoadRequest(whole, "whole")
    assert Checkpoint(replace(request, draft_kind="none"), lambda _fraction, _text: None).facts.depths == 0
    library = open_library()
    library.pair(library.find("owner/whole"), None)
    left_out = Checkpoint(request, lambda _fraction, _text: None)
    assert left_out.facts.depths == 0
    assert "left out" in (left_out.facts.head_reason or "")
    library.unpair(library.find("owner/whole"))
    assert Checkpoint(request, lambda _fraction, _text: None).facts.depths == 3


def test_a_head_chosen_from_elsewhere_is_loaded_instead_of_the_own() -> None:
    models = user_paths().models
    whole = put(models / "owner" / "whole", head=True, backbone=True)
    head = put(models / "owner" / "head", head=True, backbone=False)
    library = open_library()
    library.pair(library.find("owner/whole"), library.find(str(head)))
    (whole / "mtp.safetensors").unlink()
    assert Checkpoint(LoadRequest(whole, "whole"), lambda _fraction, _text: None).facts.depths == 3


def test_a_directory_outside_the_library_is_loaded_as_it_is(tmp_path: Path) -> None:
    whole = put(tmp_path / "whole", head=True, backbone=True)
    assert Checkpoint(LoadRequest(whole, "whole"), lambda _fraction, _text: None).facts.depths == 3
    plain = put(tmp_path / "plain", head=False, backbone=True)
    assert Checkpoint(LoadRequest(plain, "plain"), lambda _fraction, _text: None).facts.depths == 0
