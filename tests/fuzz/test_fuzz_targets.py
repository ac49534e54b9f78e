"""Every target over its seeds, over what was once found wrong, and over damaged versions of both."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_targets import CORPUS, TARGETS, load, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

FILES = [(name, path) for name in TARGETS for path in seeds(name)]
DAMAGE = st.lists(st.tuples(st.integers(0, 1_000_000), st.binary(max_size=6), st.integers(0, 8)), max_size=4)


@pytest.mark.parametrize(("name", "path"), FILES, ids=[f"{name}-{path.name}" for name, path in FILES])
def test_seeds_and_findings(name: str, path: Path) -> None:
    load(name)(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_seeds(name: str) -> None:
    read = load(name)

    @settings(max_examples=60)
    @given(st.sampled_from([path.read_bytes() for path in seeds(name)]), DAMAGE)
    def damaged(data: bytes, damage: list[tuple[int, bytes, int]]) -> None:
        for place, junk, gone in damage:
            at = len(data) * place // 1_000_000
            data = data[:at] + junk + data[at + gone :]
        read(data)

    damaged()


def test_every_folder_of_seeds_is_a_target_s() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
