"""What the model manager lists: models on disk, downloads and the catalog, each as one row with one main action."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from app.hints import hint_of, in_window
from app.wording import count, plural
from engine.cli.units import duration, rate, size
from engine.hub.catalog import CATALOG, CONTEXT, CatalogEntry, find_entry

if TYPE_CHECKING:
    from engine.hub.entry import Model
    from engine.hub.progress import DownloadProgress

Action = Literal[
    "download", "resume", "pause", "cancel", "discard", "load", "unload", "add-head", "pair", "verify", "delete",
    "forget", "show", "look-again", "repair", "settings", "web-page", "folder", "use-head",
]  # fmt: skip
TITLES: Mapping[Action, str] = {
    "download": "Download",
    "resume": "Resume",
    "pause": "Pause",
    "cancel": "Cancel, keep what is there",
    "discard": "Cancel and delete…",
    "load": "Load",
    "unload": "Unload",
    "add-head": "Add MTP head",
    "pair": "Choose MTP head…",
    "verify": "Verify",
    "delete": "Delete…",
    "forget": "Forget",
    "show": "Show folder",
    "look-again": "Look again",
    "repair": "Repair",
    "settings": "Open settings",
    "web-page": "Open its page",
    "folder": "Choose folder…",
    "use-head": "Use MTP head",
}
Tone = Literal["text_2", "accent", "success", "warning", "danger"]
ACTIVE = frozenset({"queued", "downloading", "stalled", "verifying"})
"""States of a download at work."""
_CURES: Mapping[str, tuple[str, Action]] = {
    "token": ("Correct the access token in the settings.", "settings"),
    "gated": ("Accept its terms on its page, and store your access token in the settings.", "web-page"),
    "forbidden": ("Ask its owner for access, or store another access token.", "settings"),
    "disk-full": ("Free some space, then resume.", "resume"),
    "unavailable": ("Connect its volume, then resume.", "resume"),
    "target": ("Move what is in the way, then resume.", "resume"),
    "offline": ("Check the connection; what is there is kept.", "resume"),
}
"""By the hub's code: the cure in the window's words, and what its button does."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence at a row, with the button that mends it."""

    text: str
    tone: Tone = "danger"
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list."""

    key: str
    """Path of a model's folder; owner/name of a catalog entry."""
    section: Literal["Models", "MTP heads", "Catalog"]
    title: str
    detail: str
    state: str
    tone: Tone
    size: str
    main: Action | None
    menu: tuple[Action, ...] = ()
    note: Note | None = None
    head_offer: str = ""
    """Text of the button that adds an MTP head, or takes up the one that was left out."""
    head_action: Action = "add-head"
    progress: DownloadProgress | None = None
    fraction: float | None = None
    """Of what is going on otherwise: loading, verifying."""
    repo: str | None = None
    head_repo: str | None = None


@dataclass(frozen=True, slots=True)
class Shelf:
    """What the rows are made from. Keys are paths of model folders."""

    models: Sequence[Model] = ()
    demo: Model | None = None
    heads: Mapping[str, Model] = field(default_factory=dict[str, "Model"])
    """Model -> whose head it would be used with."""
    left_out: frozenset[str] = frozenset()
    """Models that the user wants without a head."""
    downloads: Sequence[DownloadProgress] = ()
    loaded: str | None = None
    loaded_depths: int = 0
    loading: tuple[str, float] | None = None
    verifying: Mapping[str, float] = field(default_factory=dict[str, float])
    notes: Mapping[str, Note] = field(default_factory=dict[str, Note])
    memory: int | None = None
    """Bytes of this machine."""


def rows_of(shelf: Shelf) -> list[Row]:
    """The rows in their order: models, heads for other models, the rest of the catalog; downloads come first."""
    downloads = {d.target: d for d in shelf.downloads}
    rows: list[Row] = []
    for model in (*([shelf.demo] if shelf.demo else []), *shelf.models):
        key = str(model.path)
        progress = downloads.pop(key, None)
        rows.append(_model_row(shelf, model, key) if progress is None else _download_row(shelf, progress, model))
    rows += [_download_row(shelf, progress, None) for progress in downloads.values()]
    taken = {row.repo for row in rows if row.section == "Models"}
    rows += [_catalog_row(shelf, entry) for entry in CATALOG if entry.repo not in taken]
    order = ("Models", "MTP heads", "Catalog")
    return sorted(rows, key=lambda row: (order.index(row.section), row.progress is None))


