"""transformers' and TRL's arguments as a dialect."""

from __future__ import annotations

from ndcheck.dialects.dialect import Dialect, Role
from ndcheck.dialects.transformers.model import TransformersKeys
from ndcheck.dialects.transformers.resolve import KNOWN, resolve
from ndcheck.dialects.transformers.to_run import to_run
from ndcheck.rules import NEUTRAL, transformers
from ndcheck.settings import Settings
from ndcheck.values import Value

MARKERS = frozenset(
    """
    activation_checkpointing assistant_only_loss average_tokens_across_devices completion_only_loss dataloader_drop_last
    dataset_name dataset_streaming dataset_text_field do_eval do_train eval_packing generation_batch_size label_names
    lr_scheduler_type max_completion_length max_length model_init_kwargs model_name_or_path num_generations
    num_train_epochs optim overwrite_output_dir packing packing_strategy padding_free per_device_eval_batch_size
    per_device_train_batch_size push_to_hub report_to save_only_model steps_per_generation use_liger_kernel use_peft
    train_sampling_strategy logging_strategy loss_type max_prompt_length
    """.split()
)


def model_path(settings: Settings) -> Value[str] | None:
    """``model_name_or_path``, which may be a local directory."""
    value = settings.value("model_name_or_path")
    return value if value is not None and value.readable and isinstance(value.value, str) else None


DIALECT = Dialect(
    name="transformers",
    summary="arguments of transformers' Trainer and of TRL's trainers, as YAML or JSON",
    role=Role.TRAINING,
    packages={"transformers": "5.24", "trl": "1.10"},
    keys=KNOWN,
    markers=MARKERS,
    telling=("model_name_or_path", "num_train_epochs", "per_device_train_batch_size"),
    key_count=len(KNOWN),
    minimal={"output_dir": "out", "per_device_train_batch_size": "1"},
    model=TransformersKeys,
    resolve=resolve,
    to_run=to_run,
    model_path=model_path,
    engine=lambda settings: settings.value("deepspeed"),
    rules=(*NEUTRAL, *transformers.RULES),
)
