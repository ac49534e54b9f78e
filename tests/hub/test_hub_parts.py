"""The small parts: chunk map, rates, the bandwidth cap's grammar."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UserError
from engine.hub.chunks import ChunkMap, Claim
from engine.hub.limiter import parse_rate
from engine.hub.meter import RateMeter


@given(st.integers(0, 300), st.integers(1, 40), st.integers(1, 4), st.integers(1, 6), st.randoms(use_true_random=False))
def test_claims_cover_a_file_once_whatever_breaks(
    size: int, chunk: int, run: int, extra: int, dice: random.Random
) -> None:
    chunks, fetched = ChunkMap(size, chunk), bytearray(size)
    window = run + extra
    open_claims: list[list[int]] = []
    while not chunks.complete:
        claim = chunks.claim(run, window)
        if claim is not None:
            assert claim.stop - claim.start <= run * chunk
            assert claim.start < chunks.frontier + (window + 1) * chunk
            open_claims.append([claim.start, claim.stop, claim.start])
        work = dice.choice(open_claims)
        count = dice.randint(0, work[1] - work[2])
        if count:
            assert not any(fetched[work[2] : work[2] + count])
            fetched[work[2] : work[2] + count] = b"\1" * count
            chunks.wrote(work[2], count)
            work[2] += count
        if dice.random() < 0.5 or work[2] == work[1]:
            open_claims.remove(work)
            chunks.release(Claim(work[0], work[1]))
        assert chunks.done == sum(fetched)
        assert chunks.frontier == (fetched + b"\0").index(0)
    assert all(fetched)
    assert chunks.claim(run, window) is None


def test_bytes_out_of_place_are_a_bug() -> None:
    chunks = ChunkMap(100, 10)
    with pytest.raises(ValueError, match="does not follow"):
        chunks.wrote(25, 3)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("500k", 5e5), ("20M", 2e7), ("1.5MB/s", 1.5e6), ("8MiB", 8 * 2**20), ("1G", 1e9), ("300", 300), ("2 Ki", 2048)],
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "-1M", "0", "1i", "10T", "1e6", "nan"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(UserError, match="is not a rate"):
        parse_rate(text)


def test_the_rate_is_smooth_and_forgets() -> None:
    meter, now = RateMeter(0.0), 0.0
    assert meter.sample(0.5) is None
    for _ in range(200):
        now += 0.5
        meter.add(500_000 if now % 1 else 0)  # lumps, 0.5 MB a second on average
        rate = meter.sample(now)
    assert rate == pytest.approx(5e5, rel=0.1)
    for _ in range(60):
        now += 0.5
        meter.add(50_000)
        meter.sample(now)
    assert meter.eta(1_000_000, now) == pytest.approx(10, rel=0.1)
