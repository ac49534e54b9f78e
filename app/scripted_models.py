"""A library, downloads and plans with invented states, for pictures of the model manager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.library_scan import DEMO, Estimate
from app.model_rows import Note, Shelf
from engine.hub.catalog import find_entry
from engine.hub.entry import Model
from engine.hub.facts import ModelFacts
from engine.hub.plan import Plan, PlannedFile, PlanRequest, Skipped
from engine.hub.progress import DownloadProgress, FileProgress, FileState, State
from engine.hub.select import Kind
from engine.installed import open_library
from engine.memory import Footprint, Layers
from engine.paths import demo_checkpoint

if TYPE_CHECKING:
    from engine.errors import UserError

HOME = Path("/Users/ada/Library/Application Support/inkstand/models")
MXFP4 = "mlx-community/Inkling-Small-mxfp4"
SMALL = "thinkingmachines/Inkling-Small"
MIXED = "Sawfwair/Inkling-Small-MLX-Mixed-2bit"
PIPE = "pipenetwork/Inkling-Small-MLX-4bit"
MEMORY = 192_000_000_000
_HASH = "0" * 64


def demo_model() -> Model:
    """The bundled demo as it is."""
    return open_library().describe(demo_checkpoint(), name=DEMO)


def _model(repo: str, quantization: str, size: int, *, head: str | None = None, status: str = "ready") -> Model:
    facts = ModelFacts("Inkling", "mlx-vlm", quantization, backbone=True, head=head is not None, head_note=head)
    return Model(repo, HOME / repo, "inkstand", status, size, repo=repo, verified=True, facts=facts)  # pyright: ignore[reportArgumentType]


def download(state: State, share: float, *, reason: str | None = None, code: str | None = None) -> DownloadProgress:
    """A download of the 4-bit checkpoint, `share` of it there."""
    sizes = (4_963_000_000,) * 27 + (4_463_000_000, 1_807_000_000, 32_000_000, 18_400, 5_120)
    left = int(share * sum(sizes))
    files: list[FileProgress] = []
    for i, count in enumerate(sizes):
        part = 3 if i < 27 and state == "downloading" else 1
        have = min(count, left if left >= count else left // part)
        left -= have
        kind: FileState = "ready" if have == count else "downloading" if have else "queued"
        files.append(
            FileProgress(
                f"model-{i + 1:05d}-of-00027.safetensors" if i < 27 else _NAMES[i - 27], count, have, have, kind
            )
        )
    done = sum(file.done for file in files)
    rate = 86_400_000.0 if state == "downloading" else None
    eta = (sum(sizes) - done) / rate if rate else None
    return DownloadProgress(
        "job", MXFP4, str(HOME / MXFP4), state, sum(sizes), done, done, tuple(files), rate, eta, reason, None, code
    )


_NAMES = ("extra.safetensors", "embed.safetensors", "tokenizer.json", "chat_template.jinja", "config.json")


def shelf(*downloads: DownloadProgress, notes: dict[str, Note] | None = None) -> Shelf:
    """The demo, two downloaded models, a head, one on a volume that is not there."""
    demo = demo_model()
    plain = _model(PIPE, "affine 4-bit, groups of 64", 148_440_000_000)
    mixed = _model(MIXED, "affine 2-bit, groups of 64", 84_500_000_000)
    away = Model(
        "inkling-experiments", Path("/Volumes/Archive/inkling-experiments"), "folder", "unavailable", 84_500_000_000,
        problem="Its folder is not there at the moment.", facts=mixed.facts,
    )  # fmt: skip
    head_facts = ModelFacts("Inkling", head=True, head_note="8 depths in mtp.safetensors")
    head = Model(SMALL, HOME / SMALL, "inkstand", "ready", 4_463_000_000, repo=SMALL, verified=True, facts=head_facts)
    return Shelf(
        models=(plain, mixed, away, head),
        demo=demo,
        heads={str(demo.path): demo, str(mixed.path): head},
        downloads=downloads,
        loaded=str(demo.path),
        loaded_depths=4,
        notes=notes or {},
        memory=MEMORY,
    )


def plan(kind: Kind, *, free: int = 412_000_000_000, have: int = 0) -> Plan:
    """The plan of a checkpoint of which the first `have` files are there."""
    entry = find_entry("thinkingmachines/Inkling-Small-NVFP4")
    assert entry is not None
    shards = [PlannedFile(f"model-{i + 1:05d}-of-00034.safetensors", 4_880_000_000, _HASH, None) for i in range(34)]
    head = PlannedFile("mtp.safetensors", 4_463_000_000, _HASH, None)
    small = [PlannedFile(name, 30_000 * (i + 1), None, _HASH[:40]) for i, name in enumerate(_NAMES[2:])]
    files = {"whole": (*shards, head, *small), "text": (*shards[:-1], head, *small), "head": (head, small[-1])}[kind]
    files = (*(replace(file, presence="there", have=file.size) for file in files[:have]), *files[have:])
    skipped = (Skipped("README.assets/plot.py", 4_100, "code"),)
    notes = ("160 MTP tensors in mtp.safetensors.",) if kind == "head" else ()
    target = HOME / entry.repo
    return Plan(
        PlanRequest(entry.repo, kind=kind),
        "https://huggingface.co",
        "4f1c9b7e" * 5,
        target,
        files,
        skipped,
        notes,
        free,
    )


def answer_with(made: Plan | UserError) -> Callable[..., Callable[[], object]]:
    """Something for the plan dialog to ask that answers at once."""

    def ask(_repo: str, _kind: Kind, _folder: Path, done: Callable[[Plan | UserError], object]) -> Callable[[], object]:
        done(made)
        return lambda: None

    return ask


def estimate(available: int, machine: int = MEMORY) -> Estimate:
    """Figures of the 4-bit checkpoint in bfloat16."""
    layers = (Layers(7, 4096, 73_728, None), Layers(53, 4096, 73_728, 512))
    seen = Footprint(
        weights=148_440_000_000,
        head=4_463_000_000,
        shortlist=0,
        inputs=0,
        depths=8,
        layers=layers,
        draft_log=104_000_000,
        step=1_050_000_000,
        regrow_row=8_192,
        largest=2_415_000_000,
        max_context=1_048_576,
    )
    return Estimate(seen, available, 0, machine)
