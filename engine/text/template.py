"""The checkpoint's own chat template."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, cast

import jinja2

from engine.errors import TemplateError
from engine.messages import Message
from engine.text.effort import format_effort
from engine.text.sandbox import Limits, TemplateSandbox

_MAX_SOURCE: Final = 1_000_000
_CURE: Final = "Restore the file from the checkpoint's repository, or remove it to complete raw text."
_SPECIAL_TOKENS: Final = ("bos_token", "eos_token", "pad_token", "unk_token")


class ChatTemplate:
    """A compiled template with the helpers that Hugging Face's templates expect.

    It sees the conversation and nothing else: no files, no other templates, no Python internals,
    and it works under the `Limits` of the sandbox.
    """

    def __init__(
        self,
        source: str,
        path: Path,
        *,
        special_tokens: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Compile `source`, which was read from `path`.

        Raises:
            TemplateError: a syntax error, with the line.
        """
        self.source: Final = source
        self.path: Final = path
        self._special_tokens = dict(special_tokens or {})

        def strftime_now(form: str) -> str:
            return now().strftime(form)

        helpers = {"raise_exception": _raise_exception, "strftime_now": strftime_now, "tojson": _tojson}
        self._sandbox = TemplateSandbox(limits or Limits(), helpers)
        try:
            self._template = self._sandbox.load(source, str(path))
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"{path}, line {error.lineno}: the chat template has a syntax error: {_reason(error)}.", _CURE
            ) from error
        except Exception as error:  # the compiler's own limits, such as nesting too deep
            raise TemplateError(f"{path}: the chat template cannot be compiled: {_reason(error)}.", _CURE) from error

    @classmethod
    def from_directory(cls, directory: Path | str) -> ChatTemplate | None:
        """The template of a checkpoint: `chat_template.jinja`, else the one in `tokenizer_config.json`.

        None when there is neither.

        Raises:
            TemplateError: a file cannot be read or parsed, or the template has a syntax error.
        """
        folder = Path(directory)
        config_path = folder / "tokenizer_config.json"
        config = _read_config(config_path)
        tokens = {name: text for name in _SPECIAL_TOKENS if (text := _token_text(config.get(name))) is not None}
        path = folder / "chat_template.jinja"
        source = _read(path)
        if source is None:
            path, source = config_path, _configured_template(config, config_path)
        return None if source is None else cls(source, path, special_tokens=tokens)

    def render(
        self,
        messages: Sequence[Message],
        effort: float,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
    ) -> str:
        """The conversation as the template spells it, control markers included.

        Args:
            effort: thinking effort as `parse_effort` returns it.
            tools: tool declarations, each a JSON schema object as in OpenAI's API.
            add_generation_prompt: whether to open the turn that the model is to write.

        Raises:
            TemplateError: the template refuses the conversation, fails, or exceeds its limits.
        """
        variables: dict[str, object] = {
            **self._special_tokens,
            "messages": _as_template_messages(messages),
            "tools": list(tools) or None,
            "reasoning_effort": format_effort(effort),
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._sandbox.run(self._template, variables)
        except Exception as error:  # a template can raise anything; all of it is the template's failure
            line = _line_of(error.__traceback__, str(self.path))
            where = f"{self.path}, line {line}" if line else str(self.path)
            raise TemplateError(
                f"{where}: the chat template failed: {_reason(error)}.", "Change the conversation, or mend the file."
            ) from error


def _as_template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages in the form that Hugging Face's templates read."""
    names: dict[str, str] = {}
    result: list[dict[str, Any]] = []
    for message in messages:
        fields: dict[str, Any] = {"role": message.role, "content": message.content or ""}
        if message.reasoning:
            fields["reasoning_content"] = message.reasoning
        if message.tool_calls:
            names |= {call.id: call.name for call in message.tool_calls if call.id is not None}
            fields["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.tool_calls
            ]
        if message.role == "assistant" and not message.content and len(fields) > 2:
            fields["content"] = None  # an empty string would be rendered as an empty message
        if message.tool_call_id is not None:
            fields["tool_call_id"] = message.tool_call_id
        name = message.name or names.get(message.tool_call_id or "")
        if name is not None:
            fields["name"] = name
        result.append(fields)
    return result


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a prompt: unlike jinja2's own filter it neither escapes HTML nor non-ASCII."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _read(path: Path) -> str | None:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise TemplateError(f"{path} cannot be read: it is not a file.", _CURE)
        if status.st_size > _MAX_SOURCE:
            raise TemplateError(f"{path} is larger than {_MAX_SOURCE:,} bytes.", _CURE)
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"{path} cannot be read: {error}.", _CURE) from error


def _read_config(path: Path) -> dict[str, Any]:
    text = _read(path)
    if text is None:
        return {}
    try:
        config: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TemplateError(f"{path} is not valid JSON: {error}.", _CURE) from error
    if not isinstance(config, dict):
        raise TemplateError(f"{path} does not hold a JSON object.", _CURE)
    return cast(dict[str, Any], config)


def _configured_template(config: Mapping[str, Any], path: Path) -> str | None:
    """`chat_template` of tokenizer_config.json: a string, or a list of named templates."""
    found = config.get("chat_template")
    if isinstance(found, list):
        entries = [cast(dict[str, Any], entry) for entry in cast(list[object], found) if isinstance(entry, dict)]
        found = next((entry.get("template") for entry in entries if entry.get("name") == "default"), None)
    if found is None or isinstance(found, str):
        return found
    raise TemplateError(f"{path}: chat_template is not a text.", _CURE)


def _token_text(value: object) -> str | None:
    """A special token is written as its text or as an object with its `content`."""
    if isinstance(value, dict):
        value = cast(dict[str, object], value).get("content")
    return value if isinstance(value, str) else None


def _reason(error: Exception) -> str:
    """What an exception says, to be continued with a full stop."""
    return (str(error) or type(error).__name__).rstrip(".")


def _line_of(traceback: TracebackType | None, filename: str) -> int | None:
    """Innermost line of `filename` that a traceback passes through."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
