"""Liger by family of models, and the loss kernel that is on by default."""

from __future__ import annotations

import pytest

from ndcheck.checker import check
from ndcheck.facts import gather
from ndcheck.policy import Policy
from tests.helpers import completed, findings, message

LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
CUT = "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n"
FLAGS = ("liger_rope", "liger_rms_norm", "liger_cross_entropy", "liger_fused_linear_cross_entropy")
IGNORED: dict[str, tuple[str, ...]] = {
    "liger_rope": (
        "llava",
        "nemotron",
        "internvl",
        "smolvlm",
        "deepseek_v2",
        "qwen3_5",
        "qwen3_5_moe",
        "gemma4",
        "gemma4_unified",
        "gemma4_unified_text",
    ),
    "liger_rms_norm": ("llava", "nemotron"),
    "liger_cross_entropy": ("pixtral",),
    "liger_fused_linear_cross_entropy": ("pixtral", "gemma4", "gemma4_unified", "gemma4_unified_text"),
}
FAMILIES = sorted(
    {family for families in IGNORED.values() for family in families} | {"llama", "gemma4_text", "qwen2_vl"}
)
UNKNOWN = "gpt_neox"


def model(family: str) -> dict[str, object]:
    return {"model_type": family, "num_attention_heads": 32}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("flag", FLAGS)
def test_what_a_patch_goes_without(flag: str, family: str) -> None:
    found = findings("AX754", f"{LIGER}{flag}: true\n", model_config=model(family))
    assert bool(found) == (family in IGNORED[flag])
    assert not findings("AX754", f"{LIGER}{flag}: false\n", model_config=model(family))


def test_an_unknown_model_is_no_reason() -> None:
    for code in ("AX754", "AX755", "AX756"):
        assert not findings(code, f"{LIGER}liger_rope: true\n")
        assert not findings(code, f"{LIGER}liger_rope: true\n", model_config={"num_attention_heads": 32})


@pytest.mark.parametrize("flag", [*FLAGS, "liger_layer_norm"])
def test_a_family_that_axolotl_refuses(flag: str) -> None:
    assert findings("AX755", f"{LIGER}{flag}: true\n", model_config=model("paddleocr_vl"))
    assert not findings("AX755", f"{LIGER}{flag}: true\n", model_config=model("llama"))
    assert not findings("AX755", f"{LIGER}{flag}:\n", model_config=model("paddleocr_vl"))
    assert not findings("AX756", f"{LIGER}{flag}: true\n", model_config=model("paddleocr_vl"))


def test_one_finding_for_all_flags() -> None:
    (finding,) = findings(
        "AX755", f"{LIGER}liger_rope: true\nliger_rms_norm: true\n", model_config=model("paddleocr_vl")
    )
    assert finding.fix is not None
    assert len(finding.fix.edits) == 2


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("family", ["llama", "qwen3_5_text", "granitemoe", "jamba", "deepseek_v2", "gemma4_unified"])
def test_a_family_with_a_patch(flag: str, family: str) -> None:
    assert not findings("AX756", f"{LIGER}{flag}: true\n", model_config=model(family))


@pytest.mark.parametrize("flag", FLAGS)
def test_a_family_without_a_patch(flag: str) -> None:
    assert len(findings("AX756", f"{LIGER}{flag}: true\n", model_config=model(UNKNOWN))) == 1
    assert not findings("AX756", f"{LIGER}{flag}: false\n", model_config=model(UNKNOWN))


def test_the_general_patch_is_told_from_none() -> None:
    fused = message("AX756", f"{LIGER}liger_fused_linear_cross_entropy: true\n", model_config=model(UNKNOWN))
    assert fused.endswith("gets a general patch, which is experimental")
    rope = message("AX756", f"{LIGER}liger_rope: true\n", model_config=model(UNKNOWN))
    assert rope.startswith("liger_rope true has no effect: there is no patch for gpt_neox")


@pytest.mark.parametrize(("family", "code"), [("gemma4", "AX754"), (UNKNOWN, "AX756"), ("paddleocr_vl", "AX755")])
@pytest.mark.parametrize("target", ["0.18", "0.19"])
def test_tables_of_families_hold_for_one_version(family: str, code: str, target: str) -> None:
    text = completed(f"{LIGER}liger_rope: true\n")
    found = check(
        text,
        "config.yaml",
        gather(model_config=model(family)),
        "axolotl",
        Policy(targets={"axolotl": target} if target else {}),
    ).findings
    assert (code in {finding.code for finding in found}) == (target == "0.18" or code == "AX755")


def test_one_rule_speaks_of_layer_norm() -> None:
    text = f"{LIGER}liger_layer_norm: true\n"
    assert findings("AX753", text, model_config=model(UNKNOWN))
    assert not findings("AX756", text, model_config=model(UNKNOWN))


CASES = [
    ("AX747", f"{CUT}bf16: false\n", True),
    ("AX747", f"{CUT}bf16:\n", True),
    ("AX747", f"{CUT}bf16: false\nfp16: false\n", True),
    ("AX747", CUT, False),  # bf16 is auto
    ("AX747", f"{CUT}bf16: auto\n", False),
    ("AX747", f"{CUT}bf16: false\nfp16: true\n", False),
    ("AX747", f"{CUT}bf16: false\nbfloat16: true\n", False),
    ("AX747", f"{CUT}bf16: false\nfloat16: true\n", False),
    ("AX747", f"{CUT}bf16: false\ncut_cross_entropy: false\n", False),
    ("AX747", f"{CUT}bf16: false\ncut_cross_entropy: true\n", False),  # AX743
    ("AX747", f"{CUT}bf16: false\ncut_cross_entropy:\n", False),
    ("AX747", "bf16: false\n", False),
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_operands(code: str, fragment: str, broken: bool) -> None:
    assert bool(findings(code, fragment)) == broken
