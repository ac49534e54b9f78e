"""What can go wrong between the hub and the disk. Each class has a stable `reason` for --json and the window."""

from __future__ import annotations

from typing import ClassVar

from engine.errors import UserError


class HubError(UserError):
    """Base of all of them; raised itself only for what has no class of its own."""

    reason: ClassVar[str] = "hub"


class TokenError(HubError):
    """The hub refused the token (401)."""

    reason = "token"


class GatedError(HubError):
    """The repository wants its terms accepted first."""

    reason = "gated"


class ForbiddenError(HubError):
    """The token is good but may not read this repository (403)."""

    reason = "forbidden"


class RepoNotFoundError(HubError):
    """No such repository, or a private one that the caller may not see: the hub does not tell them apart."""

    reason = "not-found"


class RevisionNotFoundError(HubError):
    """The repository has no such branch, tag or commit."""

    reason = "revision"


class FileMissingError(HubError):
    """The repository has no such file at this revision."""

    reason = "file"


class OfflineError(HubError):
    """No connection to the hub, or offline mode."""

    reason = "offline"


class RateLimitedError(HubError):
    """The hub asks to come back later than is worth waiting for."""

    reason = "rate-limited"


class ServerError(HubError):
    """The hub keeps failing, or speaks no HTTP that makes sense."""

    reason = "server"


class ChangedError(HubError):
    """A file of a pinned commit does not stay the same."""

    reason = "changed"


class ChecksumError(HubError):
    """The bytes that arrived are not those the hub announced."""

    reason = "checksum"


class DiskFullError(HubError):
    """The target volume has no room left."""

    reason = "disk-full"


class TargetError(HubError):
    """The target folder cannot be written, or holds something that is not ours."""

    reason = "target"


class UnavailableError(HubError):
    """The folder or its volume is not there at the moment."""

    reason = "unavailable"


class UnsafeNameError(HubError):
    """A name that must not become a path."""

    reason = "unsafe-name"


class SelectionError(HubError):
    """The globs or the kind of plan select nothing."""

    reason = "selection"


class NoHeadError(SelectionError):
    """The repository has no MTP tensors."""

    reason = "no-head"


class BusyError(HubError):
    """Another process is at it."""

    reason = "busy"


class UnknownModelError(HubError):
    """The library has no such model."""

    reason = "unknown-model"
