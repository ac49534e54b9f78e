"""What a demo checkpoint must generate, computed without the engine.

The weights are read, dequantized and run by the torch code of this directory (student.py) alone, in float32. For each
prompt: the greedy continuation, and the rounds and accepted drafts of decoding with 1 .. n drafts in every round under
the stateful schedule. In that schedule each depth has its full history, so accepted drafts are the leading depths
whose choice equals the continuation, which one teacher-forced pass tells.

    python packaging/demo/reference.py CHECKPOINT --cases REFERENCE.json --write tests/data/demo_reference.json
    python packaging/demo/reference.py CHECKPOINT --check REFERENCE.json

--check recomputes a reference file: how many greedy tokens the checkpoint keeps (teacher-forced), and its rounds. Its
exit status is 1 below the gates that a quantized copy has to pass. Needs torch and safetensors.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from student import Config, Student, checkpoint_tensors
from torch import Tensor

MAX_TOKENS = 120
KEPT, KEPT_IN_EACH, TOKENS_PER_ROUND = 0.99, 0.97, 0.98
"""Gates of --check: greedy tokens kept in all cases together and in each, and mean tokens per round with all depths."""
ABOUT = (
    "{name}, float32, greedy, effort 0.9, no system message. greedy_ids: plain greedy continuation, cut at {limit} "
    "tokens or at the stop token, which is included. margins: distance of the two best logits at each of its tokens. "
    "fixed_draft_depth[k]: rounds, tokens per round (without the first token, which the prefill gives) and accepted "
    "drafts when every round drafts k tokens in the stateful schedule: hidden after the final norm, double-normed "
    "embedding, final-norm readout, full history in every depth. draft_margins[j]: distance of the two best logits of "
    "depth j for the tokens from the second on. Computed by packaging/demo/reference.py."
)
_MLX_NAMES = (
    (r"^language_model\.lm_head\.", "model.llm.unembed."),
    (r"^language_model\.model\.embed_tokens\.", "model.llm.embed."),
    (r"^language_model\.model\.", "model.llm."),
    (r"\.input_layernorm\.", ".attn_norm."),
    (r"\.post_attention_layernorm\.", ".mlp_norm."),
    (r"_sconv\.conv\.", "_sconv."),
    (r"\.self_attn\.rel_proj$", ".attn.rel_logits_proj.proj"),
    (r"\.self_attn\.([qr])_proj\.", r".attn.w\1_du."),
    (r"\.self_attn\.([kv])_proj\.", r".attn.w\1_dv."),
    (r"\.self_attn\.o_proj\.", ".attn.wo_ud."),
    (r"\.self_attn\.", ".attn."),
    (r"\.mlp\.gate_weight$", ".mlp.gate.weight"),
    (r"\.mlp\.e_score_correction_bias$", ".mlp.gate.bias"),
    (r"\.mlp\.down_proj\.", ".mlp.w2_md."),
    (r"\.mlp\.switch_mlp\.down_proj\.weight$", ".mlp.experts.w2_weight"),
)
"""mlx-vlm's names -> published ones, for tensors that need no other change."""


def load_student(directory: Path) -> Student:
    """A student with the weights of a checkpoint, published or written by `inkstand convert`."""
    raw = json.loads((directory / "config.json").read_text())
    known = {field.name for field in dataclasses.fields(Config)}
    config = Config(**{key: value for key, value in raw["text_config"].items() if key in known})
    config.num_nextn_predict_layers = raw["mtp_config"]["num_nextn_predict_layers"]
    config.mtp_local_layer_ids = raw["mtp_config"]["local_layer_ids"]
    tensors: dict[str, Tensor] = {}
    for file in sorted(directory.glob("*.safetensors")):
        tensors |= load_file(file)
    weights = published(dequantize(tensors, raw.get("quantization", {})), config)
    student = Student(config).eval()
    expected = {**checkpoint_tensors(student)[0], **checkpoint_tensors(student)[1]}
    if weights.keys() != expected.keys():
        raise SystemExit(f"{directory}: {sorted(weights.keys() ^ expected.keys())[:8]} do not match")
    state = {name.removeprefix("model.llm.").removeprefix("model."): value for name, value in weights.items()}
    student.load_state_dict(state)
    return student


