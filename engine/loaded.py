"""A checkpoint in memory: the model, its head if it has one, its tokenizer and its template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from engine.config import ModelConfig
from engine.decode.draft_vocabulary import choose
from engine.decode.warm_up import warm_up
from engine.errors import HeadError, PromptError
from engine.model.backbone import Backbone
from engine.model.device import on_cuda
from engine.model.draft_head import Subset
from engine.model.kernel_cache import keep_kernels
from engine.model.mtp import MTPHead, Wiring
from engine.model.params import lay_out
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.weights.head import HeadMissing, find_head
from engine.weights.load import LoadProgress, LoadReport, activation_dtype, load_head, load_model

DraftKind = Literal["auto", "mtp", "none"]
Progress = Callable[[float, str], None]
"""Called with the share done, 0 to 1, and what is being read or prepared."""
Check = Callable[[ModelConfig, Tokenizer, ChatTemplate | None], object]
"""Called with what is known before the weights are read; raises UserError to have them left alone."""


def check_context(config: ModelConfig, context: int | None) -> None:
    """Raises PromptError for a context, in tokens of prompt and answer together, that the model was not made for."""
    most = config.text.max_positions
    if context is not None and not 2 <= context <= most:
        raise PromptError(f"A context of {context} tokens was asked for.", f"This model takes 2 to {most} tokens.")


def check_prompt(config: ModelConfig, context: int | None, count: int) -> None:
    """Raises PromptError for a prompt of `count` tokens that is empty, or leaves no room for an answer in `context`.

    `context` is as for `check_context`; None is what the model was made for.
    """
    most = config.text.max_positions
    holds = context or most
    if not count:
        raise PromptError("The prompt is empty.", "Give it at least one character.")
    if count >= holds:
        longer = f" Or load the model with a longer context (`--context`): it takes {most}." if count < most else ""
        raise PromptError(
            f"The prompt has {count} tokens; the context holds {holds} with at least one for the answer.",
            f"Shorten the prompt or start a new conversation.{longer}",
        )


class Engine:
    """What a session needs of a checkpoint. Made and used in one thread, which owns MLX."""

    def __init__(
        self,
        *,
        directory: Path,
        config: ModelConfig,
        backbone: Backbone,
        head: MTPHead | None,
        head_reason: str | None,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        draft_kind: DraftKind = "auto",
        reports: tuple[LoadReport, ...] = (),
    ) -> None:
        self.directory, self.config, self.backbone = directory, config, backbone
        self.draft_kind: DraftKind = draft_kind
        self.head, self.head_reason = head, head_reason
        """The MTP head, or None and why there is none."""
        self.tokenizer, self.template, self.reports = tokenizer, template, reports

    @property
    def head_depths(self) -> int:
        """Blocks of the MTP head, 0 without one."""
        return 0 if self.head is None else self.head.depths

    @property
    def context(self) -> int:
        """Tokens the model was made for."""
        return self.config.text.max_positions

    @property
    def draft_vocabulary(self) -> int | None:
        """Token ids that drafts score; None where those are all, or there is no head."""
        scores = None if self.head is None else self.head.scores
        return scores.size if isinstance(scores, Subset) else None

    def rewired(self, wiring: Wiring) -> Engine:
        """The same checkpoint with its head attached in another way."""
        if self.head is None:
            return self
        return Engine(
            directory=self.directory,
            config=self.config,
            backbone=self.backbone,
            head=self.head.rewired(wiring),
            head_reason=None,
            tokenizer=self.tokenizer,
            template=self.template,
            draft_kind=self.draft_kind,
            reports=self.reports,
        )

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        draft_directory: Path | None = None,
        draft_kind: DraftKind = "auto",
        dtype: str = "auto",
        keep_quantized: bool | None = None,
        quantize_rest: int | None = None,
        draft_vocabulary: int | str = "auto",
        check: Check | None = None,
        progress: Progress | None = None,
    ) -> Engine:
        """Load a checkpoint directory.

        Args:
            draft_directory: where the MTP head lies, if not in `directory`.
            draft_kind: "none" leaves the head out, "auto" goes on without one that is missing, "mtp" insists.
            dtype, keep_quantized, quantize_rest: see `engine.weights.load.load_model`.
            draft_vocabulary: token ids that drafts score, see `engine.decode.draft_vocabulary.choose`; with "auto" a
                shortlist scores all of them where that pays, see `engine.model.draft_head`.
            check: refuses what will be asked of the checkpoint, before a long load.

        Raises:
            UserError: anything that is wrong with the files; for `draft_kind` "mtp" also a missing head, and for
                any kind but "none" a head in a named `draft_directory` that is not there or does not fit.
        """

        def report(share: float, span: float) -> Callable[[LoadProgress], None]:
            def inner(step: LoadProgress) -> None:
                if progress is not None:
                    progress(share + span * step.done / max(1, step.total), step.file)

            return inner

        def prepared(done: float, what: str) -> None:
            if progress is not None:
                progress(files + (1.0 - files) * done, what)

        source = draft_directory or directory
        found = None if draft_kind == "none" else find_head(source)
        if isinstance(found, HeadMissing) and (draft_kind == "mtp" or draft_directory is not None):
            raise HeadError(found.reason, "Name a directory that holds model.mtp tensors, or leave the drafter out.")
        with_head = found is not None and not isinstance(found, HeadMissing)

        # Text first: it is read in no time, and what is wrong with it should not cost a long load.
        config = ModelConfig.from_directory(directory)
        tokenizer = Tokenizer.from_directory(directory, config.eos_token_ids)
        template = ChatTemplate.from_directory(directory)
        if check is not None:
            check(config, tokenizer, template)

        keep_kernels()
        files = 0.7 if on_cuda() else 1.0
        share = 0.9 * files if with_head else files
        weights = load_model(
            directory,
            dtype=dtype,
            keep_quantized=keep_quantized,
            quantize_rest=quantize_rest,
            progress=report(0.0, share),
        )
        lay_out(weights.params)
        backbone = Backbone(weights.config, weights.params, activation_dtype(dtype))
        head, reason, reports = None, None, [weights.report]
        if with_head:
            try:
                loaded = load_head(
                    source,
                    target=weights.config,
                    dtype=dtype,
                    keep_quantized=keep_quantized,
                    quantize_rest=quantize_rest,
                    progress=report(share, files - share),
                )
            except HeadError as error:
                if draft_kind == "mtp" or draft_directory is not None:
                    raise
                reason = error.title
            else:
                lay_out(loaded.params)
                head = MTPHead(backbone, loaded.config, loaded.params)
                ids, note = choose(draft_vocabulary, directory, tokenizer, config.text.unpadded_vocab_size)
                if ids is None and draft_vocabulary == "auto":
                    head.shorten()
                else:
                    head.reduce(ids)
                notes = loaded.report.notes if note is None else (*loaded.report.notes, note)
                reports.append(replace(loaded.report, notes=notes))
        else:
            reason = found.reason if isinstance(found, HeadMissing) else "The drafter was left out when loading."
        warm_up(backbone, head, prepared)
        return cls(
            directory=directory,
            config=weights.config,
            backbone=backbone,
            head=head,
            head_reason=reason,
            tokenizer=tokenizer,
            template=template,
            draft_kind=draft_kind,
            reports=tuple(reports),
        )
