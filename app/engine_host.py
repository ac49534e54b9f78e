"""The model that is loaded, and the jobs that run on the thread that owns it.

What holds arrays (the model, its session) lives in a `_Slot` that only jobs read; the window sees `ModelFacts`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from PySide6.QtCore import QObject, Signal

from app.bridge import Bridge, Sink, Stamped
from engine.errors import UserError
from engine.events import Event, Failed
from engine.messages import Message
from engine.worker import Done, EngineWorker, Job

Progress = Callable[[float, str], None]


class ModelSession(Protocol):
    """`engine.session.Session`, as far as the window uses it."""

    def generate(
        self, messages: Sequence[Message], options: Any, *, effort: float | None, cancel: threading.Event
    ) -> Iterator[Event]: ...
    def set_drafting(self, on: bool) -> None: ...
    def set_block_size(self, block_size: int | None) -> None: ...


class OpenModel(Protocol):
    """A checkpoint in memory; made and used on the engine's thread, except where noted."""

    facts: ModelFacts

    def session(self, *, drafting: bool, block_size: int | None, context: int | None) -> ModelSession: ...
    def options(self, values: Mapping[str, Any]) -> Any:
        """Sampling values as the session takes them. Raises UserError for a wrong one."""
        ...

    def effort(self, name: str) -> float: ...
    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes of a token. Any thread."""
        ...

    def memory(self) -> int:
        """Bytes in use by the model and its caches. Any thread."""
        ...


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What to load: a checkpoint, a head from elsewhere or the checkpoint's own, tokens of context or the model's."""

    directory: Path
    name: str
    draft_directory: Path | None = None
    context: int | None = None
    draft_kind: Literal["auto", "none"] = "auto"
    """"none" leaves a head out although there is one."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the window knows of a loaded model."""

    name: str
    directory: Path
    depths: int
    """Blocks of the MTP head; 0 without one."""
    head_reason: str | None
    """Why there is no head."""
    context: int


@dataclass(frozen=True, slots=True)
class LoadProgress:
    fraction: float
    text: str


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One turn."""

    messages: Callable[[], Sequence[Message]]
    """Reads the conversation; called on the engine's thread, since a long one takes a while."""
    sampling: Mapping[str, Any]
    effort: str


ModelLoader = Callable[[LoadRequest, Progress], OpenModel]


class _Slot:
    """Holds the model and its session for the jobs, so that dropping it frees them."""

    def __init__(self) -> None:
        self.model: OpenModel | None = None
        self.session: ModelSession | None = None

    def clear(self) -> None:
        # Freed by reference counts: a collection here would take widgets apart on this thread.
        self.model = self.session = None
        core = sys.modules.get("mlx.core")
        if core is not None:
            # MLX keeps freed buffers for itself; the next model needs that memory.
            core.clear_cache()


