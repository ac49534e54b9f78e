"""Options that several commands share, with their accepted ranges."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from engine.cli.path_types import non_empty, path
from engine.cli.streams import standard_output
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.decode.options import GenerationOptions

Subparsers = Any
"""What `ArgumentParser.add_subparsers` returns; argparse keeps the type private."""


class UsageError(UserError):
    """The command line cannot be understood."""


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line like every other mistake instead of exiting by itself."""

    _default: tuple[str, Collection[str]] | None = None

    def default_to(self, name: str, among: Collection[str]) -> None:
        """Let a line that begins with none of the subcommands `among` mean the subcommand `name`."""
        self._default = (name, among)

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] (argparse has it in three overloads)
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        if self._default is not None and args is not None:
            name, among = self._default
            if not args or args[0] not in {*among, "-h", "--help"}:
                if args and _is_bare_word(args[0]):
                    self.error(f"{args[0]!r} is neither one of {', '.join(among)}, nor a folder, nor owner/name")
                args = [name, *args]
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            # Said by the parser of the subcommand, so that the hint leads to its help and not to that of all commands.
            what, see = f"Unrecognized arguments: {' '.join(rest)}.", f"See: {self.prog} --help"
            if rest[0].startswith("-"):
                raise UsageError(what, see)
            raise UsageError(what, f"A text belongs after its option, such as -p, and in quotes. {see}")
        return known, rest

    def _print_message(self, message: str, file: object = None) -> None:
        # Help and version; argparse would pass over a failed write, and the command would end with 0.
        if message:
            standard_output().write(message)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", f"See: {self.prog} --help")


def without_effect(given: Mapping[str, object], why: str) -> str | None:
    """A sentence about options that are ignored; None where there are none.

    Args:
        given: options by name, those that were left out with a value that counts as false.
        why: completes "has no effect ...".
    """
    named = [name for name, value in given.items() if value]
    return f"{' and '.join(named)} {'has' if len(named) == 1 else 'have'} no effect {why}." if named else None


def refuse_without_effect(given: Mapping[str, object], why: str) -> None:
    """Raises UsageError for options that would be ignored, see `without_effect`."""
    if sentence := without_effect(given, why):
        raise UsageError(sentence, "Leave out what does not go together.")


def _is_bare_word(text: str) -> bool:
    """Whether an argument can be neither an option nor a path or owner/name of a model."""
    return not text.startswith("-") and "/" not in text and not os.path.lexists(text)


def real(accepted: str, ok: Callable[[float], bool]) -> Callable[[str], float]:
    """An argparse type for finite numbers within a range; `accepted` completes "must be ..."."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and ok(value)):
            raise argparse.ArgumentTypeError(f"must be {accepted}, not {text!r}")
        return value

    return parse


def integer(accepted: str, ok: Callable[[int], bool]) -> Callable[[str], int]:
    """An argparse type for whole numbers within a range; `accepted` completes "must be ..."."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not ok(value):
            raise argparse.ArgumentTypeError(f"must be {accepted}, not {text!r}")
        return value

    return parse


def positive(text: str) -> int:
    """An argparse type for counts."""
    return integer("a whole number of at least 1", lambda value: value >= 1)(text)


def draft_vocabulary(text: str) -> int | str:
    """An argparse type for a number of token ids, "full" or "auto"."""
    if text in ("full", "auto"):
        return text
    return integer("full, auto, or a whole number of at least 64", lambda value: value >= 64)(text)


def add_checkpoint_options(parser: argparse.ArgumentParser, *, positional: bool = False) -> None:
    """Which checkpoint, which head, in which precision; `positional` takes the model without -m."""
    group = parser.add_argument_group("model")
    meaning = "checkpoint directory, or owner/name of a downloaded one (default: the bundled demo)"
    if positional:
        group.add_argument("model", nargs="?", type=path, metavar="MODEL", help=meaning)
    else:
        group.add_argument("-m", "--model", type=path, metavar="MODEL", help=meaning)
    group.add_argument(
        "--draft-model",
        type=path,
        metavar="HEAD",
        help="directory with the MTP head, or owner/name of a downloaded one, if not the model's",
    )
    group.add_argument("--dtype", choices=["auto", "f32", "bf16"], default="auto", help="precision of the activations")
    group.add_argument(
        "--keep-quantized",
        action="store_true",
        help="do not expand quantized weights, as is done on the CPU and, where they are few, with CUDA",
    )
    group.add_argument(
        "--quantize-rest",
        type=int,
        choices=[8, 4],
        help="pack what would be held unquantized while loading, but for embedding and routed experts",
    )
    group.add_argument(
        "--draft-vocabulary",
        type=draft_vocabulary,
        default="auto",
        metavar="N",
        help="token ids that drafts score: a number, full, or auto (a part where the frequent ones are known and many; "
        "on the CPU all of them roughly and the best exactly)",
    )


