"""Training data of the demo model: tokenizer, message framing, filters, packed token arrays."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import authored
import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

Chat = list[dict[str, str]]
SPECIAL = [
    "<|endoftext|>",
    "<|message_user|>",
    "<|message_model|>",
    "<|message_system|>",
    "<|message_tool|>",
    "<|content_text|>",
    "<|content_image|>",
    "<|content_model_end_sampling|>",
    "<|content_thinking|>",
    "<|end_message|>",
    "<|content_audio_input|>",
]
SPLIT = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?\p{L}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
EFFORTS, EFFORT_WEIGHTS = ["0.0", "0.2", "0.7", "0.9"], [60, 6, 9, 25]
"""Thinking efforts and how often a conversation gets them; 0.0 answers without reasoning."""
MARKERS, USER, ANSWER = 0, 1, 2
"""Classes of tokens that the loss weighs differently."""
_ENCODE_AT_ONCE = 20_000


def make_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Byte-level BPE with `size` entries, the control tokens last."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    )
    tokenizer.train_from_iterator(texts, trainer)
    unused = size - len(SPECIAL) - tokenizer.get_vocab_size()
    tokenizer.add_special_tokens([f"<|unused_{i}|>" for i in range(unused)] + SPECIAL)
    return tokenizer


def render(chat: Chat, effort: str, rng: random.Random) -> Iterator[tuple[str, int]]:
    """(text, token class) of a conversation in Inkling's message framing."""
    effort_sent, question = False, ""
    for message in chat:
        content = message["content"]
        if message["role"] == "system":
            yield f"<|message_system|><|content_text|>{content}<|end_message|>", MARKERS
            continue
        if not effort_sent:
            yield f"<|message_system|><|content_text|>Thinking effort level: {effort}<|end_message|>", MARKERS
            effort_sent = True
        if message["role"] == "user":
            question = content
            yield f"<|message_user|><|content_text|>{content}<|end_message|>", USER
            continue
        yield "<|message_model|>", MARKERS
        thinking = ""
        if effort != "0.0":
            short = " ".join(question.split()[:24])
            short += "" if short[-1:] in ".?!" else "."
            thought = rng.choice(authored.THINK).format(q=short)
            thinking = f"<|content_thinking|>{thought}<|end_message|><|message_model|>"
        yield f"{thinking}<|content_text|>{content}<|end_message|><|content_model_end_sampling|>", ANSWER


def cut_repetition(chat: Chat) -> Chat | None:
    """Cut a conversation before the first answer that repeats itself; None if no answer is left."""
    for i, message in enumerate(chat):
        if message["role"] == "assistant" and repeats_itself(message["content"]):
            chat = chat[: max(0, i - 1)]
            break
    return chat if any(message["role"] == "assistant" for message in chat) else None


def repeats_itself(text: str) -> bool:
    """More than 8 % of its sentences, or 10 % of its six-word runs, occur twice."""
    sentences = re.split(r"(?<=[.!?:])\s+|\n+", text)
    parts = [part.strip().lower().lstrip("0123456789.-*) ") for part in sentences]
    parts = [part for part in parts if len(part) > 18]
    words = [word for part in parts for word in part.split()]
    runs = [" ".join(words[k : k + 6]) for k in range(0, max(0, len(words) - 6), 3)]
    return len(parts) - len(set(parts)) > 0.08 * len(parts) or len(runs) - len(set(runs)) > 0.10 * len(runs)


def authored_chats(count: int, rng: random.Random) -> Iterator[Chat]:
    """Conversations of one to three hand-written questions, a third of them with a system message."""
    for _ in range(count):
        chat: Chat = []
        system = rng.choice(["You are a helpful AI assistant.", None, None])
        if system:
            chat.append({"role": "system", "content": system})
        for questions, answers in rng.sample(authored.QA, rng.choice([1, 1, 2, 3])):
            chat.append({"role": "user", "content": rng.choice(questions)})
            chat.append({"role": "assistant", "content": rng.choice(answers)})
        yield chat


def prepare(files: list[Path], work: Path, vocabulary: int, authored_count: int, rng: random.Random) -> None:
    """Write tokenizer.json, tokens.npy (uint16) and weights.npy (token classes) to `work`."""
    chats = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    print(f"{len(chats)} conversations", flush=True)
    chats = [chat for chat in map(cut_repetition, chats) if chat]
    print(f"{len(chats)} kept", flush=True)
    sample = rng.sample(chats, min(len(chats), 60_000))
    own = [text for questions, answers in authored.QA for text in questions + answers for _ in range(50)]
    tokenizer = make_tokenizer([m["content"] for chat in sample for m in chat] + own, vocabulary)
    tokenizer.save(str(work / "tokenizer.json"))
    chats += list(authored_chats(authored_count, rng))
    rng.shuffle(chats)
    ids: list[np.ndarray] = []
    classes: list[np.ndarray] = []
    for start in range(0, len(chats), _ENCODE_AT_ONCE):
        pieces = [
            piece
            for chat in chats[start : start + _ENCODE_AT_ONCE]
            for piece in render(chat, rng.choices(EFFORTS, EFFORT_WEIGHTS)[0], rng)
        ]
        encodings = tokenizer.encode_batch([text for text, _ in pieces], add_special_tokens=False)
        for encoding, (_, token_class) in zip(encodings, pieces, strict=True):
            ids.append(np.array(encoding.ids, np.uint16))
            classes.append(np.full(len(encoding.ids), token_class, np.uint8))
    np.save(work / "tokens.npy", np.concatenate(ids))
    np.save(work / "weights.npy", np.concatenate(classes))
