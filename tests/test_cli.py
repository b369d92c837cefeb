"""The command line as a user meets it: findings, files that cannot be read, exit codes, and what it does not import."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ndcheck import __version__
from ndcheck.cli import main

SIX_MISTAKES = """\
base_model: org/llama
datasets:
  - path: org/data
    type: alpaca
learning_rate: 2e-5
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_8bit
tensor_parallel_size: 2
dp_shard_size: 2
contxt_parallel_size: 1
fsdp_version: 2
fsdp_config:
  offload_params: maybe
plugins:
  - axolotl.integrations.liger.LigerPlugin
liger_rms_norm: true
sequence_len: 2048
sequence_len: 4096
"""
MENDED = """\
base_model: org/llama
datasets:
  - path: org/data
    type: alpaca
learning_rate: 2e-5
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_torch_fused
tensor_parallel_size: 2
dp_shard_size: 4
context_parallel_size: 1
fsdp_version: 2
fsdp_config:
  offload_params: false
plugins:
  - axolotl.integrations.liger.LigerPlugin
liger_rms_norm: false
sequence_len: 4096
"""


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return name


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["validate", "--format", "json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_six_mistakes_are_six_findings_each_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = as_json(capsys, "--world-size", "8", write("six.yaml", SIX_MISTAKES))
    (file,) = output["files"]
    assert code == 1
    assert [(finding["line"], finding["code"]) for finding in file["findings"]] == [
        (8, "ND601"),  # a bitsandbytes optimizer over DTensors
        (10, "ND101"),  # 2 x 2 is not 8
        (11, "ND801"),  # a letter short
        (14, "ND802"),  # neither true nor false
        (17, "ND701"),  # Liger's RMSNorm with tp
        (19, "ND902"),  # the second sequence_len
    ]
    assert {finding["severity"] for finding in file["findings"]} == {"error"}


def test_with_the_mistakes_mended_it_passes(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = as_json(capsys, "--world-size", "8", write("mended.yaml", MENDED))
    (file,) = output["files"]
    assert code == 0
    assert file["findings"] == []
    # 2 rows x 4 steps x 4 data ranks
    assert file["derived"]["global_batch_size"] == 32


@pytest.mark.parametrize("line", [8, 10, 11, 14, 17, 19])
def test_each_mistake_is_found_alone(line: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The mended file with one of the mistakes put back has that one finding."""
    mended, broken = MENDED.splitlines(), SIX_MISTAKES.splitlines()
    text = "\n".join(
        [*mended[:17], *broken[17:]] if line == 19 else [*mended[: line - 1], broken[line - 1], *mended[line:]]
    )
    code, output = as_json(capsys, "--world-size", "8", write("one.yaml", text + "\n"))
    found = [finding["line"] for finding in output["files"][0]["findings"]]
    assert (code, found) == (1, [line])


def test_warnings_alone_are_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = as_json(capsys, write("a.yaml", MENDED + "sequence_parallel_degree: 1\n"))
    assert code == 0
    assert (output["summary"]["errors"], output["summary"]["warnings"]) == (0, 1)


def test_files_do_not_stop_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    Path("directory").mkdir()
    Path("loop").symlink_to("loop")
    names = [
        write("good.yaml", MENDED),
        "missing.yaml",
        "directory",
        "loop",
        write("latin1.yaml", b"base_model: caf\xe9\n"),
        write("empty.yaml", ""),
        "/dev/null",
        write("last.yaml", SIX_MISTAKES),
    ]
    code, output = as_json(capsys, "--world-size", "8", *names)
    found = {file["path"]: [finding["code"] for finding in file["findings"]] for file in output["files"]}
    assert code == 2
    assert found == {
        "good.yaml": [],
        "latin1.yaml": ["ND910"],
        "empty.yaml": ["ND911"],
        "/dev/null": ["ND911"],
        "last.yaml": ["ND601", "ND101", "ND801", "ND802", "ND701", "ND902"],
    }
    assert {entry["path"] for entry in output["unreadable"]} == {"missing.yaml", "directory", "loop"}
    assert output["summary"]["files"] == 5
    assert output["summary"]["errors"] == 9


def test_a_file_that_cannot_be_opened_is_named_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "missing.yaml"]) == 2
    assert capsys.readouterr().err == "ndcheck: missing.yaml: No such file or directory\n"


