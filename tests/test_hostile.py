"""Input made to hurt: never a traceback, and exit 0 or 1, whatever the file holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ndcheck.checker import Report, check
from ndcheck.cli import main
from ndcheck.facts import gather
from ndcheck.findings import Severity
from ndcheck.fixes import fix_text
from ndcheck.output import as_json, as_text
from ndcheck.policy import Policy
from tests.helpers import LLAMA_8B, MINIMAL, completed

EXAMPLES = Path(__file__).parent / "data/examples"
HUGE = "9" * 4000
HEX = "0x" + "F" * 6000
DEGREES = (
    "tensor_parallel_size",
    "context_parallel_size",
    "dp_shard_size",
    "dp_replicate_size",
    "expert_parallel_size",
)
READ = (
    *DEGREES,
    "micro_batch_size",
    "gradient_accumulation_steps",
    "batch_size",
    "sequence_len",
    "plugins",
    "datasets",
)
READ += ("fsdp_config", "fsdp", "fsdp_version", "deepspeed", "optimizer", "streaming", "pretraining_dataset")
READ += (
    "accelerator_config",
    "attn_implementation",
    "flash_attention",
    "liger_rms_norm",
    "base_model",
    "adapter",
    "rl",
)
READ += ("sample_packing", "ring_attn_func", "learning_rate", "gradient_checkpointing", "val_set_size", "trl")
VALUES = [
    "null", "true", "0", "-1", "1.5", ".inf", "-.inf", ".nan", HUGE, f"-{HUGE}", HEX, "1e400", "1.0e+400", "''", '"\\0"',
    '"\\e[31m"', '"8"', '" 8 "', "[]", "{}", "[[[]]]", "[null]", "[1, a, {}]", "{a: {b: {c: []}}}", "{1: 2, null: 3, true: 4}",
    "{[a]: 1}", "2026-01-02", "2026-13-45", "12:30:45", "!!binary aGk=", "!!python/object:os.system {}", "!!set {a, b}",
    "&a [*a]", "*nowhere", "<<", "=", "日本語🙂", "x" * 5000, "|\n  a\n  b", "- - - 1",
]  # fmt: skip


def survives(content: bytes | str, **facts: Any) -> dict[str, Any]:
    """Checked, and shown in every way; what the JSON says."""
    report = Report(files=(check(content, "hostile.yaml", gather(**facts)),))
    for colour in (False, True):
        text = as_text.render(report, {}, colour=colour)
        shown = text.replace("\033[", "") if colour else text
        assert all(char.isprintable() or char == "\n" for char in shown)
    output: dict[str, Any] = json.loads(as_json.render(report, {}))
    return output


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:20])
def test_any_value_for_any_key(value: str) -> None:
    for key in READ:
        fragment = f"{key}: {value}\n"
        survives(completed(fragment), world_size=8, model_config=LLAMA_8B)
        if key == "dp_shard_size":
            everywhere = "".join(f"{degree}: {value}\n" for degree in DEGREES)
            survives(completed(everywhere), world_size=8, gpus_per_node=4)


@pytest.mark.parametrize("section", ["fsdp_config", "accelerator_config", "trl"])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:20])
def test_any_value_inside_a_section(section: str, value: str) -> None:
    keys = ("fsdp_version", "offload_params", "state_dict_type", "split_batches", "dispatch_batches", "use_vllm", "<<")
    for key in keys:
        block = value.replace("\n", "\n  ")
        survives(completed(f"{section}:\n  {key}: {block}\n"), world_size=8)


@pytest.mark.parametrize(
    "text",
    [
        "base_model: a\non: 1\noff: 2\nyes: 3\n",
        "base_model: a\nnull: 1\n~: 2\n",
        "base_model: a\n? [a, b]\n: 1\n",
        "base_model: a\n? {a: b}\n: {c: d}\n",
        f"base_model: a\n{HUGE}: 1\n",
        f"base_model: a\n? {HEX}\n: 1\n? {HEX}\n: 2\n",
        "base_model: a\n'': 1\n' ': 2\n",
        "base_model: a\nключ: 1\n🙂: 2\n\u202eabc: 3\n",
        f"base_model: a\n{'k' * 100}: 1\n",
        "base_model: a\n2026-01-02: 1\n.nan: 2\n.inf: 3\n",
        "base_model: a\n!!binary aGk=: 1\n",
        "base_model: \0\n",
        "base_model: a\0b\n",
        "base_model: \ud800\n",
        'base_model: "\\ud800"\n',
        "base_model: \x1b[31mred\x07\n",
        'base_model: "\\e]0;title\\a\\b\\r\\n"\nmicro_batch_size: "\\e[2J"\n',
        '"\\e[31mkey\\e[0m": 1\nbase_model: a\n',
        "base_model: " + "[" * 5000,
        "base_model: " + "{a: " * 90 + "1" + "}" * 90,
        "a:\n" + "".join(" " * n + "a:\n" for n in range(1, 300)),
        "base_model: &a [*a]\n",
        "base_model: &a {b: *a}\n",
        "x: &x {a: 1}\nbase_model: *x\nfsdp_config: *x\ndatasets: *x\n",
        "base_model: a\nfsdp_config: &f {a: *f}\n",
        "base_model: a\n<<: {tensor_parallel_size: 3}\n<<: {tensor_parallel_size: two}\n",
        "base_model: a\n<<: [1, 2]\n",
        "%YAML 9.9\n---\nbase_model: a\n",
        "--- a\n--- b\n",
        "...\n...\n",
        "base_model: a\r\rmicro_batch_size: x\r",
        "base_model: a\u2028micro_batch_size: x\u0085y: 1\n",
        "\ufeff\ufeffbase_model: a\n",
        "base_model: a\n" * 2000,
        "\n" * 100_000 + "base_model: a\ntensor_parallel_size: x\n",
        "base_model: a\ndatasets: " + "[" + "{path: a}, " * 3000 + "]\n",
        "plugins: [null, 1, [], {}, '', 'axolotl.', '.']\nbase_model: a\n",
        "base_model: /\nmicro_batch_size: 1\n",
        "base_model: /dev/null\nmicro_batch_size: 1\n",
        "base_model: ../../../../../../..\nmicro_batch_size: 1\n",
    ],
    ids=lambda text: ascii(text)[:24],
)
def test_files_made_by_hand(text: str) -> None:
    for facts in ({}, {"world_size": 8, "nodes": 2}):
        survives(text, **facts)


@pytest.mark.parametrize(
    "content",
    [
        b"\0",
        b"\xff\xfe\0\0",
        b"\xfe\xff",
        b"base_model: \xed\xa0\x80\n",
        b"\x80",
        b"\xc3",
        bytes(range(256)),
        b"\xef\xbb\xbf",
    ],
    ids=repr,
)
def test_bytes(content: bytes) -> None:
    assert survives(content)["summary"]["errors"] >= 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: "base_model: a\n" + "".join(f"some_key_{number}: {number}\n" for number in range(5000)),
        lambda: "base_model: a\nwandb_name: |\n" + "  a line of text that goes on and on\n" * 270_000,
        lambda: "base_model: a\nwandb_name: " + "x" * 10_000_000 + "\n",
        lambda: "base_model: a\ntensor_parallel_size: " + "x" * 1_000_000 + "\n",
        lambda: "base_model: a\n" + "y" * 1_000_000 + "\n",
    ],
    ids=["5000 keys", "10 MB of lines", "one line of 10 MB", "a long wrong value", "a long line that is no YAML"],
)
def test_large_files(make: Callable[[], str]) -> None:
    output = survives(make(), world_size=8)
    assert len(as_text.render(Report(files=()), {})) < 200
    assert output["summary"]["files"] == 1


def test_what_is_shown_of_a_long_value_is_short() -> None:
    text = "base_model: a\ntensor_parallel_size: " + "x" * 1_000_000 + "\n"
    report = Report(files=(check(text, "a.yaml", gather()),))
    assert len(as_text.render(report, {})) < 5000


@pytest.mark.parametrize("value", [None, True, "8", "x" * 100, -1, 0, 1.5, 10**30, [8], {"a": 1}, float("inf")])
@pytest.mark.parametrize(
    "key",
    ["num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size", "text_config", "model_type"],
)
def test_model_config_of_wrong_types(key: str, value: Any) -> None:
    survives(completed("tensor_parallel_size: 3\n"), model_config={**LLAMA_8B, key: value})


@pytest.mark.parametrize("name", ["loop", "directory", "missing.yaml", "a/b", "x" * 300, "/proc/self/mem"])
def test_names_that_cannot_be_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("directory").mkdir()
    Path("a").touch()
    assert main(["validate", "--format", "json", name]) == 2
    assert [entry["path"] for entry in json.loads(capsys.readouterr().out)["unreadable"]] == [name]


BASES = [yaml.safe_load((EXAMPLES / name).read_text()) for name in (
    "falcon-h1__falcon-h1-1b-qlora-cp.yaml", "qwen3.5__27b-fft.yaml", "archived__dbrx__fft-ds-zero3.yaml"
)]  # fmt: skip
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**18, max_value=10**60)
    | st.floats()
    | st.text(st.characters(codec="utf-8"), max_size=10)
    | st.sampled_from(["auto", "true", "8", "adamw_8bit", "lora", "grpo", "zero3.json", "flash_attention_2"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(READ) | st.sampled_from(sorted({key for base in BASES for key in base})) | st.text(max_size=8)


@settings(max_examples=250)
@given(st.data())
def test_mutated_configs(data: st.DataObject) -> None:
    config: dict[Any, Any] = dict(data.draw(st.sampled_from(BASES)))
    for _ in range(data.draw(st.integers(1, 5))):
        key = data.draw(NAMES)
        action = data.draw(st.sampled_from(["delete", "set", "wrap", "nest", "quote"]))
        if action == "delete":
            config.pop(key, None)
        elif action == "set":
            config[key] = data.draw(ODD)
        elif action == "wrap":
            config[key] = [config.get(key)]
        elif action == "nest":
            config[key] = {data.draw(NAMES): config.get(key)}
        else:
            config[key] = str(config.get(key))
    output = survives(
        yaml.safe_dump(config, allow_unicode=data.draw(st.booleans())), world_size=data.draw(st.integers(1, 9))
    )
    assert output["summary"]["errors"] >= 0


@settings(max_examples=150)
@given(st.data())
def test_damaged_text(data: st.DataObject) -> None:
    text = "".join(f"{key}: {value}\n" for key, value in MINIMAL.items()) + "fsdp_config:\n  offload_params: true\n"
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        drop = data.draw(st.integers(0, 8))
        put = data.draw(st.text(st.sampled_from("\n\t \r:-[]{}&*!|>'\"%@`#,?<=~\0é🙂0a"), max_size=4))
        text = text[:at] + put + text[at + drop :]
    survives(text, world_size=8)


UNREADABLE = [
    (b"x: [\n", "yaml-syntax"),
    (b"dp_shard_size: 8\nx: [\n", "yaml-syntax"),
    (b"a: \xff\n", "not-utf8"),
    (b"foo: 1\n", "unknown-dialect"),
]


@pytest.mark.parametrize(("content", "name"), UNREADABLE)
def test_nothing_silences_that_a_file_was_not_checked(content, name):
    """Neither selection, nor a comment, nor another severity: it would look like a clean bill."""
    policies = [Policy(select=("ND1",)), Policy(ignore=(name,)), Policy(severities={name: Severity.INFO})]
    for policy in [*policies, Policy(lowest=Severity.ERROR)]:
        report = check(content, "a.yaml", gather(), policy=policy)
        assert [(finding.name, finding.severity) for finding in report.findings if finding.name == name] == [
            (name, Severity.ERROR)
        ]
    silenced = check(b"# ndcheck: ignore[" + name.encode() + b"]\n" + content, "a.yaml", gather())
    assert name in {finding.name for finding in silenced.findings}


def test_a_baseline_knows_a_file_however_it_is_spelled_and_hides_no_broken_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("base_model: m\ndp_shard_size: 0\n")
    (tmp_path / "b.yaml").write_text("x: [\n")
    assert main(["validate", "a.yaml", "b.yaml", "--write-baseline", "known.json"]) == 0
    for name in ("a.yaml", "./a.yaml", str(tmp_path / "a.yaml")):
        assert main(["validate", name, "--baseline", "known.json"]) == 0, capsys.readouterr().out
    assert main(["validate", "b.yaml", "--baseline", "known.json"]) == 1


def test_a_diff_of_what_cannot_be_repaired_is_no_success(tmp_path, capsys):
    path = tmp_path / "a.yaml"
    path.write_text("x: [\n")
    assert main(["validate", str(path), "--diff"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, "errors that are left: 1" in captured.err) == ("", True)


def test_a_number_beyond_all_numbers_is_a_finding():
    for text in (f"save_total_limit: '{'1' * 310},000'\n", f"dp_shard_size: {'9' * 5000}\n"):
        report = check(f"base_model: m\n{text}", "a.yaml", gather(), "axolotl")
        assert "wrong-type" in {finding.name for finding in report.findings}


def test_repairs_make_no_duplicate_key_where_one_is_already():
    text = "base_model: m\nseed: 1\nseed: 2\ndp_shard_size: 8\ndp_shard_sizes: 4\n"
    after, _ = fix_text(text, lambda changed: check(changed, "a.yaml", gather(), "axolotl").findings, unsafe=True)
    assert after.count("dp_shard_size:") == 1
    twice = "base_model: m\nsequence_parallel_degree: 2\nsequence_parallel_degree: 4\n"
    after, made = fix_text(twice, lambda changed: check(changed, "a.yaml", gather(), "axolotl").findings)
    assert (after, made) == (twice, 0)


def test_an_unknown_dialect_in_the_settings_file_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ndcheck.toml").write_text('dialect = "foo"\n')
    (tmp_path / "a.yaml").write_text("base_model: m\n")
    assert main(["validate", "a.yaml"]) == 2
    assert "dialect must be one of axolotl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf17\n", "ND802"),
        ("distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: true\n", "ND802"),
        ("output_dir: out\nnum_generations: 8\nper_device_train_batch_size:\n", None),
        ("output_dir: out\nper_device_train_batch_size: 1\nreward_clip_range: [-1, 1]\n", None),
        ("base_model: a\nsequence_parallel_size: many\nring_attn_func: batch_ring\nsample_packing: true\n", "ND803"),
    ],
)
def test_values_that_once_stopped_a_rule(text: str, code: str | None) -> None:
    found = {finding["code"] for file in survives(text)["files"] for finding in file["findings"]}
    assert code is None or code in found
