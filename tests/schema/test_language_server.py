"""The schemas in the server behind VS Code's, Neovim's and most other editors' YAML support."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from ndcheck.schema.export import WORDS, export
from ndcheck.schema.files import published
from tests.schema.configs import corpus
from tests.schema.lsp import Server, serving
from tests.schema.node import needs_node
from tests.schema.verdicts import Schema

pytestmark = needs_node

TEN_MISTAKES = """\
base_model: org/model
learning_rate: 1e-5
datasets: [{path: org/data, type: alpaca}]
micro_batch_size: 2
gradient_accumulation_steps: 1
sample_packing: true
context_parallel_size: 2
attn_implementation: sdpa
ring_attn_func: batch_ring
deepspeed: zero3.json
fsdp_version: 2
fsdp_config:
  offload_params: true
  activation_checkpointing: true
  use_orig_params: true
gradient_checkpointing: true
adapter: qlora
load_in_8bit: true
merge_lora: false
optimizer: paged_adamw_8bit
save_strategy: steps
load_best_model_at_end: true
warmup_steps: 10
warmup_ratio: 0.1
evals_per_epoch: 1
eval_steps: 10
saves_per_epoch: 1
save_steps: 10
max_memory: {"0": 20GiB}
gpu_memory_limit: 20GiB
bf16: true
fp16: true
s2_attention: true
val_set_size: 0.1
test_datasets: [{path: org/data, type: alpaca}]
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(published("axolotl")) as running:
        yield running


def told(diagnostics: list[dict[str, Any]]) -> dict[str, tuple[int, str]]:
    """Code -> line, counted from 1, and message."""
    found = {}
    for one in diagnostics:
        if code := re.search(r" \[([A-Z]{2}\d+) [\w-]+\]$", one["message"]):
            found[code[1]] = (one["range"]["start"]["line"] + 1, one["message"])
    return found


def test_ten_mistakes_stand_on_their_lines(server: Server) -> None:
    found = told(server.open("ten.yaml", TEN_MISTAKES))
    keys = {number: line.split(":")[0].strip() for number, line in enumerate(TEN_MISTAKES.splitlines(), 1)}
    places = {code: keys[line] for code, (line, _) in found.items()}
    assert places == {
        "AX101": "attn_implementation",
        "AX102": "micro_batch_size",
        "AX131": "ring_attn_func",
        "AX317": "activation_checkpointing",
        "AX333": "gpu_memory_limit",
        "AX407": "deepspeed",
        "AX703": "adapter",
        "AX704": "load_in_8bit",
        "AX790": "fp16",
        "AX906": "warmup_ratio",
        "AX908": "save_steps",
        "AX921": "val_set_size",
        "AX926": "eval_steps",
        "AX971": "s2_attention",
        "ND203": "deepspeed",
    }
    assert found["AX101"][1].startswith("context_parallel_size needs flash attention, not attn_implementation")


def test_messages_are_sentences_for_people(server: Server) -> None:
    for _, message in told(server.open("people.yaml", TEN_MISTAKES)).values():
        assert "{" not in message
        assert len(message) < 400


def test_a_change_is_answered(server: Server) -> None:
    text = "base_model: a\ncontext_parallel_size: 2\nattn_implementation: sdpa\n"
    assert "AX101" in told(server.open("change.yaml", text))
    assert "AX101" not in told(server.change("change.yaml", 2, text.replace("sdpa", "flash_attention_2")))


def test_a_good_file_is_quiet(server: Server) -> None:
    text = (
        "base_model: org/model\nlearning_rate: 1e-5\ndatasets: [{path: org/data, type: alpaca}]\nmicro_batch_size: 1\n"
    )
    assert server.open("good.yaml", f"{text}gradient_accumulation_steps: 1\ndp_shard_size: 8\nbf16: yes\n") == []


def test_a_wrong_type_says_what_is_wanted(server: Server) -> None:
    (one,) = server.open("type.yaml", "base_model: a\nlearning_rate: 1e-5\nsequence_len: long\n")[:1]
    assert (one["range"]["start"]["line"], one["message"]) == (2, "sequence_len must be an integer [ND802 wrong-type]")


def test_a_deprecated_key_names_the_new_one(server: Server) -> None:
    messages = {
        one["message"]: one["range"]["start"]["line"]
        for one in server.open("old.yaml", "base_model: a\nsequence_parallel_degree: 2\nflash_attention: true\n")
    }
    assert messages["deprecated: write context_parallel_size"] == 1
    assert messages["deprecated: write attn_implementation: flash_attention_2"] == 2


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("fsdp_config:\n  ", {"reshard_after_forward", "offload_params", "state_dict_type"}, {"fsdp_offload_params"}),
        ("accelerator_config:\n  ", {"split_batches", "dispatch_batches"}, {"offload_params"}),
        ("trl:\n  ", {"beta", "num_generations", "use_vllm"}, {"split_batches"}),
        ("", {"context_parallel_size", "dp_shard_size", "FSDP + CP"}, {"sequence_parallel_degree"}),
        ("rl: ", {"dpo", "grpo", "kto"}, set()),
        ("fsdp_config:\n  state_dict_type: ", {"FULL_STATE_DICT", "SHARDED_STATE_DICT"}, set()),
        ("bf16: ", {"auto", "true"}, set()),
    ],
)
def test_completion(server: Server, text: str, wanted: set[str], unwanted: set[str]) -> None:
    name = f"complete-{sum(map(ord, text))}.yaml"
    server.open(name, text)
    lines = text.split("\n")
    labels = {item["label"] for item in server.at("completion", name, len(lines) - 1, len(lines[-1]))["items"]}
    assert wanted <= labels
    assert not unwanted & labels


def test_hover_says_what_a_key_is_and_which_rules_look_at_it(server: Server) -> None:
    server.open("hover.yaml", "context_parallel_size: 2\n")
    text = server.at("hover", "hover.yaml", 0, 3)["contents"]["value"]
    assert "Ranks that split every sequence" in text
    assert "ndcheck explain AX101" in text


@pytest.mark.parametrize("dialect", WORDS)
def test_the_server_finds_what_the_other_validators_find(dialect: str) -> None:
    compiled = Schema(export(WORDS[dialect]))
    known = set(compiled.codes)
    configs = Random(1).sample(corpus(dialect), 150)
    with serving(published(dialect)) as running:
        for number, config in enumerate(configs):
            lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in config.items()]
            found = told(running.open(f"{number}.yaml", "\n".join(lines) or "{}"))
            assert known & found.keys() == {code for code, _ in compiled.says(config)}, config
