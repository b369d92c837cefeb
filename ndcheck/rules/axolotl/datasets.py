"""axolotl's rules about data sets, chat templates, tokenizers and processors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ndcheck.findings import Fix, Note, RemoveKey, RenameKey, SetValue, Severity, Violation
from ndcheck.rules.conditions import equals, is_set, matches, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings
from ndcheck.values import Path, shown

IMAGE_FILTERS = "^([Bb][Ii][Ll][Ii][Nn][Ee][Aa][Rr]|[Bb][Ii][Cc][Uu][Bb][Ii][Cc]|[Ll][Aa][Nn][Cc][Zz][Oo][Ss])$"
MISTRAL = "tokenizer_use_mistral_common: true\n"


def _entries(settings: Settings, *keys: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every entry of the lists of data sets, with its path."""
    for key in keys or ("datasets", "test_datasets"):
        for at, entry in enumerate(settings.get(key) or []):
            yield (key, at), entry


@rule(
    "AX521",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:37",
    bad="datasets: [{path: org/data, type: sharegpt}]\n",
    good="datasets: [{path: org/data, type: chat_template}]\n",
)
def sharegpt_removed(settings: Settings) -> Iterator[Violation]:
    """A data set is of type sharegpt, which no longer exists.

    chat_template reads the same conversations; the names of their fields have to be given.
    """
    for path, entry in _entries(settings, "datasets"):
        kind = entry.get("type")
        if isinstance(kind, str) and kind.startswith("sharegpt"):
            fix = Fix("use type: chat_template, with field_messages: conversations and its message_property_mappings")
            yield Violation((*path, "type"), f"type {kind}: axolotl removed sharegpt", fix=fix)


@rule(
    "AX522",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 validation.py:1888",
    bad="datasets: [{path: org/data, type: alpaca, train_on_split: train}]\n",
    good="datasets: [{path: org/data, type: alpaca, split: train}]\n",
)
def train_on_split_ignored(settings: Settings) -> Iterator[Violation]:
    """A data set names its split as train_on_split, which axolotl ignores.

    The key is split; without it the whole of train is used.
    """
    for path, entry in _entries(settings):
        if entry.get("train_on_split") is None:
            continue
        where = (*path, "train_on_split")
        edits = () if entry.get("split") is not None else (RenameKey(where, "split"),)
        message = f"train_on_split {shown(entry['train_on_split'])} has no effect: the key is split"
        yield Violation(where, message, fix=Fix("rename it to split" if edits else "remove it", edits=edits))


@rule(
    "AX523",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 schemas/utils.py:37",
    bad="datasets: [{path: org/data, type: chat_template, message_field_role: from, "
    "message_property_mappings: {role: speaker}}]\n",
    good="datasets: [{path: org/data, type: chat_template, message_property_mappings: {role: from}}]\n",
)
def message_fields_conflict(settings: Settings) -> Iterator[Violation]:
    """message_field_role or message_field_content disagrees with message_property_mappings.

    The first two are older spellings of entries of the third; axolotl refuses two different answers.
    """
    for path, entry in _entries(settings):
        mappings = entry.get("message_property_mappings")
        if not isinstance(mappings, Mapping):
            continue
        for name in ("role", "content"):
            old, new = entry.get(f"message_field_{name}"), mappings.get(name)
            if old and new and old != new:
                where = (*path, f"message_field_{name}")
                message = (
                    f"message_field_{name} {shown(old)} disagrees with message_property_mappings.{name} {shown(new)}"
                )
                note = Note((*path, "message_property_mappings", name), f"{name} {shown(new)}")
                yield Violation(where, message, (note,), Fix("remove it", edits=(RemoveKey(where),)))


@rule(
    "AX524",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 schemas/datasets.py:210",
    bad="datasets: [{path: org/data, type: chat_template, chat_template: jinja}]\n",
    good="datasets: [{path: org/data, type: chat_template, chat_template: jinja, chat_template_jinja: '{{ x }}'}]\n",
)
def dataset_template_missing(settings: Settings) -> Iterator[Violation]:
    """A data set asks for a template of its own and does not give one.

    chat_template: jinja says that the template stands in chat_template_jinja beside it.
    """
    for path, entry in _entries(settings):
        if entry.get("chat_template") == "jinja" and not entry.get("chat_template_jinja"):
            message = "chat_template jinja needs chat_template_jinja in the same entry"
            yield Violation((*path, "chat_template"), message, fix=Fix("add chat_template_jinja"))