def _block_size(text: str) -> int | None:
    if text == "auto":
        return None
    return integer("auto, or a whole number of at least 2", lambda value: value >= 2)(text)


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """How the drafter is used."""
    group = parser.add_argument_group("speculative decoding")
    group.add_argument(
        "--draft-kind",
        choices=["auto", "mtp", "none"],
        default="auto",
        help="auto: the MTP head where there is one; mtp: it must be there; none: plain decoding",
    )
    group.add_argument(
        "--draft-block-size",
        type=_block_size,
        metavar="auto|K",
        help="tokens verified per round, so K - 1 drafts; auto (the default): each round takes as many drafts as pay, "
        "none where plain steps are faster, which is measured as it runs",
    )
    group.add_argument(
        "--draft-schedule", choices=["stateful", "chained"], default="stateful", help="how drafts are made"
    )
    group.add_argument(
        "--rollback", choices=["trim", "replay"], default="trim", help="how rejected tokens leave the target's caches"
    )
    group.add_argument("--context", type=positive, metavar="N", help="context length (default: the model's)")


def add_sampling_options(parser: argparse.ArgumentParser, *, max_tokens: int | None) -> None:
    """Length and sampling of an answer."""
    group = parser.add_argument_group("answer")
    limit = "the context's end" if max_tokens is None else str(max_tokens)
    group.add_argument(
        "-n", "--max-tokens", type=positive, default=max_tokens, metavar="N", help=f"tokens at most (default: {limit})"
    )
    group.add_argument("--system", metavar="TEXT", help="system message")
    group.add_argument(
        "--effort",
        default="high",
        metavar="LEVEL",
        help="thinking effort: none, minimal, low, medium, high (default), xhigh, max, or a number from 0 to 0.99",
    )
    unit = real("from 0 to 1", lambda value: 0 <= value <= 1)
    penalty = real("a number from -100 to 100", lambda value: -100 <= value <= 100)
    group.add_argument(
        "--temperature",
        type=real("a number from 0 to 100", lambda value: 0 <= value <= 100),
        default=0.0,
        metavar="T",
        help="0 is greedy (default)",
    )
    group.add_argument(
        "--top-p",
        type=real("above 0 and at most 1", lambda value: 0 < value <= 1),
        default=1.0,
        metavar="P",
        help="sample from the most likely tokens that together have probability P (default: 1, all)",
    )
    group.add_argument(
        "--top-k",
        type=integer("a whole number of at least 0 (0 keeps all)", lambda value: value >= 0),
        default=0,
        metavar="K",
        help="sample from the K most likely tokens (default: 0, all)",
    )
    group.add_argument(
        "--min-p",
        type=unit,
        default=0.0,
        metavar="P",
        help="leave out tokens less likely than P times the most likely one (default: 0, none)",
    )
    group.add_argument(
        "--repetition-penalty",
        type=real("above 0 and at most 100", lambda value: 0 < value <= 100),
        default=1.0,
        metavar="X",
        help="divides the logits of tokens in the prompt or the answer (default: 1)",
    )
    group.add_argument(
        "--presence-penalty",
        type=penalty,
        default=0.0,
        metavar="X",
        help="subtracted from the logits of tokens that the answer holds (default: 0)",
    )
    group.add_argument(
        "--frequency-penalty",
        type=penalty,
        default=0.0,
        metavar="X",
        help="subtracted from a token's logit for each time that the answer holds it (default: 0)",
    )
    group.add_argument(
        "--stop", type=non_empty, action="append", default=[], metavar="S", help="end before this text; may be repeated"
    )
    group.add_argument(
        "--seed",
        type=integer("a whole number from 0 to 2**63 - 1", lambda value: 0 <= value < 2**63),
        metavar="N",
        help="repeats a sampled answer",
    )


def ignored_options(args: argparse.Namespace) -> list[str]:
    """A sentence each about options of decoding and sampling that are given and ignored.

    They are told and not refused, so that a line can be tried with another drafter or temperature as it is.
    """
    found: list[str | None] = []
    if args.draft_kind == "none":
        of_drafter = {
            "--draft-model": args.draft_model,
            "--draft-block-size": args.draft_block_size,
            "--draft-schedule": args.draft_schedule != "stateful",
            "--rollback": args.rollback != "trim",
            "--draft-vocabulary": args.draft_vocabulary != "auto",
        }
        found.append(without_effect(of_drafter, "with --draft-kind none"))
    if args.temperature == 0:
        of_samples = {"--top-p": args.top_p < 1, "--top-k": args.top_k, "--min-p": args.min_p}
        found.append(without_effect(of_samples, "at --temperature 0, which takes the likeliest token"))
    return [sentence for sentence in found if sentence]


def generation_options(args: argparse.Namespace) -> GenerationOptions:
    """What `add_sampling_options` collected."""
    from engine.decode.options import GenerationOptions

    return GenerationOptions(
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
        presence_penalty=args.presence_penalty,
        frequency_penalty=args.frequency_penalty,
        stop=tuple(args.stop),
        seed=args.seed,
    )
