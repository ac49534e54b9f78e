"""Names of the control tokens that frame an Inkling conversation.

Ids differ between checkpoints, so everything looks them up by name (`Tokenizer.control_id`).
A message is a role marker, an optional author name, a content marker, a payload and END_MESSAGE;
a turn of the model is one or more messages and END_SAMPLING.
"""

from __future__ import annotations

MESSAGE_USER = "<|message_user|>"
MESSAGE_MODEL = "<|message_model|>"
MESSAGE_SYSTEM = "<|message_system|>"
MESSAGE_TOOL = "<|message_tool|>"
ROLES = (MESSAGE_USER, MESSAGE_MODEL, MESSAGE_SYSTEM, MESSAGE_TOOL)

CONTENT_TEXT = "<|content_text|>"
CONTENT_THINKING = "<|content_thinking|>"
CONTENT_TOOL_JSON = "<|content_invoke_tool_json|>"
CONTENT_TOOL_TEXT = "<|content_invoke_tool_text|>"
OTHER_CONTENT = ("<|content_image|>", "<|content_audio_input|>", "<|content_tool_error|>", "<|content_xml|>")
"""Content kinds that a chat model has no reason to open; what it writes in them is shown as text."""

END_MESSAGE = "<|end_message|>"
END_SAMPLING = "<|content_model_end_sampling|>"
