"""axolotl's rules about values that it rewrites, or trips over because of how they are written."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, Safety, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import lists, on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings
from ndcheck.values import Path, shown

OFFLOADS = {"offload": "true", "offload_disk": "disk"}
"""Older value of gradient_checkpointing -> what activation_offloading becomes, as YAML."""

EP_LISTED = lists("plugins", r"\bexpert_parallel\b")


@rule(
    "AX977",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 validation.py:1425",
    bad="gradient_checkpointing: offload\n",
    good="gradient_checkpointing: true\nactivation_offloading: true\n",
)
def checkpointing_says_offload(settings: Settings) -> Iterator[Violation]:
    """gradient_checkpointing also says where activations go.

    offload and offload_disk are older values for two settings at once; axolotl splits them, and warns.
    """
    value = settings.written("gradient_checkpointing")
    target = OFFLOADS.get(str(value.value)) if value is not None else None
    if value is None or target is None or settings.written("activation_offloading") is not None:
        return
    edits = (SetValue(("gradient_checkpointing",), "true"), SetValue(("activation_offloading",), target))
    fix = Fix(f"write gradient_checkpointing: true and activation_offloading: {target}", Safety.SAFE, edits)
    yield Violation(place(value), f"{value} is deprecated; it means activation_offloading: {target}", fix=fix)


@rule(
    "AX978",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:1425, run: accepted, and the written value is overwritten",
    bad="gradient_checkpointing: offload\nactivation_offloading: legacy\n",
    good="gradient_checkpointing: true\nactivation_offloading: legacy\n",
    unchecked=True,
)
def offloading_overwritten(settings: Settings) -> Iterator[Violation]:
    """gradient_checkpointing overwrites activation_offloading.

    The older values offload and offload_disk set both, whatever else the file says of the second.
    """
    value, written = settings.written("gradient_checkpointing"), settings.written("activation_offloading")
    target = OFFLOADS.get(str(value.value)) if value is not None else None
    if value is None or target is None or written is None:
        return
    edits = (SetValue(("gradient_checkpointing",), "true"),)
    if shown(written.value) == target:
        fix = Fix("set gradient_checkpointing: true", Safety.SAFE, edits)
        message = f"{value} is deprecated, and {written} says the same"
        yield Violation(place(value), message, notes(written), fix, Severity.WARNING)
    else:
        fix = Fix("set gradient_checkpointing: true", edits=edits)
        message = f"{value} makes activation_offloading {target}, whatever is written there: {written}"
        yield Violation(place(value), message, notes(written), fix)


@rule(
    "AX979",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:1160, 711 and 814; 0.19, run: TypeError",
    bad='tensor_parallel_size: "1"\n',
    good="tensor_parallel_size: 1\n",
)
def quoted_number_crashes(settings: Settings) -> Iterator[Violation]:
    """A number stands in quotes, and axolotl compares it before it becomes one.

    Elsewhere axolotl turns such text into a number; in these places a check comes first, and ends in a TypeError. A
    limit of its checks up to 0.19, not of the config.
    """
    keys = ["tensor_parallel_size"]
    if settings.get("rl") == "grpo":
        keys.append("trl.num_generations")
        if settings.on("trl.use_liger_loss"):
            keys.append("context_parallel_size")
    for key in keys:
        path = tuple(key.split("."))
        if isinstance(_as_written(settings, path), str):
            number = settings.get(key)
            fix = Fix("remove the quotes", Safety.SAFE, (SetValue(path, str(number)),))
            yield Violation(path, f'{key} is the text "{number}", which axolotl answers with a traceback', fix=fix)


def _as_written(settings: Settings, path: Path) -> object:
    node: object = settings.mapping
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    return node


@rule(
    "AX980",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:711 and 745, config.py:2068, expert_parallel/args.py:41; 0.19, run: TypeError, AttributeError, refused",
    bad="rl: gdpo\ntrl:\n",
    good="rl: gdpo\ntrl: {}\n",
)
def empty_value_refused(settings: Settings) -> Iterator[Violation]:
    """A key is written with nothing behind it where axolotl wants a value.

    Empty keys mean "not set" nearly everywhere in axolotl. In these places one of its checks asks the value a question
    before it looks whether there is one. A limit of its checks up to 0.19: without the key the config is fine.
    """
    keys = {
        "trl": settings.get("rl") == "gdpo" or bool(settings.mapping.get("beta")),
        "context_parallel_size": settings.get("rl") == "grpo" and settings.on("trl.use_liger_loss"),
        "expert_parallel_size": EP_LISTED.holds(settings),
    }
    for key, asked in keys.items():
        value = settings.written(key)
        if asked and value is not None and value.value is None:
            fix = Fix("remove it", Safety.SAFE, (RemoveKey((key,)),))
            yield Violation((key,), f"{key} is empty, which axolotl does not take here", fix=fix)


RAY_BATCH_SIZE = conditional(
    "AX981",
    "ray-batch-size",
    Severity.ERROR,
    Settings,
    summary="batch_size under Ray",
    why="Each worker checks the config again, after the defaults were filled in. By then gradient_accumulation_steps is "
    "there as well, and axolotl refuses the pair. A limit of its checks.",
    when=on("use_ray"),
    then=~on("batch_size"),
    message="{batch_size} is refused on the workers of {use_ray}, where gradient_accumulation_steps has its default",
    fix=Fix("write gradient_accumulation_steps instead"),
    evidence="axolotl 0.18 cli/config.py:305 and validation.py:272 (read): workers check the config a second time",
    bad="use_ray: true\nmicro_batch_size: 4\nbatch_size: 4\n",
    good="micro_batch_size: 4\nbatch_size: 4\n",
    given={"drop": ["gradient_accumulation_steps"]},
    unchecked=True,
)

RULES: tuple[Rule[Settings], ...] = (
    checkpointing_says_offload,
    offloading_overwritten,
    quoted_number_crashes,
    empty_value_refused,
    RAY_BATCH_SIZE,
)
