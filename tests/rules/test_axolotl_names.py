"""Misspelt names, and what stands near them that is right."""

from __future__ import annotations

import pytest

from ndcheck.checker import check
from ndcheck.facts import gather
from ndcheck.policy import Policy
from ndcheck.rules.axolotl.names import OPTIMIZERS, PLUGINS, SCHEDULERS
from tests.helpers import completed, report


@pytest.mark.parametrize(
    ("text", "rule", "words"),
    [
        ("optimizer: adamw_fused\n", "", ""),
        ("optimizer: adamw_torch_fuse\n", "optimizer-misspelt", "did you mean adamw_torch_fused?"),
        ("optimizer: paged_adamw_8bits\n", "optimizer-misspelt", "did you mean paged_adamw_8bit?"),
        ("optimizer: my_own_optimizer\n", "", ""),
        ("lr_scheduler: cosine_with_restart\n", "scheduler-misspelt", "did you mean cosine_with_restarts?"),
        ("lr_scheduler: rex\n", "", ""),
        (
            "plugins: [axolotl.integrations.ligr.LigerPlugin]\n",
            "plugin-misspelt",
            "axolotl.integrations.liger.LigerPlugin",
        ),
        (
            "plugins: [axolotl.integrations.liger.LigerPlugn]\n",
            "plugin-misspelt",
            "axolotl.integrations.liger.LigerPlugin",
        ),
        ("plugins: [axolotl.integrations.liger.plugin.LigerPlugin]\n", "", ""),
        ("plugins: [my.own.Plugin, 3]\n", "", ""),
        ("learning_rate: 1,000\n", "learning-rate-not-a-number", "is no number"),
        ("learning_rate: abc\n", "learning-rate-not-a-number", "is no number"),
        ("learning_rate: 2e-4\n", "", ""),
        ('learning_rate: "0.1"\n', "", ""),
    ],
)
def test_a_name_that_is_nearly_right_is_told(text, rule, words):
    own = ("optimizer-misspelt", "scheduler-misspelt", "plugin-misspelt", "learning-rate-not-a-number")
    found = [finding for finding in report(completed(text)).findings if finding.name in own]
    assert [finding.name for finding in found] == ([rule] if rule else [])
    if found:
        assert words in found[0].message


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_known_optimizer_is_right(name):
    assert "optimizer-misspelt" not in {finding.name for finding in report(f"optimizer: {name}\n").findings}


def test_every_known_scheduler_and_plugin_is_right():
    texts = [*(f"lr_scheduler: {name}\n" for name in SCHEDULERS), *(f"plugins: [{name}]\n" for name in PLUGINS)]
    found = {finding.name for text in texts for finding in report(text).findings}
    assert not found & {"scheduler-misspelt", "plugin-misspelt"}


QLORA = "adapter: qlora\nload_in_4bit: true\nlora_target_linear: true\n"
EFFICIENT = "fsdp_config: {cpu_ram_efficient_loading: true}\n"

CASES = [
    ("AX337", f"{QLORA}fsdp_version: 2\n{EFFICIENT}", True),
    ("AX337", f"{QLORA}fsdp_version: 1\n{EFFICIENT}", False),
    ("AX337", f"adapter: lora\nlora_target_linear: true\nfsdp_version: 2\n{EFFICIENT}", False),
    ("AX790", "bf16: true\nfp16: true\n", True),
    ("AX790", "bf16: false\nfp16: true\n", False),
    ("AX790", "bf16: true\n", False),
    ("AX790", "fp16: true\n", False),
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_rules_of_the_newest_release(code, fragment, broken):
    found = check(completed(fragment), "config.yaml", gather(), "axolotl", Policy(targets={"axolotl": "0.19"})).findings
    assert (code in {finding.code for finding in found}) == broken


def test_a_refusal_of_0_19_is_none_of_0_18():
    found = check(
        completed(CASES[0][1]), "config.yaml", gather(), "axolotl", Policy(targets={"axolotl": "0.18"})
    ).findings
    assert "AX337" not in {finding.code for finding in found}
