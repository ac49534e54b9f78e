"""The download that is killed is that of the hub's own tests."""

from kill_child import download

__all__ = ["download"]
