"""Stop strings in a text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import PromptError


class StopStrings:
    """Cuts a stream right before the first stop string that is completed in it.

    The result does not depend on how the text is cut into pieces: of several stop strings the one
    that ends first wins, and the longest of those that end together.

    Raises:
        PromptError: a stop string is empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise PromptError("A stop string is empty.", "Give each stop string at least one character.")
        self._stops = tuple(stops)
        self._held = ""
        self._hit = False

    def push(self, text: str) -> tuple[str, bool]:
        """Text that is safe to show, and whether a stop string is complete.

        What may turn out to be the beginning of a stop string is held back. After a hit all text is
        swallowed.
        """
        if self._hit:
            return "", True
        pending = self._held + text
        found = [(start + len(stop), start) for stop in self._stops if (start := pending.find(stop)) >= 0]
        if found:
            self._hit, self._held = True, ""
            return pending[: min(found)[1]], True
        keep = self._partial_match(pending)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep], False

    def finish(self) -> str:
        """What was held back and did not become a stop string."""
        rest, self._held = self._held, ""
        return rest

    def _partial_match(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:size]):
                    longest = size
                    break
        return longest
