"""The peer's process, as seen from here; `peer_mlx_vlm.py` is the other side."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from engine.errors import UserError

SCRIPT = Path(__file__).with_name("peer_mlx_vlm.py")
OWN_BLOCK = 0
"""Stands for the block size that the peer's drafter chooses."""


class PeerError(UserError):
    """The peer cannot be started, or failed."""


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    ids: tuple[int, ...]
    decode_tps: float | None
    rounds: int


class Peer:
    """A peer that stays loaded and computes only while it is asked; a context manager that ends its process.

    Args:
        python: interpreter of an environment that has the peer.
        model: checkpoint in the published layout, see `engine.bench.peer_copy`.
        work: existing directory for the peer's log; the split head goes below `model`.
        threads: of its BLAS; None for the library's own choice.
        reference_blas: leave it with the BLAS that mlx links.
        script: replaces the server (used by tests).

    Raises:
        PeerError: there is no such interpreter, it lacks a package, or the peer cannot load the checkpoint.
    """

    def __init__(
        self,
        python: str,
        *,
        model: Path,
        work: Path,
        threads: int | None,
        reference_blas: bool = False,
        script: Path = SCRIPT,
    ) -> None:
        if not script.is_file():
            raise PeerError(f"The peer's script {script} is missing.", "Install Inkstand from a wheel or a checkout.")
        self._log = work / "peer.log"
        command = [python, str(script), "--model", str(model), "--head", str(model / "head")]
        try:
            with self._log.open("w", encoding="utf-8") as log:
                self._process = subprocess.Popen(
                    [*command, "--reference-blas"] if reference_blas else command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    encoding="utf-8",
                    env=_environment(threads),
                )
        except OSError as error:
            raise PeerError(
                f"The peer's interpreter {python} cannot be run: {error.strerror}.",
                "Name the python of a virtual environment that has mlx-vlm with --peer.",
            ) from error
        try:
            hello = self._read()
            self.versions: dict[str, str | None] = dict(cast("Mapping[str, str | None]", hello["versions"]))
            self.block = int(hello["block"])
            """Block size that the peer's drafter chooses."""
        except BaseException:
            self.close()
            raise

    def ask(self, ids: Sequence[int], *, tokens: int, stop: Sequence[int], block: int | None) -> PeerAnswer:
        """Continue `ids` greedily by at most `tokens`; `block` is None for plain decoding. Raises `PeerError`."""
        assert self._process.stdin is not None
        question = {"ids": list(ids), "tokens": tokens, "stop": list(stop), "block": block}
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._failure("ended") from error
        answer = self._read()
        return PeerAnswer(tuple(answer["ids"]), answer["decode_tps"], answer["rounds"])

    def close(self) -> None:
        """End the process."""
        process = self._process
        if process.stdin is not None and not process.stdin.closed:
            with contextlib.suppress(OSError):  # it may have ended before it read everything
                process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure("ended without an answer")
        try:
            message: object = json.loads(line)
        except ValueError:
            raise self._failure(f"wrote {line.strip()[:80]!r}") from None
        if not isinstance(message, dict):
            raise self._failure(f"wrote {line.strip()[:80]!r}")
        fields = cast("dict[str, Any]", message)
        if "error" in fields:
            raise self._failure(f"failed: {fields['error']}")
        return fields

    def _failure(self, what: str) -> PeerError:
        hint = f"Its messages are in {self._log}."
        if "ModuleNotFoundError" in what:
            hint = 'Install it into that environment: pip install mlx-vlm "mlx[cpu]" torch cmeel-openblas'
        elif (words := self._last_words()) is not None:
            hint = f"Its last words: {words}"
        return PeerError(f"The peer {what}.", hint)

    def _last_words(self) -> str | None:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else None


def _environment(threads: int | None) -> dict[str, str]:
    environ = dict(os.environ)
    if threads is not None:
        environ["OPENBLAS_NUM_THREADS"] = str(threads)
    # Ours, where it is set, would make the peer import another environment's packages.
    environ.pop("PYTHONPATH", None)
    return environ
