"""Text to tokens and back: tokenizer, chat template, output channels, stop strings."""

from __future__ import annotations

from engine.text.message_json import parse_messages

__all__ = ["parse_messages"]