TEMPLATE_MISSING = conditional(
    "AX525",
    "template-missing",
    Severity.ERROR,
    Settings,
    summary="chat_template is jinja, and there is no template",
    why="The word says that the template is written out in chat_template_jinja.",
    when=equals("chat_template", "jinja"),
    then=on("chat_template_jinja"),
    message="{chat_template} needs chat_template_jinja",
    fix=Fix("add chat_template_jinja, or name a template such as chatml"),
    evidence="axolotl 0.18 validation.py:1290",
    bad="chat_template: jinja\n",
    good="chat_template: jinja\nchat_template_jinja: '{{ messages }}'\n",
)

PUSH_WITHOUT_TOKEN = conditional(
    "AX526",
    "push-dataset-without-token",
    Severity.ERROR,
    Settings,
    summary="Prepared data is to be pushed without a token",
    why="Writing to the hub needs a login; axolotl wants to see hf_use_auth_token: true, and nothing else.",
    when=on("push_dataset_to_hub"),
    then=equals("hf_use_auth_token", True),
    message="{push_dataset_to_hub} needs hf_use_auth_token: true, not {hf_use_auth_token}",
    fix=Fix("set hf_use_auth_token: true", edits=(SetValue(("hf_use_auth_token",), "true"),)),
    evidence="axolotl 0.18 validation.py:100",
    bad="push_dataset_to_hub: org/prepared\nhf_use_auth_token: false\n",
    good="push_dataset_to_hub: org/prepared\nhf_use_auth_token: true\n",
)

REWARD_ROWS_UNPADDED = conditional(
    "AX527",
    "reward-rows-unpadded",
    Severity.WARNING,
    Settings,
    summary="Rows of a reward model are not padded to one length",
    why="Chosen and rejected answers are compared in one batch; rows of changing length fragment memory.",
    when=on("reward_model"),
    then=~equals("pad_to_sequence_len", False),
    message="{pad_to_sequence_len} with {reward_model}: rows change their length from step to step",
    fix=Fix("set pad_to_sequence_len: true", edits=(SetValue(("pad_to_sequence_len",), "true"),)),
    evidence="axolotl 0.18 validation.py:244",
    bad="reward_model: true\npad_to_sequence_len: false\n",
    good="reward_model: true\npad_to_sequence_len: true\n",
)

MISTRAL_COMMON = conditional(
    "AX528",
    "mistral-common-customized",
    Severity.ERROR,
    Settings,
    summary="mistral-common's tokenizer cannot be changed",
    why="It carries its own tokens, template and image processing, and has no way to take others.",
    when=on("tokenizer_use_mistral_common"),
    then=~on("added_tokens_overrides")
    & ~on("special_tokens")
    & ~on("tokens")
    & ~on("chat_template")
    & ~on("processor_kwargs"),
    message="{tokenizer_use_mistral_common} takes no special_tokens, tokens, added_tokens_overrides, chat_template "
    "or processor_kwargs",
    fix=Fix("remove them, or set tokenizer_use_mistral_common: false"),
    evidence="axolotl 0.18 validation.py:532",
    bad=f"{MISTRAL}chat_template: chatml\n",
    good=f"{MISTRAL}chat_template: null\n",
)

GPTQ_REVISION = conditional(
    "AX529",
    "gptq-revision",
    Severity.ERROR,
    Settings,
    summary="A GPTQ model cannot be taken at a revision",
    why="The loader of GPTQ checkpoints does not pass a revision on; axolotl refuses rather than load another one.",
    when=on("gptq"),
    then=~on("revision_of_model"),
    message="{gptq} does not take {revision_of_model}",
    fix=Fix("download that revision and name the directory as base_model"),
    evidence="axolotl 0.18 validation.py:1532; the alias model_revision is not looked at",
    bad="gptq: true\nrevision_of_model: v1\n",
    good="gptq: true\nrevision_of_model: null\n",
)

