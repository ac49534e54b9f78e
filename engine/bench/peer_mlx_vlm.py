"""Serves mlx-vlm, the Python peer, to `inkstand bench --peer`: run by the interpreter of an environment that has it.

    python peer_mlx_vlm.py --model DIR --head DIR [--reference-blas]

`--model` is a checkpoint in the published layout; its MTP head is split off into `--head` unless it is there already.
Standard output carries a line of JSON per message and nothing else. First comes
{"ready": true, "versions": {..}, "block": n}, n being the drafter's own block size. Then each line read,
{"ids": [..], "tokens": n, "stop": [..], "block": b}, is answered by {"ids": [..], "decode_tps": x, "rounds": r}:
greedy, b null for plain decoding and 0 for the drafter's own block size. {"error": ".."} ends the process, as does the
end of the input.

Of Inkstand it needs `engine/blas.py` alone, loaded as a file: the environment need not have the engine.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeStubs=false

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TextIO


def main() -> int:
    """Loads the peer and answers until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--head", type=Path, required=True)
    parser.add_argument("--reference-blas", action="store_true", help="leave mlx with the BLAS it links")
    arguments = parser.parse_args()
    # What the peer prints must not mix with the messages.
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        blas = None if arguments.reference_blas else load_openblas()
        peer = Peer(arguments.model, arguments.head)
        say(messages, {"ready": True, "versions": {**versions(), "BLAS": blas}, "block": peer.block})
        for line in sys.stdin:
            say(messages, peer.answer(**json.loads(line)))
    except Exception as error:
        say(messages, {"error": f"{type(error).__name__}: {error}"})
        raise
    return 0


def say(messages: TextIO, message: dict[str, Any]) -> None:
    messages.write(json.dumps(message) + "\n")
    messages.flush()


def load_openblas() -> str:
    """Puts OpenBLAS in front of the reference BLAS exactly as the engine does; says what came of it."""
    spec = spec_from_file_location("inkstand_blas", Path(__file__).parents[1] / "blas.py")
    assert spec is not None
    assert spec.loader is not None
    blas = module_from_spec(spec)
    sys.modules[spec.name] = blas  # its dataclasses look themselves up
    spec.loader.exec_module(blas)
    return blas.preload_openblas().detail


def versions() -> dict[str, str | None]:
    """Of what decides the peer's speed."""
    found: dict[str, str | None] = {"python": sys.version.split()[0]}
    for package in ("mlx", "mlx-vlm"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


class Peer:
    """mlx-vlm with one model and its drafter."""

    def __init__(self, model: Path, head: Path) -> None:
        from mlx_vlm.speculative.drafters import load_drafter  # noqa: PLC0415
        from mlx_vlm.speculative.drafters.inkling_mtp.split import split_inkling_mtp  # noqa: PLC0415
        from mlx_vlm.utils import load_model  # noqa: PLC0415

        self.model = load_model(model)
        if not (head / "config.json").is_file():
            split_inkling_mtp(str(model), str(head))
        self.drafter, self.kind = load_drafter(str(head))
        self.block = int(self.drafter.config.block_size)

    def answer(self, ids: list[int], tokens: int, stop: list[int], block: int | None) -> dict[str, Any]:
        """Continues `ids` greedily; decode_tps is (N - 1) / (time of the last token - time of the first)."""
        import mlx.core as mx  # noqa: PLC0415
        from mlx_vlm.generate.ar import generate_step  # noqa: PLC0415

        drafting: dict[str, Any] = {}
        if block is not None:
            drafting = {"draft_model": self.drafter, "draft_kind": self.kind, "draft_block_size": block or None}
        out: list[int] = []
        first = last = 0.0
        for token, _ in generate_step(
            mx.array([ids]), self.model, None, None, max_tokens=tokens, temperature=0.0, **drafting
        ):
            out.append(int(token))
            last = time.perf_counter()
            first = first or last
            if out[-1] in stop:
                break
        rounds = 0 if block is None else len(self.drafter.accept_lens)
        return {"ids": out, "decode_tps": (len(out) - 1) / (last - first) if last > first else None, "rounds": rounds}


if __name__ == "__main__":
    sys.exit(main())
