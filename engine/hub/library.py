"""Models on disk: downloaded ones, those of further folders, and those in the Hugging Face cache.

Only the models folder is ever written to, and there only what the manifest of a model lists; see `storage`. A folder
that is not there at the moment keeps its models in the list, as unavailable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from engine.hub.entry import Model, Source, Status, files_below, is_model_folder, remembered_model, subfolders
from engine.hub.errors import HubError, UnavailableError, UnknownModelError
from engine.hub.facts import Inspector, ModelFacts
from engine.hub.hf_cache import cache_folder, cached_snapshots
from engine.hub.library_settings import Remembered, SettingsFile
from engine.hub.manifest import load_manifest
from engine.hub.pairing import check_pair, choose_head

_DEPTH = 3
"""How deep below a folder models are looked for."""


class Library:
    """All models that this user has.

    Args:
        data: the program's data directory; settings and, unless another folder was chosen, models live there.
        inspect: reads what a folder holds.
        cache: the Hugging Face cache; None = where huggingface_hub keeps it.
    """

    def __init__(self, data: Path, inspect: Inspector, *, cache: Path | None = None) -> None:
        self.data = data
        self.settings = SettingsFile(data / "library.json")
        self._inspect = inspect
        self._cache = cache
        self._facts: dict[Path, tuple[object, ModelFacts]] = {}

    @property
    def models_folder(self) -> Path:
        """Where downloads go."""
        chosen = self.settings.read().models
        return Path(chosen) if chosen else self.data / "models"

    @property
    def journals(self) -> Path:
        """Where downloads are remembered."""
        return self.data / "downloads"

    def models(self) -> list[Model]:
        """Every model, in order of its name. Reads headers of what changed since the last call."""
        settings = self.settings.read()
        found: dict[Path, Model] = {}
        seen: dict[str, Remembered] = {}
        own = self.models_folder
        for root in (own, *map(Path, settings.folders)):
            device = _device(root)
            remembered = settings.seen.get(str(root))
            here = [] if device is None else [m for m in self._scan(root) if root == own or m.recognized]
            if device is None or (remembered and remembered.device != device and not here):
                here = _unavailable(remembered)
                if remembered:
                    seen[str(root)] = remembered
            else:
                seen[str(root)] = Remembered(device, {str(m.path): m.to_json() for m in here})
            for model in here:
                found.setdefault(model.path, model)
        for snapshot in cached_snapshots(self._cache or cache_folder()):
            model = self.describe(
                snapshot.path, name=snapshot.repo, repo=snapshot.repo, commit=snapshot.commit, source="hf-cache"
            )
            if model.recognized:
                found.setdefault(model.path, model)
        if seen != settings.seen:
            # A data directory that cannot be written only forgets sooner.
            with suppress(HubError), self.settings.change() as changed:
                changed.seen = seen
        return sorted(found.values(), key=lambda m: (m.name.casefold(), str(m.path)))

    def find(self, name: str, models: Iterable[Model] | None = None) -> Model:
        """The model of this owner/name, name or path; the most usable one where several have it.

        Raises:
            UnknownModelError: there is none.
        """
        models = list(self.models() if models is None else models)
        path = Path(name)
        with suppress(RuntimeError):  # "~name" of nobody's
            path = path.expanduser()
        path = path.absolute()
        matches = [m for m in models if m.path == path or m.name == name]
        matches = matches or [m for m in models if m.name.casefold().rpartition("/")[2] == name.casefold()]
        if not matches:
            raise UnknownModelError(
                f"There is no model {name!r} in the library.",
                "`inkstand models list` shows what is there; `inkstand download OWNER/NAME` fetches one.",
            )
        return max(matches, key=lambda m: (m.loadable, m.source == "inkstand"))

    def head_for(self, model: Model, models: Iterable[Model]) -> Model | None:
        """Whose head `model` is used with; see `pairing.choose_head`."""
        return choose_head(model, models, self.settings.read().pairs)

    def pair(self, model: Model, head: Model | None) -> None:
        """Uses the head of `head` with `model` from now on; None = no head. Raises NoHeadError when it does not fit."""
        if head is not None:
            check_pair(model, head)
        with self.settings.change() as settings:
            settings.pairs[str(model.path)] = str(head.path) if head else ""

    def unpair(self, model: Model) -> None:
        """Forgets a choice made with `pair`."""
        with self.settings.change() as settings:
            settings.pairs.pop(str(model.path), None)

    def add_folder(self, folder: Path) -> None:
        """Looks for models in one more folder. Raises UnavailableError when it is not there."""
        if not folder.is_dir():
            raise UnavailableError(f"There is no folder {folder}.", "Connect its volume, or correct the path.")
        with self.settings.change() as settings:
            if str(folder.absolute()) not in settings.folders:
                settings.folders.append(str(folder.absolute()))

    def remove_folder(self, folder: Path) -> None:
        """Looks there no more; nothing in it is touched."""
        with self.settings.change() as settings:
            settings.folders = [f for f in settings.folders if f != str(folder.absolute())]

    def forget(self, model: Model) -> None:
        """Drops a model from memory that is unavailable, and what was chosen for it."""
        with self.settings.change() as settings:
            settings.pairs.pop(str(model.path), None)
            for remembered in settings.seen.values():
                remembered.models.pop(str(model.path), None)

    def _scan(self, root: Path) -> Iterator[Model]:
        """The models below a folder. What one model folder holds is not looked into."""
        level = [root]
        for _ in range(_DEPTH):
            deeper: list[Path] = []
            for folder in level:
                if is_model_folder(folder):
                    parts = folder.relative_to(root).parts[-2:]
                    yield self.describe(folder, name="/".join(parts) or folder.name)
                else:
                    deeper += subfolders(folder)
            level = deeper

    def describe(
        self, folder: Path, *, name: str, repo: str | None = None, commit: str | None = None, source: Source = "folder"
    ) -> Model:
        """What a model folder is, from its manifest and its headers."""
        manifest, facts = load_manifest(folder), self._facts_of(folder)
        missing, problem, revision = list(facts.lacking), facts.problem, None
        status: Status = "ready"
        if manifest is not None:
            source, repo, name = "inkstand", manifest.repo, manifest.repo
            revision, commit = manifest.revision, manifest.commit
            missing = [f for f in missing if f not in manifest.omitted]
            missing = list(dict.fromkeys([*manifest.missing(folder), *missing]))
        corrupt = manifest.corrupt() if manifest else []
        if corrupt:
            status, problem = "corrupt", f"Damaged: {', '.join(corrupt)}."
        elif missing:
            status, problem = "incomplete", f"Not complete, or changed: {', '.join(missing)}."
        elif problem is not None:
            status = "unusable"
        return Model(
            name=name,
            path=folder,
            source=source,
            status=status,
            size=sum(size for _, size, _ in files_below(folder)),
            repo=repo,
            revision=revision,
            commit=commit,
            verified=manifest is not None and status == "ready",
            missing=tuple(missing),
            problem=problem,
            facts=facts,
        )

    def _facts_of(self, folder: Path) -> ModelFacts:
        signature = tuple(files_below(folder))
        known = self._facts.get(folder)
        if known is None or known[0] != signature:
            known = self._facts[folder] = (signature, self._inspect(folder))
        return known[1]


def _device(folder: Path) -> int | None:
    try:
        return folder.stat().st_dev if folder.is_dir() else None
    except OSError:
        return None


def _unavailable(remembered: Remembered | None) -> list[Model]:
    """The models of a folder that is not there."""
    models: list[Model] = []
    for value in remembered.models.values() if remembered else ():
        with suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
            models.append(remembered_model(value))
    return models
