"""Measurements of the app: `python -m app.bench`."""
