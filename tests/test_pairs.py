"""Files of one run against each other: launch files, training files, DeepSpeed's JSON."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from accelerate.utils.deepspeed import HfDeepSpeedConfig
from transformers import TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

from ndcheck.checker import FileReport, PairError, Report, Text, check_together
from ndcheck.cli import main
from ndcheck.facts import gather
from ndcheck.output import as_text
from tests.schema.configs import config

AXOLOTL = (
    "base_model: org/model\ndatasets: [{path: org/data, type: alpaca}]\nlearning_rate: 1.0e-5\nmicro_batch_size: 2\n"
)
FSDP2 = "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"
HF = "output_dir: out\nper_device_train_batch_size: 2\n"
DDP = "distributed_type: MULTI_GPU\nnum_processes: 8\n"
FSDP = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"
ZERO = "distributed_type: DEEPSPEED\nnum_processes: 8\n"
PAIRS = "ND61", "ND62"


def together(*texts: str | dict[str, Any], **facts: Any) -> tuple[FileReport, ...]:
    """Reports of the files, named by their place; a dict is written as JSON."""
    files = [
        Text(f"{number}.yaml", text) if isinstance(text, str) else Text(f"{number}.json", json.dumps(text, indent=1))
        for number, text in enumerate(texts)
    ]
    return check_together(files, gather(**facts))


def contradictions(*texts: str | dict[str, Any], **facts: Any) -> set[tuple[str, str, str, int]]:
    """Severity, name, file and line of what two files say against each other."""
    return {
        (one.severity.value, one.name, report.path.split(".")[0], one.region.line)
        for report in together(*texts, **facts)
        for one in report.findings
        if one.code.startswith(PAIRS)
    }


@pytest.mark.parametrize(
    ("training", "launch", "expected"),
    [
        (f"{HF}bf16: true\n", f"{DDP}mixed_precision: bf16\n", set()),
        (
            f"{HF}fp16: true\n",
            f"{DDP}mixed_precision: bf16\n",
            {("warning", "launch-precision-differs", "0", 3), ("warning", "launch-precision-differs", "1", 3)},
        ),
        (
            f"{AXOLOTL}bf16: true\n",
            f"{DDP}mixed_precision: 'no'\n",
            {("warning", "launch-precision-differs", "0", 5), ("warning", "launch-precision-differs", "1", 3)},
        ),
        (f"{AXOLOTL}bf16: auto\n", f"{DDP}mixed_precision: fp16\n", set()),  # what auto becomes depends on the GPU
        (HF, f"{DDP}mixed_precision: bf16\n", set()),  # the launcher's counts
        # FSDP in one of the two
        (f"{AXOLOTL}{FSDP2}dp_shard_size: 8\n", FSDP, set()),
        (
            f"{AXOLOTL}{FSDP2}",
            DDP,
            {("warning", "fsdp-in-one-file", "0", 6), ("warning", "fsdp-in-one-file", "1", 1)},
        ),
        (AXOLOTL, FSDP, {("warning", "fsdp-in-one-file", "0", 1), ("warning", "fsdp-in-one-file", "1", 1)}),
        (HF, FSDP, {("info", "fsdp-in-one-file", "0", 1), ("info", "fsdp-in-one-file", "1", 1)}),
        (
            f"{HF}fsdp: true\nfsdp_config: {{version: 2}}\n",
            DDP,
            {("warning", "fsdp-in-one-file", "0", 3), ("warning", "fsdp-in-one-file", "1", 1)},
        ),
        # values that DeepSpeed is handed twice
        (f"{HF}gradient_accumulation_steps: 4\n", f"{ZERO}deepspeed_config: {{gradient_accumulation_steps: 4}}\n", set()),
        (f"{HF}gradient_accumulation_steps: 4\n", f"{ZERO}deepspeed_config: {{gradient_accumulation_steps: auto}}\n", set()),
        (
            f"{HF}gradient_accumulation_steps: 4\n",
            f"{ZERO}deepspeed_config: {{gradient_accumulation_steps: 2}}\n",
            {("error", "launch-value-differs", "0", 3), ("error", "launch-value-differs", "1", 3)},
        ),
        (
            f"{HF}max_grad_norm: 0.5\n",
            f"{ZERO}deepspeed_config: {{gradient_clipping: 1.0}}\n",
            {("error", "launch-value-differs", "0", 3), ("error", "launch-value-differs", "1", 3)},
        ),
        # processes against degrees
        (f"{AXOLOTL}{FSDP2}dp_shard_size: 4\ntensor_parallel_size: 2\n", FSDP, set()),
        (f"{AXOLOTL}{FSDP2}dp_shard_size: 2\ntensor_parallel_size: 2\n", FSDP, {("error", "launched-ranks", "1", 2)}),
        (f"{AXOLOTL}{FSDP2}tensor_parallel_size: 2\n", FSDP, {("error", "launched-ranks", "1", 2)}),  # what is left out counts as 1
        (f"{AXOLOTL}tensor_parallel_size: 2\n", DDP, {("error", "launched-ranks", "1", 2)}),
        # degrees in both
        (
            f"{AXOLOTL}{FSDP2}dp_shard_size: 2\ntensor_parallel_size: 4\n",
            f"{FSDP}parallelism_config: {{parallelism_config_dp_shard_size: 4, parallelism_config_tp_size: 2}}\n",
            {("warning", "launch-degree-differs", where, line) for where, line in (("0", 7), ("0", 8), ("1", 4))},
        ),
        # engines
        (
            f"{AXOLOTL}{FSDP2}",
            f"{ZERO}deepspeed_config: {{zero_stage: 2}}\n",
            {("error", "engines-differ", "0", 6), ("error", "engines-differ", "1", 1)},
        ),
    ],
)  # fmt: skip
def test_launch_and_training(training: str, launch: str, expected: set[tuple[str, str, str, int]]) -> None:
    assert contradictions(training, launch) == expected
    swapped = {(severity, name, str(1 - int(file)), line) for severity, name, file, line in expected}
    assert contradictions(launch, training) == swapped, "whichever of the two is asked for"


def test_the_ranks_are_those_that_the_launch_file_starts() -> None:
    training, _ = together(f"{AXOLOTL}{FSDP2}dp_shard_size: 3\n", FSDP)
    assert [one.message for one in training.findings if one.name == "world-size-product"] == [
        "dp_shard_size 3, but there are 8 ranks (num_processes in 1.yaml); dp_shard_size could be 1, 2, 4 or 8"
    ]


def test_a_flag_wins_over_the_launch_file() -> None:
    training, _ = together(f"{AXOLOTL}{FSDP2}dp_shard_size: 4\n", FSDP, world_size=4)
    assert not [one for one in training.findings if one.name == "world-size-product"]


def test_the_model_is_measured_against_the_degrees_of_the_launch_file() -> None:
    model = {"model_type": "llama", "num_attention_heads": 6, "num_key_value_heads": 6, "hidden_size": 96}
    launch = f"{DDP}parallelism_config: {{parallelism_config_tp_size: 4, parallelism_config_dp_replicate_size: 2}}\n"
    reports = together(HF, launch, model_config=model)
    errors = {one.name for report in reports for one in report.findings if one.severity.value == "error"}
    assert any("heads" in name for name in errors), errors


MICRO, STEPS, TOTAL = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"
AUTO: dict[str, Any] = {MICRO: "auto", STEPS: "auto", "zero_optimization": {"stage": 2}}


def adam(**params: object) -> dict[str, Any]:
    return {"optimizer": {"type": "AdamW", "params": params}}


@pytest.mark.parametrize(
    ("arguments", "engine", "expected"),
    [
        ({}, AUTO, set()),
        ({}, AUTO | {MICRO: 2, STEPS: 1}, set()),
        ({}, AUTO | {MICRO: 4}, {"engine-value-differs"}),
        ({"gradient_accumulation_steps": 4}, AUTO | {STEPS: 2}, {"engine-value-differs"}),
        ({"gradient_accumulation_steps": 4}, AUTO | {STEPS: 4}, set()),
        ({}, AUTO | {"gradient_clipping": 1.0}, set()),
        ({}, AUTO | {"gradient_clipping": 0.5}, {"engine-value-differs"}),  # the Trainer's own is 1
        ({"max_grad_norm": 0.5}, AUTO | {"gradient_clipping": 0.5}, set()),
        ({"max_grad_norm": 0.5}, AUTO | {"gradient_clipping": "auto"}, set()),
        ({"bf16": True}, AUTO | {"bf16": {"enabled": True}}, set()),
        ({"bf16": True}, AUTO | {"bf16": {"enabled": "auto"}}, set()),
        ({"bf16": True}, AUTO | {"bf16": {"enabled": False}}, {"engine-precision-differs"}),
        ({"bf16": False}, AUTO | {"bf16": {"enabled": True}}, {"engine-precision-differs"}),
        ({}, AUTO | {"fp16": {"enabled": True}}, {"engine-precision-differs"}),
        ({"bf16": True}, AUTO | {"fp16": {"enabled": False}}, set()),
        ({"bf16": True}, AUTO | {"fp16": {"loss_scale": 0}}, set()),
        ({"learning_rate": 1e-4}, AUTO | adam(lr=1e-4), set()),
        ({"learning_rate": 1e-4}, AUTO | adam(lr=3e-4), {"engine-value-differs"}),
        ({"learning_rate": 1e-4}, AUTO | adam(lr="auto", betas="auto", eps="auto", weight_decay="auto"), set()),
        ({}, AUTO | adam(betas=[0.9, 0.999], eps=1e-8, weight_decay=0.0), set()),
        ({}, AUTO | adam(betas=[0.9, 0.95]), {"engine-value-differs"}),
        ({"adam_beta2": 0.95}, AUTO | adam(betas=[0.9, 0.95]), set()),
        ({}, AUTO | adam(eps=1e-6), {"engine-value-differs"}),
        ({"weight_decay": 0.1}, AUTO | adam(weight_decay=0.01), {"engine-value-differs"}),
        ({"learning_rate": 1e-4}, AUTO | {"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3}}}, {"engine-value-differs"}),
        ({"learning_rate": 1e-4}, AUTO | {"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-4}}}, set()),
        # 2 x 1 x 1 rank
        ({}, AUTO | {TOTAL: 2}, set()),
        ({}, AUTO | {TOTAL: 3}, {"batch-total"}),
    ],
)  # fmt: skip
def test_an_engine_states_what_the_trainer_states(
    arguments: dict[str, Any], engine: dict[str, Any], expected: set[str]
) -> None:
    _, report = together(
        json.dumps({"output_dir": "out", "per_device_train_batch_size": 2, **arguments}), engine, world_size=1
    )
    assert {one.name for one in report.findings if one.severity.value == "error"} == expected
    assert bool(_refusals(arguments, engine)) == bool(expected), "as transformers itself compares them"


class _Compared(HfTrainerDeepSpeedConfig, HfDeepSpeedConfig):  # type: ignore[misc]
    """transformers' comparison, which does not need DeepSpeed itself."""

    def __init__(self, config: dict[str, Any]) -> None:
        HfDeepSpeedConfig.__init__(self, config)
        self._dtype = None
        self.mismatches: list[str] = []