FLASH_OPTIMUM_HALF = conditional(
    "AX530",
    "flash-optimum-half",
    Severity.ERROR,
    Settings,
    summary="flash_optimum does not run under automatic mixed precision",
    why="BetterTransformer wants a model that is float16 or bfloat16 throughout. bf16 is auto unless it is written, "
    "and axolotl 0.18 counts that as on, so it has to be switched off in so many words.",
    when=on("flash_optimum"),
    then=~on("bf16") & ~on("fp16"),
    message="{flash_optimum} needs bf16: false and no fp16, not {bf16}",
    fix=Fix("set bf16: false and bfloat16: true"),
    evidence="axolotl 0.18 validation.py:1516, run",
    bad="flash_optimum: true\nbf16: auto\n",
    good="flash_optimum: true\nbf16: false\n",
)

PROCESSOR_OPTION_RESERVED = conditional(
    "AX531",
    "processor-option-reserved",
    Severity.ERROR,
    Settings,
    summary="processor_kwargs holds a key that axolotl passes itself",
    why="The revision and the trust in remote code are one decision for model, tokenizer and processor.",
    when=is_set("processor_kwargs.revision") | is_set("processor_kwargs.trust_remote_code"),
    message="revision and trust_remote_code do not belong into processor_kwargs",
    fix=Fix("write revision_of_model and trust_remote_code at top level"),
    evidence="axolotl 0.18 schemas/model.py:122",
    bad="processor_kwargs: {revision: main}\n",
    good="processor_kwargs: {do_pan_and_scan: true}\n",
)

IMAGE_FILTER_UNKNOWN = conditional(
    "AX532",
    "image-filter-unknown",
    Severity.ERROR,
    Settings,
    summary="There is no such filter for resizing images",
    why="axolotl knows three by name, in any case.",
    when=matches("image_resize_algorithm", ""),
    then=matches("image_resize_algorithm", IMAGE_FILTERS),
    message="{image_resize_algorithm} must be bilinear, bicubic or lanczos",
    fix=Fix("set image_resize_algorithm: bicubic", edits=(SetValue(("image_resize_algorithm",), "bicubic"),)),
    evidence="axolotl 0.18 schemas/multimodal.py:92",
    bad="image_resize_algorithm: nearest\n",
    good="image_resize_algorithm: Lanczos\n",
)

LARGE_HEAD_UNKNOWN = conditional(
    "AX533",
    "large-head-attention-unknown",
    Severity.ERROR,
    Settings,
    summary="There is no such attention for large heads",
    why="Heads above 256 need a kernel of their own; axolotl knows two, and auto.",
    when=is_set("large_head_attention"),
    then=one_of("large_head_attention", "auto", "sdpa", "triton_flash"),
    message="{large_head_attention} must be auto, sdpa or triton_flash",
    fix=Fix("set large_head_attention: auto", edits=(SetValue(("large_head_attention",), "auto"),)),
    evidence="axolotl 0.18 schemas/config.py:1577",
    bad="large_head_attention: flash\n",
    good="large_head_attention: triton_flash\n",
)

REMOTE_CODE_TRUSTED = conditional(
    "AX534",
    "remote-code-trusted",
    Severity.INFO,
    Settings,
    summary="Code from the model's repository is run",
    why="trust_remote_code imports Python files of the repository on every rank, in whatever version is there today.",
    when=on("trust_remote_code"),
    then=on("revision_of_model") | on("model_revision"),
    message="{trust_remote_code} runs code of {base_model}: read it, and pin a revision",
    fix=Fix("set revision_of_model to a commit that was read"),
    evidence="axolotl 0.18 schemas/model.py:113",
    bad="trust_remote_code: true\n",
    good="trust_remote_code: true\nrevision_of_model: 0123abc\n",
)

RULES: tuple[Rule[Settings], ...] = (
    sharegpt_removed,
    train_on_split_ignored,
    message_fields_conflict,
    dataset_template_missing,
    TEMPLATE_MISSING,
    PUSH_WITHOUT_TOKEN,
    REWARD_ROWS_UNPADDED,
    MISTRAL_COMMON,
    GPTQ_REVISION,
    FLASH_OPTIMUM_HALF,
    PROCESSOR_OPTION_RESERVED,
    IMAGE_FILTER_UNKNOWN,
    LARGE_HEAD_UNKNOWN,
    REMOTE_CODE_TRUSTED,
)
