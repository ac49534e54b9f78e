"""Options that `plan` and `download` share, and where their models go."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli.arguments import UsageError
from engine.cli.path_types import non_empty, output_folder

if TYPE_CHECKING:
    from engine.hub.library import Library
    from engine.hub.plan import PlanRequest

_REVISION = "main"


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """What is to be fetched and where to."""
    parser.add_argument("repo", metavar="REPO", help="owner/name on the hub, or the address of its page")
    for option, does in (("--include", "fetch only"), ("--exclude", "leave out")):
        meaning = f"{does} what matches; may be repeated"
        parser.add_argument(option, type=non_empty, metavar="GLOB", action="append", default=[], help=meaning)
    parser.add_argument("--revision", type=non_empty, metavar="R", help=f"branch, tag or commit (default: {_REVISION})")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--mtp-head", dest="kind", action="store_const", const="head", help="only the MTP head and its config"
    )
    kind.add_argument(
        "--text-only", dest="kind", action="store_const", const="text", help="without separate vision and audio files"
    )
    parser.add_argument(
        "--to", metavar="DIR", type=output_folder, help="put the files into DIR instead of the models folder"
    )
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    parser.set_defaults(kind="whole")


def request_of(args: argparse.Namespace) -> PlanRequest:
    """The request that the options describe. Raises UserError for what is no repository, or names two revisions."""
    from engine.hub.names import parse_repo
    from engine.hub.plan import PlanRequest

    repo, revision = parse_repo(args.repo)
    if revision is not None and args.revision not in (None, revision):
        raise UsageError(
            f"The address names revision {revision}, --revision names {args.revision}.", "Leave one of them out."
        )
    return PlanRequest(
        repo, args.revision or revision or _REVISION, args.kind, tuple(args.include), tuple(args.exclude)
    )


def target_of(args: argparse.Namespace, repo: str, library: Library) -> Path:
    """The folder that the files go to."""
    from engine.hub.folder import model_folder

    if args.to is not None:
        return args.to.absolute()
    return model_folder(library.models_folder, repo)
