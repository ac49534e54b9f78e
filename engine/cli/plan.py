"""`inkstand plan`: what a download would fetch, what is there already, and whether it fits."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from engine.cli.arguments import Subparsers
from engine.cli.hub_options import add_request_options, request_of, target_of
from engine.cli.terminal import Terminal
from engine.cli.units import size
from engine.wording import counted

if TYPE_CHECKING:
    from engine.hub.plan import Plan, PlannedFile


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command's options."""
    parser = subparsers.add_parser("plan", help="show what a download would fetch, without fetching it")
    parser.set_defaults(run=run)
    add_request_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the plan. Raises UserError for what the hub refuses."""
    plan = asyncio.run(_plan(args))
    if args.json:
        Terminal().json({"event": "plan", **plan.to_json()})
    else:
        Terminal().line(as_text(plan))
    return 0


def as_text(plan: Plan) -> str:
    """The plan for people: a line per file, then the sums."""
    lines = [f"{plan.request.repo} at {plan.commit[:12]} → {plan.target}"]
    lines += [f"  {size(f.size):>9}  {f.path}{_presence(f)}" for f in plan.files]
    lines += [f"  {'–':>9}  {s.path}  (left out: {s.why})" for s in plan.skipped]
    lines += plan.notes
    lines += summary(plan)
    return "\n".join(lines)


def summary(plan: Plan) -> list[str]:
    """What it costs."""
    files = counted(len(plan.files), "file")
    if plan.files and plan.remaining == 0:
        rest = f"; to be verified: {plan.unverified}" if plan.unverified else ""
        return [f"Everything is here: {files}, {size(plan.total)}{rest}. Nothing is to be fetched."]
    there = f", {size(plan.have)} of it there already" if plan.have else ""
    room = f"{size(plan.free)} free on the volume"
    if plan.fits:
        verdict = f"{room}, {size(plan.reserve)} stay in reserve."
    else:
        short = plan.remaining + plan.reserve - plan.free
        verdict = f"{room}: {size(short)} too little, with {size(plan.reserve)} in reserve."
    return [f"{files}, {size(plan.total)}{there}; {size(plan.remaining)} to fetch.", verdict]


async def _plan(args: argparse.Namespace) -> Plan:
    from engine.hub.manager import DownloadManager
    from engine.installed import open_library

    library, request = open_library(), request_of(args)
    async with DownloadManager(library.journals) as manager:
        return await manager.plan(request, target_of(args, request.repo, library))


def _presence(file: PlannedFile) -> str:
    match file.presence:
        case "there":
            return "  (there)"
        case "partial":
            return f"  ({size(file.have)} there)"
        case "unchecked":
            return "  (there, to be checked)"
        case "absent":
            return ""
