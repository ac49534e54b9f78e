"""Coverage-guided fuzzing with atheris:

    python tests/fuzz [--seconds 30] [TARGET ...]

Each target runs in a process of its own, from the inputs in corpus/ and from those that earlier runs found worth
keeping in build/fuzz/. An input that is answered wrongly is kept in build/fuzz/TARGET/: with the fault mended it
becomes a file of corpus/TARGET/, which every run of the tests reads. Exit code 1 when there was one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "fuzz"
INSTRUMENTED = ["app", "engine", "jinja2", "markdown_it"]
_CASES = re.compile(r"^stat::number_of_executed_units:\s*(\d+)|^#(\d+)\s", re.MULTILINE)
_FOUND = re.compile(r"Test unit written to (\S+)")
_HANG_S = 20
_MEMORY_MB = 4096


def fuzz(name: str, arguments: Sequence[str]) -> None:
    """Runs libFuzzer on one target in this process, and ends it."""
    import atheris
    from fuzz_targets import TARGETS, load, load_structured
    from hypothesis import HealthCheck, given, settings

    with atheris.instrument_imports(include=INSTRUMENTED):
        if name in TARGETS:
            check: Callable[[bytes], object] = load(name)
        else:
            takes, strategies = load_structured(name)
            calm = settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
            check = calm(given(*strategies)(takes)).hypothesis.fuzz_one_input
    atheris.Setup([sys.argv[0], *arguments], check)
    atheris.Fuzz()


def run(name: str, seconds: int) -> tuple[int, int, list[Path], str]:
    """Cases, seconds, inputs that were answered wrongly, and the end of what the process printed."""
    place, kept = BUILD / name, BUILD / name / "kept"
    kept.mkdir(parents=True, exist_ok=True)
    words = [HERE / "words" / f"{part}.dict" for part in (name, "json")]
    options = [f"-max_total_time={seconds}", f"-timeout={_HANG_S}", f"-rss_limit_mb={_MEMORY_MB}", "-max_len=20000"]
    options += [f"-artifact_prefix={place}/", "-print_final_stats=1"]
    options += [f"-dict={path}" for path in words[:1] if path.exists()] or [f"-dict={words[1]}"]
    folders = [str(folder) for folder in (kept, HERE / "corpus" / name) if folder.is_dir()]
    command = [sys.executable, str(HERE), "--only", name, "--", *options, *folders]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    output = done.stdout + done.stderr
    cases = max((int(a or b) for a, b in _CASES.findall(output)), default=0)
    found = [Path(path) for path in _FOUND.findall(output)]
    tail = "" if done.returncode == 0 else output[-3000:]
    return cases, round(time.monotonic() - began), found, tail


def main(argv: list[str]) -> int:
    sys.path[:0] = [str(ROOT), str(HERE.parent)]
    if argv[:1] == ["--only"]:
        fuzz(argv[1], argv[3:])
        return 0
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description="Coverage-guided fuzzing with atheris.")
    parser.add_argument("--seconds", type=int, default=30, help="for each target (default 30)")
    parser.add_argument("targets", nargs="*", help="default: all of them")
    args = parser.parse_args(argv)
    from fuzz_targets import STRUCTURED, TARGETS

    names = [*TARGETS, *STRUCTURED]
    if unknown := set(args.targets) - set(names):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    wrong = 0
    print(f"{'target':<18}{'cases':>10}{'seconds':>9}  findings", flush=True)
    for name in args.targets or names:
        cases, seconds, found, tail = run(name, args.seconds)
        shown = ", ".join(str(path.relative_to(ROOT)) for path in found) or ("stopped" if tail else "none")
        print(f"{name:<18}{cases:>10,}{seconds:>9}  {shown}", flush=True)
        if tail:
            wrong += 1
            print(tail, file=sys.stderr, flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
