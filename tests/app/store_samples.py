"""A clock that tests can set, and histories with something in them."""

from __future__ import annotations

from dataclasses import dataclass

from app.store.history import History
from app.store.records import Answer, Chat, Message, Round
from engine.messages import ToolCall

STATS = {"prompt_tokens": 9, "cached_tokens": 0, "completion_tokens": 3, "rounds": 1, "drafted": 2, "accepted": 2}
DRAFT = {"requested": "mtp", "effective": "plain", "reason": "slower here", "schedule": None, "block_size": None}
FULL_ANSWER = Answer(
    content="Small pools hold the sky",
    reasoning="Five, seven, five.",
    tool_calls=(ToolCall("look_up", {"word": "tide\ud800", "deep": {"n": [1, None, 2.5]}}, "call-1"),),
    token_ids=(7, 1, 65535, 200_000),
    rounds=(Round(3, 2, 2, 12.5), Round(1, 0, 0, 4.0)),
    stats=STATS,
    draft=DRAFT,
    finish_reason="stop",
    reasoning_s=0.4,
    reasoning_tokens=21,
)


@dataclass
class Clock:
    """Seconds that pass only when told to, or by one at each look when `step` is 1."""

    now: float = 1_700_000_000.0
    step: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def exchange(history: History, chat: Chat, question: str, answer: str) -> tuple[Message, Message]:
    """A message and its finished answer, appended to the active path."""
    sent = history.messages.send(chat.id, question)
    begun = history.messages.begin_answer(sent.id)
    return sent, history.messages.finish_answer(begun.id, Answer(content=answer, token_ids=tuple(answer.encode())))


def branched_chat(history: History) -> Chat:
    """A chat with an edited first message, an answer generated twice, and every field filled in somewhere."""
    chat = history.chats.create(system_prompt="Answer in verse.", settings={"temperature": 0.2, "effort": "low"})
    first = history.messages.send(chat.id, "Write a haiku about tide pools")
    answer = history.messages.begin_answer(first.id, model="inkstand-demo", options={"effort": "low", "seed": 3})
    history.messages.finish_answer(answer.id, FULL_ANSWER)
    again = history.messages.begin_answer(first.id, model="inkstand-demo")
    history.messages.finish_answer(again.id, Answer(content="The sea br"), state="failed", error="Out of memory.")
    edited = history.messages.edit(first.id, "Write a haiku about 潮だまり 🌊")
    history.messages.finish_answer(
        history.messages.begin_answer(edited.id).id, Answer(content="Stones", token_ids=(5,)), state="stopped"
    )
    history.messages.activate(answer.id)
    history.chats.set_pinned(chat.id, True)
    return history.chats.get(chat.id)


def contents(messages: list[Message]) -> list[str]:
    return [message.content for message in messages]
