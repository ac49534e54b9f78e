"""Train the demo model: backbone and MTP blocks jointly, then export in the published layout.

    python packaging/demo/train.py --chats chats.jsonl --work DIR --seconds 840 --total-seconds 840

Needs torch, tokenizers, safetensors and a CUDA GPU (or --device cpu --tiny for a trial run). The original took 14
minutes on one H200.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from data import prepare
from safetensors.torch import save_file
from student import Config, MixtureOfExperts, Student, checkpoint_tensors
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CLASS_WEIGHTS = torch.tensor([0.1, 0.3, 1.0])
"""Weight in the loss of markers and system text, of user text, and of answers."""
FLOAT32_NAMES = ("sconv", "gate.bias", "global_scale")
"""Parts of the names of tensors that are exported in float32."""


def orthogonalise(gradient: Tensor, steps: int = 5) -> Tensor:
    """The nearest semi-orthogonal matrix, by Newton-Schulz iteration in the last two dimensions (Muon's update)."""
    x = gradient.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalised updates (Jordan et al., 2024)."""

    def __init__(self, params: list[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonalise(p.grad.lerp(momentum, group["momentum"])).to(p.dtype)
                p.add_(update, alpha=-group["lr"] * max(1, p.shape[-2] / p.shape[-1]) ** 0.5)


@dataclass
class Batches:
    """Random windows of the packed tokens; the last hundredth is held out."""

    ids: np.ndarray
    classes: np.ndarray
    length: int
    """Tokens of a window: L + depths + 1."""
    device: str

    def take(self, count: int, *, held_out: bool = False) -> tuple[Tensor, Tensor]:
        """(ids, loss weights), both [count, length]."""
        held = len(self.ids) // 100
        last = len(self.ids) - self.length - 1
        low, high = (len(self.ids) - held, last) if held_out else (0, last - held)
        rows = np.random.randint(low, high, count)[:, None] + np.arange(self.length)
        weights = CLASS_WEIGHTS[torch.from_numpy(self.classes[rows].astype(np.int64))]
        return torch.from_numpy(self.ids[rows].astype(np.int64)).to(self.device), weights.to(self.device)


class Trainer:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.config = Config()
        self.depths = self.config.num_nextn_predict_layers
        self.dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
        self.model = Student(self.config).to(args.device)
        self.batches = Batches(
            np.load(args.work / "tokens.npy"),
            np.load(args.work / "weights.npy"),
            args.length + self.depths + 1,
            args.device,
        )
        muon, adam, embeddings = [], [], []
        for name, p in self.model.named_parameters():
            if name.startswith(("embed.", "unembed.")):
                embeddings.append(p)
            elif p.ndim >= 2 and not any(part in name for part in ("sconv", "rel_logits", "gate.weight")):
                muon.append(p)
            else:
                adam.append(p)
        groups = [{"params": adam, "lr": args.adam}, {"params": embeddings, "lr": 2 * args.adam}]
        self.optimizers = [Muon(muon, args.lr), torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)]
        self.clipped = adam + embeddings
        self.step = 0
        if args.resume:
            state = torch.load(args.work / "state.pt", map_location=args.device)
            self.model.load_state_dict(state["model"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.step = state["step"]
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group.setdefault("base", group["lr"])
        compiled = args.device == "cuda"
        self.losses_fn = torch.compile(self.losses, dynamic=False) if compiled else self.losses

    def losses(self, ids: Tensor, weights: Tensor) -> Tensor:
        """[1 + depths, 2]: weighted cross entropy and accuracy of the trunk and of each depth."""
        hidden, drafts = self.model(ids[:, :-1], self.dtype)
        length = self.args.length
        rows = []
        for j, h in enumerate([hidden, *drafts]):
            target, weight = ids[:, 1 + j : 1 + j + length], weights[:, 1 + j : 1 + j + length]
            loss, right = checkpoint(self.readout_loss, h, target, weight, use_reentrant=False)
            rows.append(torch.stack([loss / weight.sum(), right / weight.sum()]))
        return torch.stack(rows)

    def readout_loss(self, hidden: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        c, model = self.config, self.model
        x = F.rms_norm(hidden.float(), (hidden.shape[-1],), None, c.rms_norm_eps) * model.norm.weight
        x = (x / c.logits_mup_width_multiplier).to(self.dtype)
        logits = (x @ model.unembed.weight[: c.unpadded_vocab_size].to(self.dtype).T).float()
        each = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
        return (each * weight.flatten()).sum(), (logits.argmax(-1) == target).float().mul(weight).sum()

    def learning_rate(self, done: float) -> float:
        """Warm-up over 60 steps, constant for half the time, then linear to 3 %."""
        share = min(1.0, done / self.args.total_seconds)
        decay = 1.0 if share < 0.5 else max(0.0, (1 - share) / 0.5) * 0.97 + 0.03
        return min(1.0, (self.step + 1) / 60) * decay

    def train(self) -> None:
        args = self.args
        depth_weights = torch.tensor([1.0, *(0.15 * 0.8**j for j in range(self.depths))], device=args.device)
        moe_layers = [layer.mlp for layer in self.model.layers if isinstance(layer.mlp, MixtureOfExperts)]
        first, started = self.step, time.time()
        self.model.train()
        while time.time() - started <= args.seconds and not (args.tiny and self.step >= first + 3):
            rate = self.learning_rate(args.done_seconds + time.time() - started)
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = group["base"] * rate
            for mlp in moe_layers:
                mlp.load.zero_()
            total = torch.zeros(1 + self.depths, 2, device=args.device)
            for _ in range(args.accumulate):
                result = self.losses_fn(*self.batches.take(args.batch))
                ((result[:, 0] * depth_weights).sum() / args.accumulate).backward()
                total += result.detach() / args.accumulate
            torch.nn.utils.clip_grad_norm_(self.clipped, 1.0)
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                for mlp in moe_layers:  # balances the experts without an auxiliary loss
                    mlp.gate.bias += 0.002 * rate * torch.sign(mlp.load.mean() - mlp.load)
            self.step += 1
            if self.step % 100 == 0 or self.step == first + 3:
                figures = " ".join(f"{loss:.3f}/{right:.3f}" for loss, right in total.tolist())
                self.log(f"step {self.step}, {time.time() - started:.0f} s, loss/accuracy by depth {figures}")
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        state = {"model": self.model.state_dict(), "optimizers": optimizers, "step": self.step}
        torch.save(state, args.work / "state.pt")

    @torch.no_grad()
    def evaluate(self) -> None:
        """Held-out loss, and how often the depths, chained, equal the backbone's own choices."""
        self.model.eval()
        rounds, batch, usable = (1 if self.args.tiny else 4), self.args.batch, self.args.length - self.depths
        losses = torch.stack(
            [self.losses_fn(*self.batches.take(batch, held_out=True)) for _ in range(2 * rounds)]
        ).mean(0)
        agree = torch.zeros(self.depths)
        for _ in range(rounds):
            ids, _ = self.batches.take(batch, held_out=True)
            hidden, drafts = self.model(ids[:, :-1], self.dtype)
            choice = self.model.logits(hidden).argmax(-1)
            right = torch.ones(batch, usable, dtype=torch.bool, device=ids.device)
            for j, draft in enumerate(drafts):
                guess = self.model.logits(draft).argmax(-1)[:, :usable]
                right &= guess == choice[:, 1 + j : 1 + j + usable]
                agree[j] += right.float().mean().item() / rounds
        figures = " ".join(f"{loss:.3f}/{right:.3f}" for loss, right in losses.tolist())
        self.log(f"held out: {figures}; chained agreement {' '.join(f'{share:.3f}' for share in agree.tolist())}")

    def export(self) -> None:
        for name, tensors in zip(("model", "mtp"), checkpoint_tensors(self.model), strict=True):
            stored = {
                key: value if any(part in key for part in FLOAT32_NAMES) else value.bfloat16()
                for key, value in tensors.items()
            }
            save_file(stored, self.args.work / f"{name}.safetensors")

    def log(self, line: str) -> None:
        print(line, flush=True)
        with (self.args.work / "log.txt").open("a") as file:
            file.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chats", type=Path, nargs="+", default=[], help="JSON lines of generate_chats.py")
    parser.add_argument("--work", type=Path, required=True, help="directory for tokens, state and the checkpoint")
    parser.add_argument("--seconds", type=float, default=480, help="length of this call")
    parser.add_argument("--total-seconds", type=float, default=480, help="length of the schedule over all calls")
    parser.add_argument("--done-seconds", type=float, default=0, help="length of the calls before this one")
    parser.add_argument("--length", type=int, default=768, help="rows of a training window")
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.02, help="Muon's learning rate")
    parser.add_argument("--adam", type=float, default=2e-3, help="AdamW's learning rate; embeddings get twice that")
    parser.add_argument("--authored", type=int, default=12_000, help="hand-written conversations to add")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="three steps, to try the script")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    if not (args.work / "tokens.npy").exists():
        prepare(args.chats, args.work, Config().unpadded_vocab_size, args.authored, random.Random(1))
    trainer = Trainer(args)
    trainer.train()
    trainer.evaluate()
    trainer.export()


if __name__ == "__main__":
    main()