def describe_progress(progress: DownloadProgress) -> str:
    """Bytes, rate, time left, files; what is not known is left out."""
    parts = [f"{size(progress.done)} of {size(progress.total)}"]
    if progress.state == "downloading":
        parts.append(rate(progress.rate) if progress.rate else "connecting")
        if progress.eta is not None:
            parts.append(f"{duration(progress.eta)} left")
    elif progress.state == "verifying":
        parts.append(f"{size(progress.verified)} verified")
    parts.append(f"{progress.files_ready} of {plural(len(progress.files), 'file')}")
    return "  ·  ".join(parts)


def overall(downloads: Iterable[DownloadProgress]) -> tuple[str, str, float, bool] | None:
    """Title, figures, share and whether it stalls, of all downloads at work together; None without any."""
    active = [d for d in downloads if d.state in ACTIVE]
    if not active:
        return None
    done, total = sum(d.done for d in active), sum(d.total for d in active)
    share = done / total if total else 1.0
    title = active[0].repo.rpartition("/")[2] if len(active) == 1 else f"{len(active)} downloads"
    rates = sum(d.rate or 0.0 for d in active)
    stalled = not rates and any(d.state == "stalled" for d in active)
    figures = f"{100 * done // total if total else 0} %"
    if stalled:
        figures += " · stalled"
    elif all(d.state == "verifying" for d in active):
        figures += " · verifying"
    elif rates > 1:
        figures += f" · {duration((total - done) / rates)} left"
    return title, figures, share, stalled


def cure_of(code: str | None, reason: str, hint: str) -> Note:
    """The note for a failure of the hub. Its own hints speak of the command line where the window has buttons."""
    cure, action = _CURES.get(code or "", (hint_of(hint, code), None))
    return Note(f"{in_window(reason) or reason} {cure}".strip(), "danger", action)


def _download_row(shelf: Shelf, progress: DownloadProgress, model: Model | None) -> Row:
    words: dict[str, tuple[str, Tone]] = {
        "queued": ("Queued", "text_2"),
        "downloading": (f"{_percent(progress)} %", "accent"),
        "stalled": ("Stalled", "warning"),
        "verifying": ("Verifying", "accent"),
        "paused": ("Paused", "text_2"),
        "failed": ("Stopped", "danger"),
        "ready": ("Complete", "success"),
    }
    state, tone = words[progress.state]
    note = shelf.notes.get(progress.target)
    if note is None and progress.reason is not None:
        note = cure_of(progress.code, progress.reason, progress.cure or "")
        note = Note(note.text, "warning" if progress.state == "stalled" else "danger", note.action)
        if note.action == "resume":
            # The main button does that.
            note = Note(note.text, note.tone)
    active = progress.state in ACTIVE
    backbone = model is None or model.facts is None or model.facts.backbone or not model.facts.head
    return Row(
        key=progress.target,
        section="Models" if backbone else "MTP heads",
        title=progress.repo,
        detail=describe_progress(progress),
        state=state,
        tone=tone,
        size=size(progress.total),
        main="pause" if active else "resume" if progress.state != "ready" else None,
        menu=("cancel", "discard", "show") if progress.state != "ready" else ("show",),
        note=note,
        progress=progress,
        repo=progress.repo,
    )


def _percent(progress: DownloadProgress) -> int:
    """Rounded down: 100 % is for what is complete."""
    return 100 * progress.done // progress.total if progress.total else 0


def _model_row(shelf: Shelf, model: Model, key: str) -> Row:
    demo = model is shelf.demo
    entry = find_entry(model.repo) if model.repo else None
    head = shelf.heads.get(key)
    only_head = (
        model.status in ("ready", "incomplete") and model.has_head and not (model.facts and model.facts.backbone)
    )
    state, tone, main = _state(shelf, model, key, head)
    menu: list[Action] = []
    if shelf.loaded == key:
        menu.append("unload")
    if model.loadable:
        menu.append("pair")
    offer, head_repo = "", None
    action: Action = "add-head"
    if key in shelf.left_out:
        offer, action = TITLES["use-head"], "use-head"
    elif model.loadable and head is None:
        known = entry is not None and entry.original.head > 0
        head_repo = entry.original.repo if entry is not None and known else None
        offer = f"Add MTP head ({size(entry.original.head)})" if entry is not None and known else "Add MTP head…"
        if main is None:
            main = "add-head"
    if model.status != "unavailable":
        if not demo:
            menu.append("verify")
        menu.append("show")
    if model.source == "inkstand" and model.status != "unavailable":
        menu.append("delete")
    if model.status == "unavailable":
        menu.append("forget")
    note = shelf.notes.get(key)
    if note is None and model.problem and model.status != "ready" and not only_head:
        text = in_window(model.problem) or "Its files do not make a model."
        note = Note(text, "warning" if model.status in ("unavailable", "incomplete") else "danger")
    fraction = shelf.verifying.get(key)
    if shelf.loading is not None and shelf.loading[0] == key:
        fraction = shelf.loading[1]
    return Row(
        key=key,
        section="MTP heads" if only_head else "Models",
        title=model.name,
        detail=_detail(model, head, demo=demo, left_out=key in shelf.left_out),
        state=state,
        tone=tone,
        size=size(model.size),
        main=main,
        menu=tuple(menu),
        note=note,
        head_offer="" if main == "add-head" else offer,
        head_action=action,
        fraction=fraction,
        repo=model.repo,
        head_repo=head_repo,
    )


