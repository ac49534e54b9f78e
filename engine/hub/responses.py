"""What a refusal or a broken connection means to the user."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

import httpx2

from engine.hub.errors import (
    FileMissingError,
    ForbiddenError,
    GatedError,
    HubError,
    OfflineError,
    RepoNotFoundError,
    RevisionNotFoundError,
    ServerError,
    TokenError,
)

_LOGIN = "Set HF_TOKEN, or log in with `hf auth login`"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a request is about; for messages."""

    repo: str
    revision: str
    path: str | None = None

    def __str__(self) -> str:
        return f"{self.repo}/{self.path}" if self.path else self.repo


class TransientError(Exception):
    """An attempt failed and another may work.

    Args:
        shown: what to tell the user if it does not.
        wait: seconds the server asks to wait; None = the client's own back-off.
        patience: failures in a row, without a byte, after which it counts as lasting; None = no such number.
    """

    def __init__(self, shown: HubError, *, wait: float | None = None, patience: int | None = None) -> None:
        super().__init__(str(shown))
        self.shown = shown
        self.wait = wait
        self.patience = patience


def rejection(response: httpx2.Response, subject: Subject, *, endpoint: str, with_token: bool) -> HubError:
    """The error for a final answer of the hub. The hub's error codes count more than its status.

    Without a token the hub answers 401 both for a private repository and for one that does not exist.
    """
    status = response.status_code
    code = response.headers.get("x-error-code", "")
    message = response.headers.get("x-error-message", "")
    host = httpx2.URL(endpoint).host
    repo = subject.repo
    error: HubError
    if code == "GatedRepo":
        if with_token:
            cure = f"Accept the terms on {endpoint}/{repo} with the account that the token belongs to, then try again."
        else:
            cure = f"Accept the terms on {endpoint}/{repo}. {_LOGIN}, then try again."
        error = GatedError(f"{repo} is gated: its owner wants the terms accepted first.", cure)
    elif "disabled" in message.lower() or status == 451:
        error = ForbiddenError(f"{host} has disabled {repo}.", f"{endpoint}/{repo} may say why.")
    elif status == 401 and with_token and code != "RepoNotFound":
        error = TokenError(
            f"{host} refused the token (401): it is wrong, expired or revoked.",
            f"Make a new token on {endpoint}/settings/tokens. {_LOGIN}.",
        )
    elif code == "RevisionNotFound":
        error = RevisionNotFoundError(
            f"{repo} has no revision {subject.revision!r}.", "Leave out --revision, or name a branch, tag or commit."
        )
    elif code == "EntryNotFound" or (status == 404 and subject.path and code != "RepoNotFound"):
        error = FileMissingError(
            f"{repo} has no file {subject.path!r} at {subject.revision[:12]}.", "Plan the download again."
        )
    elif status == 403:
        error = ForbiddenError(
            f"{host} forbids access to {repo} (403).",
            f"Give the token read access to this repository on {endpoint}/settings/tokens."
            if with_token
            else f"{_LOGIN} with an account that may read it.",
        )
    elif status in (401, 404) or code == "RepoNotFound":
        error = RepoNotFoundError(
            f"{host} has no repository {repo}, or it is private.",
            "Check the spelling; for a private repository use a token of an account that may read it."
            if with_token
            else f"Check the spelling. If it is private: {_LOGIN}.",
        )
    else:
        error = ServerError(f"{host} answered {status} for {subject}.", "Try again later.")
    return error


def transport_failure(error: httpx2.TransportError, host: str) -> HubError | TransientError:
    """What a failed connection is: worth another attempt, except where the certificate is not trusted."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ServerError(
                f"The certificate of {host} is not trusted: {cause.verify_message}.",
                "Behind a proxy that inspects traffic, set SSL_CERT_FILE to its certificate. Check the clock, too.",
            )
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
        return ServerError(f"The request to {host} cannot be made: {error}.", "Check HF_ENDPOINT and HF_TOKEN.")
    if isinstance(error, httpx2.ReadTimeout):
        what = f"{host} sends nothing"
    elif isinstance(error, httpx2.ProxyError):
        what = f"The proxy does not connect to {host} ({error})"
    elif isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        what = f"{host} cannot be reached"
    else:
        what = f"The connection to {host} broke"
    return TransientError(OfflineError(f"{what}.", "Check the network, then run the same again: it continues."))
