"""Rows of the model manager from every state that a model or a download can be in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app import scripted_models as scripted
from app.model_rows import ACTIVE, TITLES, Row, Shelf, cure_of, describe_progress, overall, rows_of
from engine.cli.units import size
from engine.hub.catalog import CATALOG
from engine.hub.entry import Model
from engine.hub.facts import ModelFacts
from engine.paths import demo_checkpoint
from engine.weights.inspect import inspect


def row_of(shelf: Shelf, title: str) -> Row:
    return next(row for row in rows_of(shelf) if row.title == title and row.section != "Catalog")


def model(status: str = "ready", *, head: bool = False, backbone: bool = True) -> Model:
    facts = ModelFacts("Inkling", "mlx-vlm", "mxfp4 4-bit", backbone=backbone, head=head, head_note="8 depths in mtp")
    problem = None if status == "ready" else "Something is wrong."
    return Model("m", Path("/models/m"), "inkstand", status, 5, repo=scripted.PIPE, problem=problem, facts=facts)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("status", "main", "state"),
    [
        ("ready", "load", "Ready"),
        ("incomplete", "resume", "Incomplete"),
        ("corrupt", "repair", "Damaged"),
        ("unusable", None, "Cannot be loaded"),
        ("unavailable", "look-again", "Not there"),
    ],
)
def test_each_state_has_one_main_action(status: str, main: str | None, state: str) -> None:
    row = row_of(Shelf(models=[model(status)]), "m")
    assert (row.main, row.state) == (main, state)
    assert (row.note is not None) == (status != "ready")
    assert "delete" in row.menu or status == "unavailable"
    assert ("forget" in row.menu) == (status == "unavailable")


def test_a_loaded_model_without_a_head_offers_one_first() -> None:
    plain = model()
    row = row_of(Shelf(models=[plain]), "m")
    assert (row.main, row.head_offer, row.head_repo) == ("load", "Add MTP head (4.46 GB)", scripted.SMALL)
    row = row_of(Shelf(models=[plain], loaded="/models/m"), "m")
    assert (row.main, row.head_offer, row.head_repo) == ("add-head", "", scripted.SMALL)
    assert "unload" in row.menu
    # Once the head is there, the model has to be loaded again to use it.
    row = row_of(Shelf(models=[plain], loaded="/models/m", heads={"/models/m": plain}), "m")
    assert (row.main, row.state) == ("load", "Loaded without the head")
    row = row_of(Shelf(models=[plain], loaded="/models/m", heads={"/models/m": plain}, loaded_depths=8), "m")
    assert (row.main, row.state) == (None, "Loaded")


def test_a_head_that_is_left_out_can_be_taken_up_again() -> None:
    own = model(head=True)
    row = row_of(Shelf(models=[own], left_out=frozenset({"/models/m"}), loaded="/models/m"), "m")
    assert (row.main, row.state) == (None, "Loaded")
    assert (row.head_offer, row.head_action) == ("Use MTP head", "use-head")
    assert "without its MTP head" in row.detail
    # It was loaded with the head before that was chosen.
    row = row_of(Shelf(models=[own], left_out=frozenset({"/models/m"}), loaded="/models/m", loaded_depths=8), "m")
    assert (row.main, row.state) == ("load", "Loaded with the head")


def test_a_head_alone_is_for_other_models() -> None:
    row = row_of(Shelf(models=[model("incomplete", head=True, backbone=False)]), "m")
    assert (row.section, row.main, row.note) == ("MTP heads", None, None)


def test_the_demo_cannot_be_deleted_and_models_leave_the_catalog() -> None:
    rows = rows_of(scripted.shelf())
    demo = rows[0]
    assert demo.title == "Inkstand Demo"
    assert not {"delete", "verify"} & set(demo.menu)
    catalog = {row.title for row in rows if row.section == "Catalog"}
    assert scripted.PIPE not in catalog
    assert scripted.MXFP4 in catalog
    assert scripted.SMALL in catalog, "only its head is there"
    assert len(rows_of(Shelf())) == len(CATALOG)


def test_pictures_show_the_demo_as_it_is() -> None:
    demo = rows_of(scripted.shelf())[0]
    files = sum(path.stat().st_size for path in demo_checkpoint().iterdir())
    assert demo.size == size(files)
    packing = inspect(demo_checkpoint()).packing
    assert max(packing, key=lambda how: packing[how]) in demo.detail
    assert "MTP head with 4 depths" in demo.detail


def test_what_needs_more_than_this_machine_is_marked() -> None:
    rows = {row.title: row for row in rows_of(Shelf(memory=scripted.MEMORY)) if row.section == "Catalog"}
    assert rows["thinkingmachines/Inkling"].state == "More than this machine's memory"
    assert rows[scripted.MXFP4].state == ""


@pytest.mark.parametrize("state", ["queued", "downloading", "stalled", "verifying", "paused", "failed"])
def test_downloads_come_first_and_can_be_paused_or_resumed(state: str) -> None:
    progress = scripted.download(state, 0.43)  # pyright: ignore[reportArgumentType]
    row = rows_of(scripted.shelf(progress))[0]
    assert row.title == scripted.MXFP4
    assert row.main == ("pause" if state in ACTIVE else "resume")
    assert {"cancel", "discard"} <= set(row.menu)
    assert (overall([progress]) is not None) == (state in ACTIVE)


def test_a_download_into_a_known_folder_is_one_row() -> None:
    progress = replace(scripted.download("downloading", 0.5), target=str(scripted.HOME / scripted.PIPE))
    rows = [row for row in rows_of(scripted.shelf(progress)) if row.key == progress.target]
    assert len(rows) == 1
    assert rows[0].progress is progress


def test_figures_of_a_download() -> None:
    running = scripted.download("downloading", 0.43)
    text = describe_progress(running)
    assert text.startswith("60.3 GB of 140 GB")
    assert "86.4 MB/s" in text
    assert "min" in text
    title, figures, share, stalled = overall([running, replace(running, repo="a/b")]) or ("", "", 0.0, True)
    assert (title, stalled) == ("2 downloads", False)
    assert figures.startswith("42 %")
    assert 0.42 < share < 0.43
    nearly = replace(running, done=running.total - 1)
    assert rows_of(Shelf(downloads=[nearly]))[0].state == "99 %", "100 % is for what is complete"
    assert overall([replace(running, total=0, done=0)]) is not None


def test_cures_are_in_the_windows_words() -> None:
    gated = cure_of("gated", "It is gated.", "Run `inkstand login`.")
    assert gated.action == "web-page"
    assert "`" not in gated.text
    unknown = cure_of("selection", "Nothing matches.", "Leave out --include.")
    assert unknown.text.startswith("Nothing matches. Choose another")
    assert "--" not in unknown.text
    kept = cure_of("server", "The hub fails.", "Try again later.")
    assert kept.text == "The hub fails. Try again later."
    assert all(note.action in TITLES for note in (gated, cure_of("token", "", "")))
