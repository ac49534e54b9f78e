"""config.json: three spellings, every field validated, other families refused by name."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import layouts
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import ModelConfig
from engine.errors import ConfigError

PUBLISHED = layouts.config()


def changed(path: str, value: Any) -> dict[str, Any]:
    """The published config with one field changed; `...` removes it."""
    config = copy.deepcopy(PUBLISHED)
    *parents, leaf = path.split(".")
    place = config
    for parent in parents:
        place = place[parent]
    if value is ...:
        del place[leaf]
    else:
        place[leaf] = value
    return config


def test_published_spelling() -> None:
    config = ModelConfig.from_directory(layouts.TINY)
    text = config.text
    assert (config.model_type, config.dtype, config.eos_token_ids) == ("inkling_mm_model", "float32", (2,))
    assert text.sliding == (True, True, False, True, True, False)
    assert text.dense == (True, False, False, False, False, False)
    assert (text.dense_width, text.expert_width) == (96, 32)
    assert (text.sliding_attention.heads, text.sliding_attention.kv_heads, text.sliding_attention.head_dim) == (8, 4, 8)
    assert (text.sliding_attention.window, text.sliding_attention.extent) == (8, 8)
    assert (text.global_attention.window, text.global_attention.extent) == (None, 16)
    assert config.mtp is not None
    assert (config.mtp.sliding, config.mtp.chain_norm, config.mtp.depths) == ((True, False, True), False, 3)


def test_the_spelling_of_transformers_means_the_same() -> None:
    published, saved = ModelConfig.from_dict(PUBLISHED), ModelConfig.from_dict(layouts.transformers_config())
    assert saved == published


def test_text_only_spelling() -> None:
    published = ModelConfig.from_dict(PUBLISHED)
    text_only = ModelConfig.from_dict(layouts.transformers_config(text_only=True))
    assert text_only.model_type == "inkling_text"
    assert (text_only.text, text_only.mtp) == (published.text, None)


def test_intermediate_size_changes_its_meaning_with_the_spelling() -> None:
    saved = layouts.transformers_config()
    assert (PUBLISHED["text_config"]["intermediate_size"], saved["text_config"]["intermediate_size"]) == (32, 96)
    for config in (PUBLISHED, saved):
        text = ModelConfig.from_dict(config).text
        assert (text.dense_width, text.expert_width) == (96, 32)


@pytest.mark.parametrize("family", ["inkling2", "inkling2_loop", "llama", "", None, 7])
def test_other_families_are_refused_by_name(family: object) -> None:
    with pytest.raises(ConfigError) as error:
        ModelConfig.from_dict({**PUBLISHED, "model_type": family})
    assert (repr(family) if family is not None else "without model_type") in error.value.title
    assert "Inkling" in error.value.hint


@pytest.mark.parametrize("family", ["inkling_mm_model", "inkling", "inkling_text"])
def test_families_of_the_first_generation_are_read(family: str) -> None:
    assert ModelConfig.from_dict({**PUBLISHED, "model_type": family}).text.num_layers == 6


WRONG = [
    ("text_config.hidden_size", [0, -1, 64.0, "64", True, 10**9]),
    ("text_config.num_hidden_layers", [0, "6", 10**6]),
    ("text_config.vocab_size", [1, 1e5]),
    ("text_config.unpadded_vocab_size", [0, 257]),
    ("text_config.num_attention_heads", [0, 1.5]),
    ("text_config.num_key_value_heads", [0, 3, 8]),
    ("text_config.swa_num_key_value_heads", [3, 16]),
    ("text_config.head_dim", [0, "16"]),
    ("text_config.sliding_window_size", [0, -8]),
    ("text_config.rel_extent", [0, []]),
    ("text_config.d_rel", [0]),
    ("text_config.log_scaling_n_floor", [0, "12"]),
    ("text_config.log_scaling_alpha", ["0.1", float("nan"), float("inf")]),
    ("text_config.local_layer_ids", [[6], [-1], [0, 0], "01", [True], [0.0]]),
    ("text_config.rms_norm_eps", [0, -1e-6, 2.0, "1e-6", True]),
    ("text_config.sconv_kernel_size", [1, 4.0]),
    ("text_config.dense_mlp_idx", [-1, 7]),
    ("text_config.dense_intermediate_size", [0]),
    ("text_config.intermediate_size", [0, "32"]),
    ("text_config.n_routed_experts", [0]),
    ("text_config.num_experts_per_tok", [0, 9]),
    ("text_config.n_shared_experts", [0, -2]),
    ("text_config.route_scale", [0, "8", float("nan")]),
    ("text_config.logits_mup_width_multiplier", [0, -2.0]),
    ("text_config.model_max_length", [0, "4096"]),
    ("text_config.use_embed_norm", ["true", 1]),
    ("text_config.shared_expert_sink", [False, "yes"]),
    ("text_config.use_gate_bias", [False]),
    ("text_config.gate_activation", ["softmax"]),
    ("text_config.norm_after_topk", [False]),
    ("text_config.use_global_scale", [False]),
    ("text_config.use_sconv", [False]),
    ("text_config.q_bias", [True]),
    ("text_config.o_bias", [True]),
    ("text_config.tie_word_embeddings", [True]),
    ("text_config.final_logit_softcapping", [30.0]),
    ("text_config.hidden_act", ["gelu"]),
    ("text_config.mtp_hidden_states_first", [False]),
    ("text_config", [[], 3]),
    ("mtp_config", ["none", 3]),
    ("mtp_config.num_nextn_predict_layers", [-1, "3", 65]),
    ("mtp_config.local_layer_ids", [[3], [0, 0]]),
    ("mtp_config.chain_hidden_post_norm", ["no"]),
    ("eos_token_id", [-1, 256, [], [2, "3"], "2", True]),
    ("torch_dtype", [32]),
    ("quantization", [4, "4bit"]),
]


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, values in WRONG for value in values])
def test_a_wrong_value_is_named(path: str, value: object) -> None:
    with pytest.raises(ConfigError) as error:
        ModelConfig.from_dict(changed(path, value))
    assert path.rpartition(".")[2].removeprefix("torch_") in error.value.title
    assert repr(value) in error.value.title
    assert error.value.hint


REQUIRED = [
    *("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim", "sliding_window_size", "local_layer_ids"),
    *("d_rel", "rel_extent", "log_scaling_alpha", "rms_norm_eps", "sconv_kernel_size", "dense_mlp_idx"),
    *("intermediate_size", "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "route_scale"),
    *("logits_mup_width_multiplier", "model_max_length"),
]


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("absent", [..., None], ids=["removed", "null"])
def test_a_missing_field_is_named(name: str, absent: object) -> None:
    with pytest.raises(ConfigError, match=f"text_config\\.{name}.* is missing"):
        ModelConfig.from_dict(changed(f"text_config.{name}", absent))


def test_a_missing_dense_width_is_named_in_the_spelling_that_is_left() -> None:
    # Without dense_intermediate_size the spelling is that of transformers, where the experts' width has its own name.
    with pytest.raises(ConfigError, match=r"text_config\.moe_intermediate_size is missing"):
        ModelConfig.from_dict(changed("text_config.dense_intermediate_size", ...))


def test_optional_fields_have_the_family_values() -> None:
    config = changed("text_config.unpadded_vocab_size", None)
    config["text_config"]["log_scaling_n_floor"] = None
    del config["text_config"]["use_embed_norm"]
    text = ModelConfig.from_dict(config).text
    assert (text.unpadded_vocab_size, text.log_scaling_floor, text.embed_norm) == (256, None, True)


@pytest.mark.parametrize("mtp", [..., None, {}, {"num_nextn_predict_layers": 0}])
def test_no_announced_head(mtp: object) -> None:
    assert ModelConfig.from_dict(changed("mtp_config", mtp)).mtp is None


def test_layer_kinds_are_checked_one_by_one() -> None:
    saved = layouts.transformers_config()
    for wrong in (["hybrid"] * 5, ["hybrid"] * 5 + ["full"], "hybrid"):
        with pytest.raises(ConfigError, match="layer_types"):
            ModelConfig.from_dict({**saved, "text_config": {**saved["text_config"], "layer_types": wrong}})


def test_stop_ids_come_from_the_top_level_then_generation_config_then_the_text_config(tmp_path: Path) -> None:
    def stop_ids(config: dict[str, Any]) -> tuple[int, ...]:
        (tmp_path / "config.json").write_text(json.dumps(config))
        return ModelConfig.from_directory(tmp_path).eos_token_ids

    config = {**PUBLISHED, "eos_token_id": [6, 9, 6]}
    assert stop_ids(config) == (6, 9)
    del config["eos_token_id"]
    assert stop_ids(config) == (2,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 11}')
    assert stop_ids(config) == (11,)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
        (b"[1]", "list instead of an object"),
    ],
)
def test_an_unreadable_file_is_named(content: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=what) as error:
        ModelConfig.from_directory(tmp_path)
    assert str(tmp_path / "config.json") in error.value.title


def test_missing_directory_and_missing_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model directory .* is not there"):
        ModelConfig.from_directory(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        ModelConfig.from_directory(tmp_path)


@pytest.mark.parametrize("named", ["", "Inkling-Q4.gguf"])
def test_gguf_is_refused_by_name(named: str, tmp_path: Path) -> None:
    (tmp_path / "Inkling-Q4.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="is GGUF, which Inkstand does not read") as raised:
        ModelConfig.from_directory(tmp_path / named)
    assert "safetensors" in raised.value.hint


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PATHS = [f"text_config.{name}" for name in PUBLISHED["text_config"]] + ["mtp_config", "eos_token_id", "torch_dtype"]


@given(st.sampled_from(PATHS), JSON)
def test_any_value_is_read_or_refused(path: str, value: object) -> None:
    try:
        config = ModelConfig.from_dict(changed(path, value))
    except ConfigError:
        return
    assert config.text.num_layers == len(config.text.dense)
