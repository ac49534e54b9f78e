"""Opens the library and the downloads. Importing them takes half a second, so it happens on a thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.settings import Settings
from engine.paths import UserPaths

if TYPE_CHECKING:
    from engine.hub.library import Library
    from engine.hub.manager import DownloadManager


@dataclass(frozen=True, slots=True)
class HubAccess:
    """What the model manager works with. `manager` makes the downloads in the loop that is to run them."""

    library: Library
    manager: Callable[[], DownloadManager]


def open_hub(paths: UserPaths, settings: Callable[[], Settings]) -> HubAccess:
    """The user's own library, and downloads that follow the settings for endpoint, token and bandwidth."""
    from engine.hub.client import HubClient  # noqa: PLC0415
    from engine.hub.manager import DownloadManager  # noqa: PLC0415
    from engine.installed import open_library  # noqa: PLC0415

    library = open_library(paths)

    def client(endpoint: str | None) -> HubClient:
        now = settings()
        return HubClient(endpoint=endpoint or now.endpoint, token=None if now.use_token else False)

    def manager() -> DownloadManager:
        return DownloadManager(library.journals, client=client, rate=settings().bandwidth_limit)

    return HubAccess(library, manager)