def _refusals(arguments: dict[str, Any], engine: dict[str, Any]) -> list[str]:
    compared = _Compared(json.loads(json.dumps(engine)))
    compared.trainer_config_process(
        TrainingArguments("out", per_device_train_batch_size=2, use_cpu=True, report_to=[], **arguments)
    )
    return compared.mismatches


def test_a_named_file_is_read_and_its_mistakes_are_placed_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").mkdir()
    engine = {MICRO: "auto", "gradient_clipping": 0.3, "zero_optimization": {"stage": 2, "overlap_com": True}}
    (tmp_path / "configs/ds.json").write_text(json.dumps(engine, indent=1))
    (tmp_path / "train.yaml").write_text(f"{AXOLOTL}max_grad_norm: 1.0\ndeepspeed: configs/ds.json\n")
    monkeypatch.chdir(tmp_path.parent)
    train = f"{tmp_path.name}/train.yaml"
    assert main(["validate", "--isolated", train]) == 1
    out = capsys.readouterr().out
    there = f"{tmp_path.name}/configs/ds.json"
    assert f"{there}:3:2: error ND622 [engine-value-differs]" in out
    assert f"see {train}:5:1: max_grad_norm 1.0" in out
    assert f"{there}:6:3: error DS101 [deepspeed-unknown-key]" in out
    # both named: one report of each
    assert main(["validate", "--isolated", "--format", "json", train, there]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [file["path"] for file in found["files"]] == [train, there]
    [difference] = [one for one in found["files"][1]["findings"] if one["code"] == "ND622"]
    assert difference["related"][0]["path"] == train


def test_the_stage_in_a_named_file_counts_in_the_config(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({MICRO: "auto", "zero_optimization": {"stage": 3}}))
    content = f"{AXOLOTL}auto_find_batch_size: true\ndeepspeed: {tmp_path}/ds.json\n"
    found = {one.code for one in check_together([Text("a.yaml", content)], gather())[0].findings}
    assert "AX403" in found


@pytest.mark.parametrize("name", ["absent.json", "notes.txt", "folder.json", "\0.json", "x" * 5000 + ".json"])
def test_a_named_file_that_is_none_leaves_its_rules_to_be_counted(name: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("{}")
    (tmp_path / "folder.json").mkdir()
    content = f"{AXOLOTL}deepspeed: {json.dumps(name)}\n"
    [report] = check_together([Text(str(tmp_path / "a.yaml"), content)], gather())
    assert "engine-value-differs" in report.not_run["engine_config"]


def test_a_named_file_that_is_broken_is_a_finding_in_it(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": 1,}')
    reports = check_together([Text(str(tmp_path / "a.yaml"), f"{AXOLOTL}deepspeed: ds.json\n")], gather())
    assert [one.name for one in reports[1].findings] == ["json-syntax"]


def test_an_inline_engine_is_placed_under_its_key() -> None:
    text = f"{AXOLOTL}gradient_accumulation_steps: 1\ndeepspeed:\n  {MICRO}: 4\n  zero_optimization:\n    stage: 7\n"
    [report] = together(text)
    placed = {(one.name, one.key, one.region.line) for one in report.findings if one.severity.value == "error"}
    assert placed == {
        ("engine-value-differs", f"deepspeed.{MICRO}", 7),
        ("deepspeed-zero-stage", "deepspeed.zero_optimization.stage", 9),
    }


def test_a_repair_of_an_inline_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    head = f"{AXOLOTL}gradient_accumulation_steps: 1\n"
    path.write_text(f"{head}deepspeed:\n  {MICRO}: 4  # why\n  zero_optimization: {{stage: 1}}\n")
    assert main(["validate", "--isolated", "--fix", "--unsafe-fixes", str(path)]) == 0
    assert path.read_text() == f"{head}deepspeed:\n  {MICRO}: auto  # why\n  zero_optimization: {{stage: 1}}\n"


def test_a_precision_that_the_gpu_decides_contradicts_nothing() -> None:
    engine = AUTO | {"fp16": {"enabled": True}}
    for written, expected in (("", set()), ("bf16: auto\n", set()), ("bf16: true\n", {"engine-precision-differs"})):
        _, report = together(f"{AXOLOTL}gradient_accumulation_steps: 1\n{written}", engine)
        assert {one.name for one in report.findings if one.severity.value == "error"} == expected


def test_three_files() -> None:
    """Ranks from the launch file, rows from the training file, their product against DeepSpeed's."""
    engine = {MICRO: "auto", STEPS: 3, TOTAL: 40, "zero_optimization": {"stage": 1}}
    *_, report = together(f"{HF}gradient_accumulation_steps: 3\n", ZERO, engine)
    # 2 x 3 x 8 = 48
    assert [one.message for one in report.findings if one.name == "batch-total"] == [
        "train_batch_size 40 is not 2 (per_device_train_batch_size in 0.yaml) x gradient_accumulation_steps 3 x 8 data ranks = 48"
    ]


def test_two_files_of_a_kind_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PairError, match=r"0\.yaml and 1\.yaml are both training files; a run has one"):
        together(HF, AXOLOTL)
    (tmp_path / "a.yaml").write_text(HF)
    assert main(["validate", "--with", str(tmp_path / "a.yaml"), str(tmp_path / "a.yaml")]) == 2
    assert "both training files" in capsys.readouterr().err
    assert main(["validate", "--with", str(tmp_path / "none.yaml"), str(tmp_path / "a.yaml")]) == 2
    assert "none.yaml: No such file or directory" in capsys.readouterr().err


def test_a_wrong_type_in_one_file_silences_what_needs_it() -> None:
    training, launch = together(
        f"{HF}gradient_accumulation_steps: [1]\nbf16: maybe\n",
        f"{ZERO}mixed_precision: bf16\ndeepspeed_config: {{gradient_accumulation_steps: 2}}\n",
    )
    assert {one.name for one in training.findings} >= {"wrong-type"}
    assert not [one for one in (*training.findings, *launch.findings) if one.code.startswith(PAIRS)]


def test_a_file_of_no_kind_beside_another_is_told_so() -> None:
    training, other = together(HF, "a: 1\n")
    assert [one.name for one in other.findings] == ["unknown-dialect"]
    assert not training.findings


def test_the_trainer_takes_the_engine_that_its_launch_file_names(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(AUTO | {"gradient_clipping": 0.3}))
    launch = f"{ZERO}deepspeed_config: {{deepspeed_config_file: {tmp_path}/ds.json}}\n"
    reports = check_together([Text("train.yaml", f"{HF}max_grad_norm: 1.0\n"), Text("launch.yaml", launch)], gather())
    assert [(report.path, report.dialect) for report in reports] == [
        ("train.yaml", "transformers"),
        ("launch.yaml", "accelerate"),
        (f"{tmp_path}/ds.json", "deepspeed"),
    ]
    [finding] = [one for one in reports[2].findings if one.severity.value == "error"]
    assert finding.message == "gradient_clipping 0.3 differs from max_grad_norm 1.0 in train.yaml"
    assert [place.path for place in finding.related] == ["train.yaml"]


def test_an_engine_of_the_training_file_s_own_comes_first(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(AUTO))
    (tmp_path / "b.json").write_text("{")
    launch = f"{ZERO}deepspeed_config: {{deepspeed_config_file: {tmp_path}/b.json}}\n"
    reports = check_together([Text("0.yaml", f"{HF}deepspeed: {tmp_path}/a.json\n"), Text("1.yaml", launch)], gather())
    assert [Path(report.path).name for report in reports] == ["0.yaml", "1.yaml", "a.json"]


def test_as_a_function(tmp_path: Path) -> None:
    import ndcheck

    (tmp_path / "launch.yaml").write_text(f"{DDP}mixed_precision: bf16\n")
    report = ndcheck.validate(f"{HF}fp16: true\n", beside=[tmp_path / "launch.yaml"])
    assert [file.path for file in report.files] == ["<text>", str(tmp_path / "launch.yaml")]
    assert [one.name for one in report.findings] == ["launch-precision-differs"] * 2
    with pytest.raises(PairError):
        ndcheck.validate(HF, beside=[tmp_path / "launch.yaml", tmp_path / "launch.yaml"])


def test_a_comment_silences_its_own_place_and_is_not_unused_without_the_other_file() -> None:
    training = f"{HF}fp16: true  # ndcheck: ignore[launch-precision-differs] measured\n"
    launch = f"{DDP}mixed_precision: bf16\n"
    assert contradictions(training, launch) == {("warning", "launch-precision-differs", "1", 3)}
    [report] = together(training)
    assert not report.findings
    [agreeing, _] = together(training, f"{DDP}mixed_precision: fp16\n")
    assert [one.name for one in agreeing.findings] == ["unused-suppression"]


def test_a_comment_about_a_rule_that_lacks_a_fact_is_not_unused() -> None:
    text = f"{AXOLOTL}gradient_accumulation_steps: 1\n{FSDP2}dp_shard_size: 8  # ndcheck: ignore[world-size-product] on 4 ranks, to try\n"
    assert not [one for one in together(text)[0].findings if one.name == "unused-suppression"]
    assert [one.name for one in together(text, world_size=8)[0].findings] == ["unused-suppression"]
    assert not [one for one in together(text, world_size=4)[0].findings if one.severity.value != "info"]


def test_whatever_the_files_say_there_is_a_report() -> None:
    chance = Random(3)
    for _ in range(150):
        training = config(chance.choice(["axolotl", "transformers"]), chance)
        files: list[dict[str, Any]] = [training, config("accelerate", chance), config("deepspeed", chance)]
        if chance.random() < 0.4:
            training["deepspeed"] = files.pop()
        chance.shuffle(files)
        texts = [Text(f"{number}.json", json.dumps(content)) for number, content in enumerate(files)]
        with suppress(PairError):  # told by few keys, two may be taken for the same
            reports = check_together(texts, gather(world_size=chance.choice([None, 1, 6, 8])))
            assert as_text.render(Report(files=reports), {})
