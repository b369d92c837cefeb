"""Ways to put a question to ndcheck, shared by the tests."""

from __future__ import annotations

from typing import Any, NamedTuple

from ndcheck.checker import FileReport, check
from ndcheck.facts import gather
from ndcheck.findings import Finding

MINIMAL = {
    "base_model": "org/model",
    "datasets": "[{path: org/data, type: alpaca}]",
    "learning_rate": "1.0e-5",
    "micro_batch_size": "1",
    "gradient_accumulation_steps": "1",
}
"""The smallest config that axolotl accepts."""

FSDP2 = "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"
FSDP1 = "fsdp_version: 1\nfsdp_config: {offload_params: false}\n"
FLASH = "attn_implementation: flash_attention_2\n"
LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


class Seen(NamedTuple):
    """What a user sees of a finding: how bad, on which line, and what stands there."""

    severity: str
    line: int
    key: str


def diagnose(text: str, dialect: str | None = None, **facts: Any) -> set[tuple[str, int]]:
    """Name and line of every error and warning in a file, in the dialect that its keys tell unless one is named."""
    found = check(text, "config.yaml", gather(**facts), dialect).findings
    return {(one.name, one.region.line) for one in found if one.severity != "info"}


def completed(fragment: str) -> str:
    """The fragment first, so that its lines count from 1; then what is missing of a minimal config."""
    own = {line.split(":")[0] for line in fragment.splitlines()}
    return fragment + "".join(f"{key}: {text}\n" for key, text in MINIMAL.items() if key not in own)


def report(text: str, **facts: Any) -> FileReport:
    return check(text, "config.yaml", gather(**facts), "axolotl")


def findings(code: str, fragment: str, **facts: Any) -> list[Finding]:
    """The findings of one rule on a completed fragment."""
    return [finding for finding in report(completed(fragment), **facts).findings if finding.code == code]


def seen(code: str, fragment: str, **facts: Any) -> list[Seen]:
    return [
        Seen(finding.severity.value, finding.region.line, finding.key) for finding in findings(code, fragment, **facts)
    ]


def codes(fragment: str, **facts: Any) -> set[str]:
    return {finding.code for finding in report(completed(fragment), **facts).findings}


def message(code: str, fragment: str, **facts: Any) -> str:
    """The message of the one finding of a rule."""
    (finding,) = findings(code, fragment, **facts)
    return finding.message