@pytest.mark.parametrize(("content", "code"), [(MENDED, 0), (SIX_MISTAKES, 1), ("", 1), ("a: [", 1)])
def test_standard_input(
    content: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    got, output = as_json(capsys, "--world-size", "8", "--stdin-filename", "piped.yaml", "-")
    assert (got, output["files"][0]["path"]) == (code, "piped.yaml")


def test_a_file_given_twice_is_checked_once(capsys: pytest.CaptureFixture[str]) -> None:
    name = write("a.yaml", MENDED)
    assert as_json(capsys, name, name)[1]["summary"]["files"] == 1


def test_unknown_dialect(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = as_json(capsys, write("a.yaml", "model: {name: x}\n"))
    assert code == 1
    assert output["files"][0]["dialect"] is None
    assert [finding["code"] for finding in output["files"][0]["findings"]] == ["ND912"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["validate"],
        ["validate", "--world", "8", "a.yaml"],
        ["validate", "--world-size", "eight", "a.yaml"],
        ["validate", "--world-size", "9" * 5000, "a.yaml"],
        ["validate", "--dialect", "nobody", "a.yaml"],
        ["validate", "--format", "xml", "a.yaml"],
        ["train", "a.yaml"],
    ],
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write("a.yaml", MENDED)
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: ndcheck" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--world-size", "0"], "--world-size must be an integer of at least 1, not 0"),
        (["--world-size", "-8"], "--world-size must be an integer of at least 1, not -8"),
        (["--world-size", "99999999999"], "--world-size must be at most 1000000000"),
        (["--nodes", "0"], "--nodes must be"),
        (["--nodes", "2", "--gpus-per-node", "8", "--world-size", "8"], "but the world size is 8 (--world-size)"),
        (["--nodes", "3", "--world-size", "8"], "cannot be spread evenly over 3 nodes"),
        (["--model-config", "none.json"], "cannot read model config none.json: No such file or directory"),
        (["--model-config", "a.yaml"], "model config a.yaml is not JSON"),
    ],
)
def test_unusable_facts(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", *arguments, write("a.yaml", MENDED)]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""


def test_world_size_from_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    name = write("a.yaml", MENDED)
    monkeypatch.setenv("WORLD_SIZE", "16")
    code, output = as_json(capsys, name)
    assert code == 1
    assert "there are 16 ranks (WORLD_SIZE)" in output["files"][0]["findings"][0]["message"]
    assert as_json(capsys, "--world-size", "8", name)[0] == 0
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert main(["validate", name]) == 2
    assert "WORLD_SIZE must be an integer of at least 1, not 'many'" in capsys.readouterr().err


def test_nodes_and_gpus_give_the_world_size(capsys: pytest.CaptureFixture[str]) -> None:
    name = write("a.yaml", MENDED)
    assert as_json(capsys, "--nodes", "2", "--gpus-per-node", "4", name)[0] == 0
    assert as_json(capsys, "--nodes", "2", "--gpus-per-node", "8", name)[0] == 1


def test_model_config(capsys: pytest.CaptureFixture[str]) -> None:
    shape = write("config.json", '{"model_type": "llama", "num_attention_heads": 9, "num_key_value_heads": 3}')
    code, output = as_json(capsys, "--world-size", "8", "--model-config", shape, write("a.yaml", MENDED))
    assert code == 1
    assert [finding["code"] for finding in output["files"][0]["findings"]] == ["ND301", "ND302"]


def test_missing_facts_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    not_run = as_json(capsys, write("a.yaml", MENDED))[1]["summary"]["not_run"]
    assert not_run["model_config"] >= 4
    assert not_run["world_size"] >= 1
    assert "world_size" not in as_json(capsys, "--world-size", "8", "a.yaml")[1]["summary"]["not_run"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"ndcheck {__version__}\n"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": root}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def test_validating_imports_no_framework_and_opens_no_socket() -> None:
    write("a.yaml", MENDED)
    code = """if True:
        import sys
        def refuse(event, arguments):
            if event.startswith("socket."):
                raise RuntimeError(f"network: {event} {arguments}")
        sys.addaudithook(refuse)
        from ndcheck.cli import main
        code = main(["validate", "--format", "json", "--world-size", "8", "a.yaml"])
        unwanted = {"torch", "transformers", "accelerate", "numpy", "rich", "matplotlib", "jinja2", "jsonschema"}
        print(sorted(unwanted & sys.modules.keys()), code, file=sys.stderr)
    """
    finished = python(code)
    assert finished.stderr == "[] 0\n"
    assert json.loads(finished.stdout)["summary"]["errors"] == 0


def test_the_guard_against_sockets_bites() -> None:
    finished = python(
        "import sys; sys.addaudithook(lambda event, _: event.startswith('socket.') and sys.exit(9));"
        "import socket; socket.getaddrinfo('localhost', 80)"
    )
    assert finished.returncode == 9


def test_as_a_module() -> None:
    write("six.yaml", SIX_MISTAKES)
    root = str(Path(__file__).parent.parent)
    command = [sys.executable, "-m", "ndcheck", "validate", "--world-size", "8", "six.yaml"]
    finished = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root}, check=False
    )
    assert finished.returncode == 1
    assert "6 errors, 0 warnings in 1 file.\n" in finished.stdout
    assert finished.stderr == ""


def test_a_terminal_that_knows_ascii_only_gets_escapes() -> None:
    write("a.yaml", "base_model: org/модель\nключ: 1\n")
    root = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": root, "PYTHONIOENCODING": "ascii"}
    finished = subprocess.run(
        [sys.executable, "-m", "ndcheck", "validate", "a.yaml"], capture_output=True, env=environment, check=False
    )
    assert finished.returncode == 1
    assert rb"\u043a\u043b\u044e\u0447" in finished.stdout
    assert b"Traceback" not in finished.stderr


def test_verbose_says_what_a_file_was_taken_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "launch.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    assert main(["validate", "-v", str(tmp_path / "launch.yaml")]) == 0
    assert "read as accelerate, told by its keys distributed_type, num_processes" in capsys.readouterr().out


def test_dialects_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dialects"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["axolotl", "accelerate", "transformers", "deepspeed"]
    assert all(re.search(r" \d+ keys, \d+ rules ", line) for line in lines)
