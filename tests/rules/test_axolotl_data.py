"""axolotl's rules about loaders, streams, batches and data sets: every operand on its own."""

from __future__ import annotations

import pytest

from tests.helpers import findings

STREAM = "streaming: true\nmax_steps: 10\n"
TEXT = "pretraining_dataset: [{path: org/text}]\n"
PRETRAIN = f"{TEXT}streaming: true\nmax_steps: 10\n"
PACKED = "sample_packing: true\nattn_implementation: flash_attention_2\n"
TWO_SETS = "datasets: [{path: a, type: alpaca}, {path: b, type: alpaca}]\n"
MISTRAL = "tokenizer_use_mistral_common: true\n"
DEDUPLICATED = "dataset_exact_deduplication: true\n"
NUM_STEPS = "accelerator_config: {gradient_accumulation_kwargs: {num_steps: 2}}\n"
LISTED = "fsdp: [full_shard]\n"


def data_set(text: str, key: str = "datasets") -> str:
    return f"{key}: [{{path: org/first}}, {{path: org/data, {text}}}]\n"


BROKEN: dict[str, list[str]] = {
    "AX501": ["accelerator_config: {evn_batches: true}\n"],
    "AX502": [
        "gradient_accumulation_steps: 2\naccelerator_config: {gradient_accumulation_kwargs: {num_steps: 0}}\n",
        f"gradient_accumulation_steps: 2\n{NUM_STEPS}",
    ],
    "AX503": [f"{PACKED}accelerator_config: {{even_batches: true}}\n"],
    "AX504": [
        "dataloader_prefetch_factor: 2\n",
        "dataloader_prefetch_factor: 0\ndataloader_num_workers: 0\n",
        "dataloader_prefetch_factor: 2\ndataloader_num_workers: null\n",
    ],
    "AX505": ["processor_type: AutoProcessor\ndataloader_num_workers: 0\n"],
    "AX506": ["streaming: true\n", TEXT, f"{TEXT}max_steps: 0\n", f"{TEXT}streaming: false\n"],
    "AX507": [f"{STREAM}val_set_size: 100\n", f"{TEXT}max_steps: 10\nval_set_size: 0.1\n"],
    "AX508": [f"{TEXT}max_steps: 10\n"],
    "AX509": [f"{PRETRAIN}group_by_length: true\n"],
    "AX510": [f"{TEXT}max_steps: 10\ninclude_tokens_per_second: true\n"],
    "AX511": [f"{STREAM}{DEDUPLICATED}", f"{TEXT}max_steps: 10\n{DEDUPLICATED}"],
    "AX512": [f"{DEDUPLICATED}skip_prepare_dataset: true\n"],
    "AX513": [f"{STREAM}{PACKED}{TWO_SETS}"],
    "AX514": [f"{TEXT}max_steps: 10\n{PACKED}micro_batch_size: 2\n", f"{STREAM}{PACKED}micro_batch_size: 8\n"],
    "AX515": ["micro_batch_size: 2\neval_batch_size: 1\n"],
    "AX516": [
        "gradient_accumulation_steps: null\nmicro_batch_size: 4\nbatch_size: 3\n",
        "gradient_accumulation_steps: null\nmicro_batch_size: 4\nbatch_size: 4\n",
    ],
    "AX517": ["ddp: false\n", "ddp: false\nfsdp_config: {}\nfsdp: []\n"],
    "AX521": [data_set("type: sharegpt"), data_set("type: sharegpt.load_multirole")],
    "AX522": [data_set("train_on_split: train"), data_set("train_on_split: test", "test_datasets")],
    "AX523": [
        data_set("message_field_role: from, message_property_mappings: {role: speaker}"),
        data_set("message_field_content: value, message_property_mappings: {content: text}"),
    ],
    "AX524": [data_set("chat_template: jinja"), data_set("chat_template: jinja, chat_template_jinja: ''")],
    "AX525": ["chat_template: jinja\nchat_template_jinja: ''\n"],
    "AX526": ["push_dataset_to_hub: a/b\n", "push_dataset_to_hub: a/b\nhf_use_auth_token: null\n"],
    "AX527": ["reward_model: true\npad_to_sequence_len: false\n"],
    "AX528": [
        MISTRAL + text
        for text in (
            "added_tokens_overrides: {128000: x}\n",
            "special_tokens: {pad_token: x}\n",
            "tokens: [x]\n",
            "chat_template: chatml\n",
            "processor_kwargs: {size: 1}\n",
        )
    ],
    "AX529": ["gptq: true\nrevision_of_model: v1\n"],
    "AX530": ["flash_optimum: true\n", "flash_optimum: true\nbf16: false\nfp16: true\n"],
    "AX531": [
        "processor_kwargs: {revision: ''}\n",
        "processor_kwargs: {revision: x}\n",
        "processor_kwargs: {trust_remote_code: false}\n",
    ],
    "AX532": ["image_resize_algorithm: bicubical\n", "image_resize_algorithm: abicubic\n"],
    "AX533": ["large_head_attention: eager\n", "large_head_attention: ''\n"],
    "AX534": [
        "trust_remote_code: true\nrevision_of_model: ''\n",
        "trust_remote_code: true\nmodel_revision: ''\n",
        "trust_remote_code: true\nmodel_revision: null\n",
    ],
}
FINE: dict[str, list[str]] = {
    "AX501": ["accelerator_config: null\n", "split_batches: true\n"],
    "AX502": [NUM_STEPS, "gradient_accumulation_steps: 2\n", f"gradient_accumulation_steps: null\n{NUM_STEPS}"],
    "AX503": [f"{PACKED}accelerator_config: {{even_batches: false}}\n", "accelerator_config: {even_batches: true}\n"],
    "AX504": ["dataloader_num_workers: 0\n", "dataloader_prefetch_factor: null\ndataloader_num_workers: 0\n"],
    "AX505": [
        "dataloader_num_workers: 0\n",
        "processor_type: AutoProcessor\n",
        "processor_type: ''\ndataloader_num_workers: 0\n",
    ],
    "AX506": [
        "pretraining_dataset: []\n",
        f"{TEXT}max_steps: 1\n",
        "streaming: false\n",
        "max_steps: 10\n",
        "pretraining_dataset: null\n",
    ],
    "AX507": [
        "pretraining_dataset: []\nval_set_size: 0.1\n",
        f"{STREAM}val_set_size: 0.0\n",
        "val_set_size: 0.1\n",
        "streaming: false\nval_set_size: 0.1\n",
    ],
    "AX508": ["pretraining_dataset: []\n", PRETRAIN, "streaming: false\n", "pretraining_dataset: null\n"],
    "AX509": [
        "pretraining_dataset: []\ngroup_by_length: true\n",
        f"{STREAM}group_by_length: true\n",
        f"{PRETRAIN}group_by_length: null\n",
    ],
    "AX510": [
        "pretraining_dataset: []\ninclude_tokens_per_second: true\n",
        f"{STREAM}include_tokens_per_second: true\n",
    ],
    "AX511": [
        f"{DEDUPLICATED}pretraining_dataset: []\n",
        DEDUPLICATED,
        f"{DEDUPLICATED}streaming: false\n",
        f"{STREAM}dataset_exact_deduplication: false\n",
        STREAM,
    ],
    "AX512": ["skip_prepare_dataset: true\n", "dataset_exact_deduplication: false\nskip_prepare_dataset: true\n"],
    "AX513": [f"{STREAM}{TWO_SETS}", f"{PACKED}{TWO_SETS}", f"{STREAM}{PACKED}", f"{PRETRAIN}{PACKED}datasets: null\n"],
    "AX514": [
        f"pretraining_dataset: []\n{PACKED}micro_batch_size: 2\n",
        f"{STREAM}micro_batch_size: 2\n",
        f"{PACKED}micro_batch_size: 2\n",
        f"{STREAM}sample_packing: false\nmicro_batch_size: 2\n",
        f"streaming: false\n{PACKED}micro_batch_size: 2\n",
    ],
    "AX515": ["micro_batch_size: 2\n", "micro_batch_size: 2\neval_batch_size: 0\n", "eval_batch_size: many\n"],
    "AX516": [
        "gradient_accumulation_steps: null\nmicro_batch_size: 4\n",
        "gradient_accumulation_steps: 1\nmicro_batch_size: 4\nbatch_size: 3\n",  # AX202
        "gradient_accumulation_steps: null\nmicro_batch_size: 0\nbatch_size: 3\n",
    ],
    "AX517": [
        "ddp: true\n",
        "ddp: null\n",
        f"ddp: false\n{LISTED}",
        "ddp: false\nfsdp_config: {offload_params: false}\n",
    ],
    "AX521": [data_set("type: chat_template"), data_set("type: {field_output: sharegpt}"), "datasets: null\n"],
    "AX522": [data_set("train_on_split: null"), data_set("split: train")],
    "AX523": [
        data_set("message_field_role: from, message_property_mappings: {role: from}"),
        data_set("message_field_role: from"),
        data_set("message_field_role: from, message_property_mappings: {content: text}"),
        data_set("message_field_role: from, message_property_mappings: null"),
    ],
    "AX524": [data_set("chat_template: chatml"), data_set("chat_template: jinja, chat_template_jinja: x")],
    "AX525": ["chat_template: chatml\n", "chat_template_jinja: x\n"],
    "AX526": ["hf_use_auth_token: false\n", "push_dataset_to_hub: ''\n"],
    "AX527": [
        "pad_to_sequence_len: false\n",
        "reward_model: true\n",
        "reward_model: false\npad_to_sequence_len: false\n",
    ],
    "AX528": [
        "tokenizer_use_mistral_common: false\nchat_template: chatml\n",
        "chat_template: chatml\n",
        f"{MISTRAL}added_tokens_overrides: {{}}\nspecial_tokens: null\ntokens: []\nchat_template: ''\nprocessor_kwargs: {{}}\n",
    ],
    "AX529": ["revision_of_model: v1\n", "gptq: false\nrevision_of_model: v1\n", "gptq: true\nrevision_of_model: ''\n"],
    "AX530": ["bf16: true\n", "flash_optimum: false\n", "flash_optimum: true\nbf16: false\nfp16: false\n"],
    "AX531": ["processor_kwargs: {}\n", "processor_kwargs: {revision: null}\n", "revision_of_model: x\n"],
    "AX532": [f"image_resize_algorithm: {name}\n" for name in ("bilinear", "BICUBIC", "lanczos", "2", "null")],
    "AX533": [f"large_head_attention: {name}\n" for name in ("auto", "sdpa", "triton_flash", "null")],
    "AX534": ["trust_remote_code: false\n", "trust_remote_code: true\nmodel_revision: v1\n", "base_model: a/b\n"],
}
CASES = [
    *((code, fragment, True) for code, fragments in BROKEN.items() for fragment in fragments),
    *((code, fragment, False) for code, fragments in FINE.items() for fragment in fragments),
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_operands(code: str, fragment: str, broken: bool) -> None:
    assert bool(findings(code, fragment)) == broken


@pytest.mark.parametrize(
    ("total", "severity", "message", "fix"),
    [
        (3, "error", "batch_size 3 is less than micro_batch_size 4: axolotl accumulates 0 batches", "steps: 1 "),
        (4, "warning", "batch_size 4 / micro_batch_size 4 makes 1 accumulated batches on every rank", "steps: 1 "),
        (11, "warning", "makes 2 accumulated batches (3 left over) on every rank", "steps: 2 "),
        (32, "warning", "batch_size 32 / micro_batch_size 4 makes 8 accumulated batches on every", "steps: 8 "),
    ],
)
def test_accumulation_from_batch_size(total: int, severity: str, message: str, fix: str) -> None:
    text = f"gradient_accumulation_steps: null\nmicro_batch_size: 4\nbatch_size: {total}\n"
    (finding,) = findings("AX516", text)
    assert finding.severity == severity
    assert message in finding.message
    assert finding.fix is not None
    assert fix in finding.fix.title


def test_each_data_set_is_named() -> None:
    text = "datasets: [{path: a, type: sharegpt}, {path: b, type: alpaca}, {path: c, type: sharegpt}]\n"
    assert [finding.key for finding in findings("AX521", text)] == ["datasets[0].type", "datasets[2].type"]


def test_a_split_of_both_spellings_is_removed_not_renamed() -> None:
    (finding,) = findings("AX522", data_set("train_on_split: a, split: b"))
    assert finding.fix is not None
    assert (finding.fix.title, finding.fix.edits) == ("remove it", ())