class EngineHost(QObject):
    """Signals: changed (another model, or none), progressed (while loading), failed (the load's exception)."""

    changed = Signal()
    progressed = Signal()
    failed = Signal(object)

    def __init__(self, loader: ModelLoader, worker: EngineWorker, bridge: Bridge) -> None:
        super().__init__()
        self._loader = loader
        self._worker = worker
        self._bridge = bridge
        self._slot = _Slot()
        self._load_job: Job | None = None
        self._refusing = False
        self.facts: ModelFacts | None = None
        self.loading: LoadRequest | None = None
        self.progress = LoadProgress(0.0, "")
        self.drafting = True
        self.depth: int | None = None
        """Drafts per round; None leaves it to the engine."""

    # -- loading ------------------------------------------------------------------------------

    def load(self, request: LoadRequest) -> None:
        """Replace the model. What runs is not interrupted; the load waits for its turn."""
        if self._refusing:
            return
        if self._load_job is not None:
            self._load_job.cancel()
        self.loading, self.facts = request, None
        self.progress = LoadProgress(0.0, "")
        slot, loader = self._slot, self._loader
        drafting, block_size = self.drafting, self._block_size()

        def work(job: Job) -> ModelFacts:
            slot.clear()

            def progress(fraction: float, text: str) -> None:
                job.emit(LoadProgress(fraction, text))

            model = loader(request, progress)
            slot.session = model.session(drafting=drafting, block_size=block_size, context=request.context)
            slot.model = model
            return model.facts

        job = self._worker.submit(work, self._bridge.receiver(lambda events: self._on_load(request, events)))
        self._load_job = job
        self.changed.emit()

    def refuse_loads(self) -> None:
        """Make `load` do nothing from now on: who quits at once does so before the first model is asked for."""
        self._refusing = True

    def unload(self) -> None:
        """Free the model once what runs has ended."""
        self.facts = None
        slot = self._slot
        self._worker.submit(lambda _job: slot.clear(), lambda _event: None)
        self.changed.emit()

    def _on_load(self, request: LoadRequest, events: Sequence[Stamped]) -> None:
        if request is not self.loading:
            return
        for _, event in events:
            if isinstance(event, LoadProgress):
                self.progress = event
                self.progressed.emit()
                continue
            self.loading = self._load_job = None
            if isinstance(event, Done):
                assert isinstance(event.value, ModelFacts)
                self.facts = event.value
                # They may have been set while it loaded.
                self.set_drafting(self.drafting)
                self.set_depth(self.depth)
            self.changed.emit()
            if isinstance(event, Failed):
                self.failed.emit(event.error)

    # -- generating ---------------------------------------------------------------------------

    def generate(self, request: GenerateRequest, sink: Sink) -> Job:
        """Queue a turn in the session; its events arrive at `sink` in the window's thread."""
        slot = self._slot

        def work(job: Job) -> object:
            model, session = slot.model, slot.session
            if model is None or session is None:
                raise UserError("No model is loaded.", "Choose a model in the toolbar.")
            return job.stream(_events(model, session, request, job.cancelled))

        return self._worker.submit(work, self._bridge.receiver(sink))

    def replay(self, request: GenerateRequest, *, drafting: bool, sink: Sink) -> Job:
        """Queue the same turn in a session of its own, so that the chat's caches stay as they are."""
        slot, block_size = self._slot, self._block_size()

        def work(job: Job) -> object:
            model = slot.model
            if model is None:
                raise UserError("No model is loaded.", "Choose a model in the toolbar.")
            session = model.session(drafting=drafting, block_size=block_size, context=None)
            return job.stream(_events(model, session, request, job.cancelled))

        return self._worker.submit(work, self._bridge.receiver(sink))

    def set_drafting(self, on: bool) -> None:
        """Takes effect at the next round, also in the middle of an answer."""
        self.drafting = on
        session = self._slot.session
        if session is not None:
            session.set_drafting(on)

    def set_depth(self, depth: int | None) -> None:
        """Drafts per round from the next one on; None for the engine's choice."""
        self.depth = depth
        session = self._slot.session
        if session is not None:
            session.set_block_size(self._block_size())

    def _block_size(self) -> int | None:
        return None if self.depth is None else self.depth + 1

    # -- plain values -------------------------------------------------------------------------

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes of a token of the loaded model; none without one."""
        model = self._slot.model
        return b"" if model is None else model.token_bytes(token)

    def memory(self) -> int | None:
        model = self._slot.model
        return None if model is None else model.memory()

    def close(self, timeout: float) -> bool:
        """Cancel everything and end the thread; False when it did not end in time."""
        return self._worker.close(timeout)


def _events(
    model: OpenModel, session: ModelSession, request: GenerateRequest, cancel: threading.Event
) -> Iterator[Event]:
    options, effort = model.options(request.sampling), model.effort(request.effort)
    return session.generate(request.messages(), options, effort=effort, cancel=cancel)


LEFT_OUT = "The MTP head is left out for this model, as chosen under Models."


def _paired(request: LoadRequest) -> LoadRequest:
    """`request` with what the library knows of the checkpoint's head: chosen, left out, or one that fits."""
    from engine.installed import find_checkpoint, open_library  # noqa: PLC0415
    from engine.weights.head import HeadFound, find_head  # noqa: PLC0415

    if request.draft_directory is not None or request.draft_kind == "none":
        return request
    library = open_library()
    chosen = library.settings.read().pairs.get(str(request.directory))
    if chosen == "":
        return replace(request, draft_kind="none")
    if chosen is not None and isinstance(find_head(chosen), HeadFound):
        return replace(request, draft_directory=Path(chosen))
    if isinstance(find_head(request.directory), HeadFound):
        return request
    try:
        return replace(request, draft_directory=find_checkpoint(str(request.directory), library).head)
    except UserError:
        # Not in the library, or not loadable, which the load itself will tell.
        return request


class Checkpoint:
    """An `OpenModel` from a checkpoint directory. Everything of MLX is imported on the engine's thread."""

    def __init__(self, request: LoadRequest, progress: Progress) -> None:
        from engine.session import Engine  # noqa: PLC0415 (imports MLX, which must happen on this thread)

        request = _paired(request)
        engine = Engine.load(
            request.directory,
            draft_directory=request.draft_directory,
            draft_kind=request.draft_kind,
            progress=progress,
        )
        self._engine = engine
        # The setting holds for all models; one that was made for less takes what it can.
        self._default_context = min(request.context or engine.context, engine.context)
        reason = LEFT_OUT if request.draft_kind == "none" else engine.head_reason
        self.facts = ModelFacts(request.name, request.directory, engine.head_depths, reason, self._default_context)

    def session(self, *, drafting: bool, block_size: int | None, context: int | None) -> ModelSession:
        from engine.session import Session  # noqa: PLC0415

        wanted = min(context or self._default_context, self._engine.context)
        return Session(self._engine, drafting=drafting, block_size=block_size, context=wanted)

    def options(self, values: Mapping[str, Any]) -> Any:
        from engine.session import GenerationOptions  # noqa: PLC0415

        return GenerationOptions(**values)

    def effort(self, name: str) -> float:
        from engine.text.effort import parse_effort  # noqa: PLC0415

        return parse_effort(name)

    def token_bytes(self, token: int) -> bytes:
        return self._engine.tokenizer.token_bytes(token)

    def memory(self) -> int:
        import mlx.core as mx  # noqa: PLC0415

        return mx.get_active_memory()