def dequantize(tensors: dict[str, Tensor], quantization: dict[str, Any]) -> dict[str, Tensor]:
    """float32 weights of MLX's affine packing: code * scale + bias, codes little-endian in a stream of u32 words."""
    plain: dict[str, Tensor] = {}
    for name, value in tensors.items():
        module, _, leaf = name.rpartition(".")
        scales = tensors.get(f"{module}.scales")
        if leaf in ("scales", "biases") and f"{module}.weight" in tensors:
            continue
        if scales is None or leaf != "weight":
            plain[name] = value.float()
            continue
        setting = quantization.get(module) or quantization
        bits, group = setting["bits"], setting["group_size"]
        shifts = torch.arange(32, dtype=torch.int64)
        stream = (value.to(torch.int64)[..., None] & 0xFFFFFFFF) >> shifts & 1
        codes = stream.reshape(*value.shape[:-1], -1, bits)
        codes = (codes << torch.arange(bits)).sum(-1).reshape(*scales.shape, group).float()
        wide = codes * scales.float()[..., None] + tensors[f"{module}.biases"].float()[..., None]
        plain[name] = wide.reshape(*value.shape[:-1], -1)
    return plain


def published(tensors: dict[str, Tensor], config: Config) -> dict[str, Tensor]:
    """Bring mlx-vlm's layout back to the published one; published tensors pass unchanged."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        key, value = name, tensor
        for pattern, replacement in _MLX_NAMES:
            key = re.sub(pattern, replacement, key)
        if "_sconv." in key and value.shape[-1] == 1:
            value = value.transpose(1, 2)
        if key.endswith(".mlp.shared_experts.down_proj.weight"):
            key = key.replace("down_proj.weight", "shared_w2_weight")
            value = value.unflatten(1, (config.n_shared_experts, -1)).transpose(0, 1)
        layer = re.match(r"model\.llm\.layers\.(\d+)\.mlp\.global_scale$", key)
        if layer and int(layer[1]) >= config.dense_mlp_idx:
            key = key.replace("mlp.global_scale", "mlp.gate.global_scale")
        result[key] = value.contiguous()
    for name in [name for name in result if name.endswith(".gate_proj.weight")]:
        gate, up = result.pop(name), result.pop(name.replace(".gate_proj.", ".up_proj."))
        if ".shared_experts." in name:
            gate, up = (part.unflatten(0, (config.n_shared_experts, -1)) for part in (gate, up))
        key = name.replace(".shared_experts.gate_proj.weight", ".shared_experts.shared_w13_weight")
        key = key.replace(".switch_mlp.gate_proj.weight", ".experts.w13_weight")
        key = key.replace(".mlp.gate_proj.weight", ".mlp.w13_dn.weight")
        result[key] = torch.stack([gate, up], -2).flatten(-3, -2).contiguous()
    return result


def passes(student: Student, ids: list[int]) -> tuple[Tensor, list[Tensor]]:
    """Teacher-forced logits of the trunk, and of each depth, for every row of `ids`.

    The rows of a depth near the end would need tokens that are not known yet; they are computed from padding and must
    not be used.
    """
    padded = torch.tensor([ids + [0] * student.config.num_nextn_predict_layers])
    with torch.no_grad():
        hidden, drafts = student(padded)
        return student.logits(hidden)[0], [student.logits(draft)[0] for draft in drafts]


def greedy(student: Student, prompt: list[int], stop: int, guess: list[int]) -> list[int]:
    """The greedy continuation, by Jacobi iteration: check a guess in one pass, mend it from its first error on."""
    guess = guess[:MAX_TOKENS] + [0] * (MAX_TOKENS - len(guess))
    while True:
        choices = passes(student, prompt + guess)[0].argmax(-1).tolist()[len(prompt) - 1 : -1]
        right = next((i for i, (a, b) in enumerate(zip(guess, choices, strict=True)) if a != b), MAX_TOKENS)
        final = choices[: right + 1]
        if stop in final or len(final) == MAX_TOKENS:
            return final[: final.index(stop) + 1] if stop in final else final
        guess = choices


def fixed_depth(prompt: list[int], continuation: list[int], guesses: list[list[int]], k: int) -> dict[str, Any]:
    """Rounds of `k` drafts each. guesses[j][p]: what depth j at row p proposes for token p + 2 + j."""
    ids = prompt + continuation
    known, rounds, accepted = len(prompt) + 1, 0, 0  # the prefill gives the first token
    while known < len(ids):
        left = len(ids) - known
        right = 0
        while right < min(k, left) and guesses[right][known - 2] == ids[known + right]:
            right += 1
        rounds, accepted, known = rounds + 1, accepted + right, known + min(right + 1, left)
    emitted = len(continuation) - 1
    return {"rounds": rounds, "tokens_per_round": round(emitted / max(1, rounds), 3), "accepted": accepted}


def margins(logits: Tensor) -> list[float]:
    best = logits.topk(2, -1).values
    return [round(value, 4) for value in (best[:, 0] - best[:, 1]).tolist()]


def depths_table(
    student: Student, prompt: list[int], continuation: list[int]
) -> tuple[dict[str, Any], Tensor, list[Tensor]]:
    """fixed_draft_depth for every k, with the logits of the trunk and of the depths."""
    trunk, drafts = passes(student, prompt + continuation)
    guesses = [draft.argmax(-1).tolist() for draft in drafts]
    table = {str(k): fixed_depth(prompt, continuation, guesses, k) for k in range(1, len(drafts) + 1)}
    return table, trunk, drafts


def write(student: Student, directory: Path, cases: list[dict[str, Any]], out: Path) -> None:
    stop = json.loads((directory / "config.json").read_text())["eos_token_id"]
    result: list[dict[str, Any]] = []
    for case in cases:
        prompt = case["prompt_ids"]
        ids = greedy(student, prompt, stop, case["greedy_ids"])
        table, trunk, drafts = depths_table(student, prompt, ids)
        first, last = len(prompt) - 1, len(prompt) + len(ids) - 2
        result.append(
            {
                "prompt": case["prompt"],
                "effort": case["effort"],
                "prompt_ids": prompt,
                "greedy_ids": ids,
                "margins": margins(trunk[first:-1]),
                "fixed_draft_depth": table,
                "draft_margins": [margins(draft[first : last - j]) for j, draft in enumerate(drafts)],
            }
        )
        print(json.dumps({"prompt": case["prompt"], "tokens": len(ids), **{k: v["rounds"] for k, v in table.items()}}))
    body = ",\n".join(json.dumps(case) for case in result)
    about = ABOUT.format(name=directory.name, limit=MAX_TOKENS)
    out.write_text(f'{{"about": {json.dumps(about)}, "cases": [\n{body}\n]}}\n')


def check(student: Student, cases: list[dict[str, Any]]) -> bool:
    """Print how well a checkpoint keeps a reference, each case and all together; whether that passes the gates."""
    kept = total = 0
    shares: list[float] = []
    deepest = str(student.config.num_nextn_predict_layers)
    ours: list[float] = []
    theirs: list[float] = []
    for case in cases:
        prompt, ids, stated = case["prompt_ids"], case["greedy_ids"], case["fixed_draft_depth"]
        table, trunk, _ = depths_table(student, prompt, ids)
        choices = trunk[len(prompt) - 1 : -1].argmax(-1).tolist()
        same = sum(a == b for a, b in zip(choices, ids, strict=True))
        kept, total = kept + same, total + len(ids)
        shares.append(same / len(ids))
        ours.append(table[deepest]["tokens_per_round"])
        theirs.append(stated[deepest]["tokens_per_round"])
        differ = {k: [table[k], stated[k]] for k in stated if table[k] != stated[k]}
        print(json.dumps({"prompt": case["prompt"], "kept": f"{same}/{len(ids)}", "rounds_differ": differ}))
    mean, original = sum(ours) / len(ours), sum(theirs) / len(theirs)
    print(
        f"greedy tokens kept: {kept}/{total} = {kept / total:.2%}, worst case {min(shares):.2%}; "
        f"tokens per round with {deepest} drafts on the reference's text: {mean:.3f} of {original:.3f} = "
        f"{mean / original:.2%}"
    )
    return kept / total >= KEPT and min(shares) >= KEPT_IN_EACH and mean / original >= TOKENS_PER_ROUND


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--cases", type=Path, help="reference file whose prompts are continued")
    parser.add_argument("--write", type=Path, help="write the checkpoint's own reference file")
    parser.add_argument("--check", type=Path, help="compare with this reference file")
    args = parser.parse_args()
    if bool(args.cases) != bool(args.write) or not (args.write or args.check):
        parser.error("give --check FILE, or --cases FILE with --write FILE")
    student = load_student(args.checkpoint)
    if args.write:
        write(student, args.checkpoint, json.loads(args.cases.read_text())["cases"], args.write)
    if args.check and not check(student, json.loads(args.check.read_text())["cases"]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
