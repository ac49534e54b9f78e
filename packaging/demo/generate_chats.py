"""Sample synthetic conversations from a small instruct model with a batched static-cache decoder.

Every row of the batch is one conversation. The user's turns are sampled too: the chat header alone makes an instruct
model write a plausible user message. When a row samples the end-of-turn token, the next header is forced token by
token. A part of the rows starts with a given first message.

    python packaging/demo/generate_chats.py --gguf-dir DIR --gguf FILE --out chats.jsonl --seconds 400

The demo model was trained on chats of SmolLM2-135M-Instruct (Apache-2.0, by Hugging Face TB). Needs torch and
transformers.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from authored import seed_prompts
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

SYSTEMS = [
    "You are a helpful AI assistant.",
    "You are a helpful AI assistant.",
    "You are a friendly assistant who answers briefly.",
    "You are a helpful assistant who explains things simply.",
    "You are a creative writing assistant.",
    "You are a patient tutor.",
]
USER, ASSISTANT = 0, 1
TEMPERATURES = {USER: 0.9, ASSISTANT: 0.5}
SEEDED = 0.35
"""Share of conversations that start with a written first message."""
CANDIDATES, NUCLEUS = 64, 0.92
"""Tokens are drawn from the nucleus among the likeliest candidates."""
REFUSED_WORDS = ("smollm", "hugging face", "huggingface", "im_start")
SPAN = 64
"""Attention is computed over the smallest multiple of this that holds all keys."""


class Decoder:
    """One token for every row of a batch at a time, for models of the Llama family with tied embeddings."""

    def __init__(self, model: Any, batch: int, length: int, device: str) -> None:
        c = model.config
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        weights = {name: value.to(device, dtype) for name, value in model.state_dict().items()}
        self.heads, self.kv_heads, self.head_dim, self.eps = (
            c.num_attention_heads,
            c.num_key_value_heads,
            c.head_dim,
            c.rms_norm_eps,
        )
        self.batch, self.length, self.dtype = batch, length, dtype
        self.embedding, self.final_norm = weights["model.embed_tokens.weight"], weights["model.norm.weight"]
        self.layers = [self._layer(weights, f"model.layers.{i}.") for i in range(c.num_hidden_layers)]
        steps = torch.arange(0, self.head_dim, 2, device=device).float() / self.head_dim
        angles = torch.arange(length, device=device).float()[:, None] / c.rope_parameters["rope_theta"] ** steps
        self.cos, self.sin = (f(angles).repeat(1, 2).to(dtype) for f in (torch.cos, torch.sin))
        shape = (c.num_hidden_layers, batch, self.kv_heads, length, self.head_dim)
        self.keys, self.values = (torch.zeros(shape, device=device, dtype=dtype) for _ in range(2))
        self.tokens = torch.zeros(batch, device=device, dtype=torch.long)
        self.position = torch.zeros(1, device=device, dtype=torch.long)
        self.temperature = torch.ones(batch, 1, device=device)
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    @staticmethod
    def _layer(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
        return {
            "attn_norm": weights[f"{prefix}input_layernorm.weight"],
            "mlp_norm": weights[f"{prefix}post_attention_layernorm.weight"],
            "qkv": torch.cat([weights[f"{prefix}self_attn.{part}_proj.weight"] for part in "qkv"]),
            "o": weights[f"{prefix}self_attn.o_proj.weight"],
            "gate_up": torch.cat([weights[f"{prefix}mlp.{part}_proj.weight"] for part in ("gate", "up")]),
            "down": weights[f"{prefix}mlp.down_proj.weight"],
        }

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.eps)

    @staticmethod
    def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    def logits(self, span: int) -> Tensor:
        """Next-token logits [B, V] after `tokens` at `position`, attending to the first `span` cache rows."""
        x = F.embedding(self.tokens, self.embedding)
        cos, sin = self.cos.index_select(0, self.position), self.sin.index_select(0, self.position)
        live = torch.arange(span, device=x.device)[None, None, None] <= self.position
        q_width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        for i, layer in enumerate(self.layers):
            q, k, v = (self.norm(x, layer["attn_norm"]) @ layer["qkv"].T).split([q_width, kv_width, kv_width], -1)
            q = self.rotate(q.view(self.batch, self.kv_heads, -1, self.head_dim), cos, sin)
            k = self.rotate(k.view(self.batch, self.kv_heads, 1, self.head_dim), cos, sin)
            self.keys[i].index_copy_(2, self.position, k)
            self.values[i].index_copy_(2, self.position, v.view(self.batch, self.kv_heads, 1, self.head_dim))
            scores = (q @ self.keys[i][:, :, :span].mT).float() / math.sqrt(self.head_dim)
            scores = scores.masked_fill(~live, -1e30).softmax(-1).to(self.dtype)
            x = x + (scores @ self.values[i][:, :, :span]).reshape(self.batch, q_width) @ layer["o"].T
            gate, up = (self.norm(x, layer["mlp_norm"]) @ layer["gate_up"].T).chunk(2, -1)
            x = x + (F.silu(gate) * up) @ layer["down"].T
        return (self.norm(x, self.final_norm) @ self.embedding.T).float()

    def sample(self, span: int) -> Tensor:
        """One token per row [B]."""
        top, ids = (self.logits(span) / self.temperature).topk(CANDIDATES, -1)
        p = top.softmax(-1)
        p = p.masked_fill(p.cumsum(-1) - p > NUCLEUS, 0)
        # Gumbel's trick keeps the whole step inside a CUDA graph.
        noise = -torch.log(-torch.log(torch.rand_like(p).clamp_(1e-9, 1 - 1e-7)))
        best = (p.clamp_min(1e-30).log() + noise + torch.where(p > 0, 0.0, -1e30)).argmax(-1, True)
        return ids.gather(-1, best).squeeze(-1)

    def step(self, position: int) -> Tensor:
        """Sample at a position, through a captured graph on CUDA."""
        self.position.fill_(position)
        span = min(self.length, (position // SPAN + 1) * SPAN)
        if self.tokens.device.type != "cuda":
            return self.sample(span)
        if span not in self.graphs:
            self.graphs[span] = self._capture(lambda: self.sample(span))
        graph, out = self.graphs[span]
        graph.replay()
        return out.clone()

    @staticmethod
    def _capture(run: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
            run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = run()
        return graph, out


class ChatSampler:
    """Lets a decoder write both sides of a batch of conversations."""

    def __init__(self, decoder: Decoder, tokenizer: Any, rng: random.Random) -> None:
        self.decoder, self.tokenizer, self.rng = decoder, tokenizer, rng
        self.seeds = seed_prompts()
        self.end, self.end_of_text = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
        headers = [self._encode(f"\n<|im_start|>{role}\n") for role in ("assistant", "user")]
        longest = max(map(len, headers))
        padded = [header + [-1] * (longest - len(header)) for header in headers]
        self.headers = torch.tensor(padded, device=decoder.tokens.device)
        """The header that follows a turn of the user, and of the assistant."""
        self.header_lengths = torch.tensor([len(header) for header in headers], device=decoder.tokens.device)

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _beginning(self) -> tuple[list[int], int]:
        """Ids that start a conversation, and whose turn it is."""
        text = f"<|im_start|>system\n{self.rng.choice(SYSTEMS)}<|im_end|>\n<|im_start|>user\n"
        if self.rng.random() >= SEEDED:
            return self._encode(text), USER
        text += f"{self.rng.choice(self.seeds)}<|im_end|>\n<|im_start|>assistant\n"
        return self._encode(text), ASSISTANT

    def batch(self) -> list[str]:
        """One decoded conversation per row."""
        d = self.decoder
        device = d.tokens.device
        beginnings = [self._beginning() for _ in range(d.batch)]
        given_length = max(len(ids) for ids, _ in beginnings)
        given = torch.tensor([ids + [-1] * (given_length - len(ids)) for ids, _ in beginnings], device=device)
        role = torch.tensor([role for _, role in beginnings], device=device)
        header = torch.zeros(d.batch, device=device, dtype=torch.long)
        in_header = torch.full((d.batch,), self.headers.shape[1], device=device)
        history = torch.zeros(d.batch, d.length, device=device, dtype=torch.long)
        history[:, 0] = given[:, 0]
        d.tokens.copy_(given[:, 0])
        for t in range(d.length - 1):
            hot, cool = TEMPERATURES[USER], TEMPERATURES[ASSISTANT]
            d.temperature.copy_(torch.where(role == USER, hot, cool)[:, None])
            token = d.step(t)
            token = torch.where(token == self.end_of_text, self.end, token)
            forced = in_header < self.header_lengths[header]
            token = torch.where(forced, self.headers[header, in_header.clamp(max=self.headers.shape[1] - 1)], token)
            fixed = torch.zeros_like(forced)
            if t + 1 < given_length:
                fixed = given[:, t + 1] >= 0
                token = torch.where(fixed, given[:, t + 1], token)
            in_header = torch.where(forced, in_header + 1, in_header)
            ended = (token == self.end) & ~forced & ~fixed
            header = torch.where(ended, role, header)
            in_header = torch.where(ended, 0, in_header)
            role = torch.where(ended, 1 - role, role)
            history[:, t + 1] = token
            d.tokens.copy_(token)
        return self.tokenizer.batch_decode(history.cpu())


def parse(text: str) -> list[dict[str, str]] | None:
    """The finished turns of a sampled conversation up to an answer, or None when it is not worth keeping."""
    turns: list[tuple[str, str]] = []
    for part in text.split("<|im_start|>")[1:]:
        role, _, body = part.partition("\n")
        content, end, _ = body.partition("<|im_end|>")
        if not end:  # cut by the length
            break
        turns.append((role, content.strip()))
    if turns and turns[-1][0] == "user":
        turns.pop()
    said = "\n".join(content for _, content in turns[1:])
    poor = (
        len(turns) < 3
        or any(word in said.lower() for word in REFUSED_WORDS)
        or not all(content for _, content in turns)
        or (len(said) > 600 and len(zlib.compress(said.encode())) < 0.30 * len(said))
        or sum(ord(character) > 127 for character in said) > 0.03 * len(said)
    )
    return None if poor else [{"role": role, "content": content} for role, content in turns]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf-dir", required=True)
    parser.add_argument("--gguf", required=True, help="file name in that directory")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--length", type=int, default=640)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.gguf_dir, gguf_file=args.gguf)
    model = AutoModelForCausalLM.from_pretrained(args.gguf_dir, gguf_file=args.gguf, dtype=torch.float32)
    decoder = Decoder(model, args.batch, args.length, args.device)
    sampler = ChatSampler(decoder, tokenizer, random.Random(args.seed))
    started = time.time()
    kept = 0
    with args.out.open("w") as file:
        while time.time() - started < args.seconds:
            for text in sampler.batch():
                chat = parse(text)
                if chat is not None:
                    file.write(json.dumps(chat, ensure_ascii=False) + "\n")
                    kept += 1
            print(f"{kept} conversations after {time.time() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