def _state(shelf: Shelf, model: Model, key: str, head: Model | None) -> tuple[str, Tone, Action | None]:
    """State, its colour and the main action of a model that is not being downloaded."""
    if key in shelf.verifying:
        return f"Verifying {100 * shelf.verifying[key]:.0f} %", "accent", None
    if shelf.loading is not None and shelf.loading[0] == key:
        return f"Loading {100 * shelf.loading[1]:.0f} %", "accent", None
    if shelf.loaded == key:
        if head is not None and not shelf.loaded_depths:
            return "Loaded without the head", "warning", "load"
        if key in shelf.left_out and shelf.loaded_depths:
            return "Loaded with the head", "warning", "load"
        return "Loaded", "success", None
    if model.loadable:
        return "Ready", "text_2", "load"
    if _only_head(model):
        return "For other models", "text_2", None
    states: dict[str, tuple[str, Tone, Action | None]] = {
        "incomplete": ("Incomplete", "warning", "resume" if model.repo else None),
        "corrupt": ("Damaged", "danger", "repair" if model.repo else None),
        "unavailable": ("Not there", "warning", "look-again"),
    }
    return states.get(model.status, ("Cannot be loaded", "danger", None))


def _only_head(model: Model) -> bool:
    """Whether a folder holds an MTP head for other models and nothing else."""
    backbone = model.facts is not None and model.facts.backbone
    return model.usable_head and not backbone


def _detail(model: Model, head: Model | None, *, demo: bool, left_out: bool) -> str:
    facts, parts = model.facts, list[str]()
    if demo:
        parts.append("Comes with Inkstand")
    if facts is not None and facts.backbone and facts.quantization:
        parts.append(facts.quantization)
    if facts is not None and facts.backbone:
        if left_out:
            parts.append("without its MTP head" if model.has_head else "without MTP head")
        elif head is None:
            parts.append("no MTP head")
        elif head.path == model.path:
            parts.append(f"MTP head with {(facts.head_note or '').partition(' in ')[0]}".removesuffix(" with "))
        else:
            parts.append(f"MTP head of {head.name}")
    elif facts is not None and facts.head:
        parts.append(f"MTP head with {(facts.head_note or '').partition(' in ')[0]}".removesuffix(" with "))
    if not demo:
        where = {"inkstand": "", "folder": _short(model.path), "hf-cache": "in the Hugging Face cache"}[model.source]
        parts += [where] if where else []
        if model.source == "inkstand" and model.status == "ready":
            parts.append("verified")
    return "  ·  ".join(parts)


def _short(path: Path) -> str:
    """A path with the home folder as ~."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _catalog_row(shelf: Shelf, entry: CatalogEntry) -> Row:
    parts = [entry.quantization, f"needs {size(entry.memory)} of memory"]
    parts.append("with MTP head" if entry.has_head else f"MTP head {size(entry.original.head)} more")
    parts += [entry.note] if entry.note and not entry.note.startswith("official") else []
    too_big = shelf.memory is not None and entry.memory > shelf.memory
    return Row(
        key=entry.repo,
        section="Catalog",
        title=entry.repo,
        detail="  ·  ".join(parts),
        state="More than this machine's memory" if too_big else "",
        tone="warning",
        size=size(entry.size),
        main="download",
        menu=("web-page",),
        note=shelf.notes.get(entry.repo),
        repo=entry.repo,
    )


CATALOG_NOTE = (
    f"Memory is for {count(CONTEXT)} tokens of context. Any other checkpoint can be typed above as owner/name."
)
