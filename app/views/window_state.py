"""What a window remembers of itself, as bytes for the settings."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WindowState:
    """Geometry as Qt packs it, which parts are shown and how wide, and the chat that was open."""

    geometry: bytes
    sidebar: bool
    panel: bool
    split: tuple[int, ...]
    chat: int | None


def pack(state: WindowState) -> bytes:
    values = {
        "geometry": b64encode(state.geometry).decode(),
        "sidebar": state.sidebar,
        "panel": state.panel,
        "split": list(state.split),
        "chat": state.chat,
    }
    return json.dumps(values).encode()


def unpack(packed: bytes) -> WindowState | None:
    """None when it is empty or not what `pack` made."""
    try:
        values = json.loads(packed)
        return WindowState(
            geometry=b64decode(values["geometry"]),
            sidebar=bool(values["sidebar"]),
            panel=bool(values["panel"]),
            split=tuple(int(size) for size in values["split"]),
            chat=None if values["chat"] is None else int(values["chat"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
