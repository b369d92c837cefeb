"""AxolotlConfig: the typed keys, refused by pydantic when a rule is broken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import ConfigDict, ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from ndcheck.dialects.axolotl.model import AxolotlKeys
from ndcheck.dialects.axolotl.resolve import ALL_KEYS, resolve
from ndcheck.dialects.axolotl.to_run import model_path, to_run
from ndcheck.dialects.dialect import Dialect, Role, examine
from ndcheck.facts import from_context
from ndcheck.findings import Severity
from ndcheck.rules import NEUTRAL, axolotl
from ndcheck.rules.versions import in_range

DIALECT = Dialect(
    name="axolotl",
    summary="axolotl's training config",
    role=Role.TRAINING,
    packages={"axolotl": "0.18"},
    keys=frozenset(ALL_KEYS),
    markers=frozenset(
        {
            "base_model",
            "micro_batch_size",
            "sequence_len",
            "sample_packing",
            "dp_shard_size",
            "dp_replicate_size",
            "fsdp_version",
            "tensor_parallel_size",
            "context_parallel_size",
            "sequence_parallel_degree",
            "sequence_parallel_size",
            "flash_attention",
            "pretraining_dataset",
            "load_in_4bit",
            "lora_target_linear",
            "wandb_project",
        }
    ),
    telling=("base_model", "context_parallel_size", "micro_batch_size"),
    key_count=len(ALL_KEYS),
    minimal={
        "base_model": "org/model",
        "datasets": "[{path: org/data, type: alpaca}]",
        "learning_rate": "1.0e-5",
        "micro_batch_size": "1",
        "gradient_accumulation_steps": "1",
    },
    model=AxolotlKeys,
    resolve=resolve,
    to_run=to_run,
    model_path=model_path,
    engine=lambda settings: settings.value("deepspeed"),
    rules=(*NEUTRAL, *axolotl.RULES),
)


class AxolotlConfig(AxolotlKeys):
    """An axolotl config that breaks no error-level rule.

    ``AxolotlConfig.model_validate(mapping, context=facts)`` raises one pydantic ``ValidationError`` with
    an entry per violation: its ``type`` is the rule's name, its ``loc`` the key, its ``ctx`` holds the
    rule's code. ``context`` is an ``ndcheck.Facts`` or a mapping with ``world_size``, ``nodes``,
    ``gpus_per_node`` and ``model_config``; without it, the rules that need such a fact stay silent.
    Keys that no rule reads are kept as they are.
    """

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    @model_validator(mode="wrap")
    @classmethod
    def _judge(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        verdicts = examine(DIALECT, resolve(data), from_context(info.context)).verdicts
        errors = [
            InitErrorDetails(
                type=PydanticCustomError(
                    rule.name,
                    "{message}",
                    {"message": violation.message, "code": rule.code},
                ),
                loc=violation.path,
                input=data,
            )
            for rule, violation in verdicts.violations
            if (violation.severity or rule.severity) is Severity.ERROR and in_range(rule.versions, {}, DIALECT.packages)
        ]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return handler(data)
