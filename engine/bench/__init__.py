"""Measurements that are run by hand: `python -m engine.bench.hub`."""
