"""The journal of a download: what it remembers, through torn lines, failing disks and other programs' bytes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.hub.chunks import ChunkMap
from engine.hub.errors import HubError
from engine.hub.journal import Journal, JournalState, read_journal
from engine.hub.manifest import FileEntry


def full(chunks: ChunkMap) -> set[int]:
    """The chunks that nobody would fetch any more."""
    count = -(-chunks.size // chunks.chunk)
    asked = iter(lambda: chunks.claim(1, count), None)
    return set(range(count)) - {claim.start // chunks.chunk for claim in asked}


def test_a_journal_remembers_what_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.begin({"files": []}, "key", 1)
    record = journal.start_file("ünï.safetensors", size=95, chunk=10, identity="abc")
    for chunk in (0, 1, 2, 9):
        journal.full(record, chunk)
    journal.part(record, 4, 7)
    journal.pin(record, "etag")
    journal.close()
    for _ in range(2):  # opening rewrites the file; what it says stays the same
        state = read_journal(path)
        found = state.files["ünï.safetensors"]
        chunks = found.chunks()
        assert (chunks.done, chunks.frontier, found.etag) == (30 + 5 + 7, 30, "etag")
        assert full(chunks) == {0, 1, 2, 9}
        Journal(path).close()
    assert (state.plan, state.key, state.state) == ({"files": []}, "key", {"state": "running"})


@given(cut=st.integers(0, 400))
def test_a_journal_torn_anywhere_claims_nothing_that_was_not_noted(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("journal") / "j.jsonl"
    journal = Journal(path)
    journal.begin({}, "key", 1)
    first = journal.start_file("a", size=100, chunk=10, identity="old")
    for chunk in range(5):
        journal.full(first, chunk)
    second = journal.start_file("a", size=100, chunk=10, identity="new")
    journal.full(second, 7)
    journal.close()
    # Torn by a full disk, and gone on with: the lines that follow are about the second version.
    path.write_bytes(path.read_bytes()[:cut] + b'\n{"k":%d,"c":8}' % second.key)
    record = read_journal(path).files.get("a")
    if record is not None:
        claimed = full(record.chunks())
        assert claimed <= ({7, 8} if record.identity == "new" else set(range(5)))


def test_a_file_that_has_its_name_is_remembered_as_that(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.begin({}, "key", 1)
    record = journal.start_file("a", size=20, chunk=10, identity="one")
    journal.naming(record)
    journal.show(record, 15)
    assert read_journal(path).files["a"].naming
    journal.close()
    journal = Journal(path)  # rewritten
    again = read_journal(path).files["a"]
    assert (again.naming, again.shown) == (True, 15)
    entry = FileEntry(20, "sha", "one", 5)
    journal.finish("a", entry)
    journal.set_state("ready", reason=None)
    journal.close()
    journal.close()
    state = read_journal(path)
    assert (state.files, state.done, state.state["state"]) == ({}, {"a": entry}, "ready")


def test_another_selection_starts_a_list_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.begin({"n": 1}, "one", 1)
    journal.finish("a", FileEntry(1, "s", "i", 2))
    journal.begin({"n": 2}, "one", 1)
    assert list(journal.state.done) == ["a"]
    journal.begin({"n": 3}, "two", 7)
    journal.close()
    state = read_journal(path)
    assert (state.plan, state.key, state.device, state.done) == ({"n": 3}, "two", 7, {})


def test_files_are_forgotten_by_another_selection_only(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    done = '{"done": "a", "size": 1, "sha256": "s", "identity": "i", "mtime_ns": 2}'
    first, again, other = (json.dumps({"plan": {"n": n}, "key": key}) for n, key in ((1, "x"), (2, "x"), (3, "y")))
    path.write_text("\n".join([first, done, again]))
    assert list(read_journal(path).done) == ["a"]
    path.write_text("\n".join([first, done, other]))
    assert read_journal(path).done == {}


def test_progress_of_the_same_version_does_not_go_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    record = journal.start_file("a", size=100, chunk=10, identity="one")
    journal.show(record, 60)
    assert journal.start_file("a", size=100, chunk=10, identity="one").shown == 60
    assert read_journal(journal.path).files["a"].shown == 60
    assert journal.start_file("a", size=100, chunk=10, identity="two").shown == 0
    journal.remove()
    assert not journal.path.exists()


def test_a_part_file_counts_as_far_as_it_is_there(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    record = journal.start_file("a", size=95, chunk=10, identity="one")
    assert record.holds("one", 95, 0)
    journal.full(record, 9)
    journal.part(record, 2, 4)
    assert record.holds("one", 95, 95)
    assert not record.holds("one", 95, 94)
    assert not record.holds("two", 95, 95)
    assert not record.holds("one", 96, 95)
    journal.close()


JUNK = [
    b"[1, 2]",
    b"{",
    b"\xff",
    b"[" * 100_000,
    b'{"unknown": 1}',
    b'{"k": 9, "c": 1}',
    b'{"k": [], "c": 1}',
    b'{"file": "b"}',
    b'{"file": "b", "k": Infinity, "size": 1, "chunk": 1, "identity": "x"}',
    b'{"k": 0, "c": 1e999}',
    b'{"done": "b", "size": 1e999, "sha256": "", "identity": "", "mtime_ns": 1}',
    b'{"plan": 1, "key": "key"}',
    b'{"plan": {}}',
    b'{"k": 0, "shown": {}}',
]


@pytest.mark.parametrize("junk", JUNK, ids=[line[:24].decode("latin-1") for line in JUNK])
def test_a_line_that_is_none_costs_nothing_else(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.begin({}, "key", 1)
    record = journal.start_file("a", size=50, chunk=10, identity="one")
    path.write_bytes(path.read_bytes() + b"\n" + junk)
    journal.full(record, 3)
    journal.close()
    state = read_journal(path)
    assert (state.plan, state.key) == ({}, "key")
    assert list(state.files) == ["a"]
    assert state.files["a"].chunks().done == 10
    Journal(path).close()
    assert read_journal(path).files["a"].chunks().done == 10


def test_sizes_below_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text('{"file": "b", "k": 5, "size": -1, "chunk": 0, "identity": "x"}')
    assert read_journal(path).files["b"].chunks().complete


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "none") == JournalState()


def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    journal = Journal(tmp_path / "j.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(HubError, match=r"full|No space"):
            journal.set_state("paused")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(HubError, match=r"full|No space"):
            journal.begin({}, "key", 1)
    # What was there is still there, and the journal goes on.
    journal.set_state("running")
    journal.close()
    assert read_journal(journal.path).state == {"state": "running"}
    assert json.loads(journal.path.read_text().splitlines()[-1]) == {"state": "running"}


def test_what_stands_in_the_place_of_a_journal_is_told(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    journal.path.unlink()
    journal.path.mkdir()
    with pytest.raises(HubError, match=r"j\.jsonl"):
        read_journal(journal.path)
    with pytest.raises(HubError, match=r"j\.jsonl"):
        journal.remove()
    with pytest.raises(HubError, match=r"j\.jsonl"):
        Journal(journal.path)
