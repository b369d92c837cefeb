"""Rules about optimizers against sharded parameters."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.rules.rule import Rule, rule
from ndcheck.rules.sharding import FSDP2
from ndcheck.run import Run

BITSANDBYTES_8BIT = frozenset(
    """
    adamw_8bit adamw_bnb_8bit paged_adamw_8bit lion_8bit paged_lion_8bit rmsprop_bnb_8bit
    ademamix_8bit paged_ademamix_8bit
    """.split()
)
"""Names under which transformers selects an 8-bit optimizer of bitsandbytes."""


@rule(
    "ND601",
    Severity.ERROR,
    Run,
    evidence="bitsandbytes #1633; axolotl 0.18 refuses two of the names with FSDP2, and its check for tp never runs",
    bad=f"optimizer: paged_adamw_8bit\n{FSDP2}",
    good=f"optimizer: adamw_torch_8bit\n{FSDP2}",
    unchecked=True,
)
def optimizer_8bit_sharded(run: Run) -> Iterator[Violation]:
    """An 8-bit optimizer of bitsandbytes meets parameters that are DTensors.

    FSDP2 and tensor parallelism hold parameters as DTensors. bitsandbytes' kernels take plain tensors:
    they fail at the first step, or read memory that is not theirs.
    """
    optimizer, sharding = run.optimizer, run.sharding
    if optimizer is None or optimizer.value not in BITSANDBYTES_8BIT:
        return
    version = sharding.fsdp_version
    fsdp2 = sharding.fsdp.value and version is not None and version.value == 2
    tp = run.degrees["tp"] if run.degree("tp") > 1 else None
    if not fsdp2 and tp is None:
        return
    why = " and ".join([*(["FSDP2"] if fsdp2 else []), *([str(tp)] if tp else [])])
    message = f"{optimizer} is a bitsandbytes kernel and cannot step the DTensors of {why}"
    edits = (SetValue(optimizer.path, "adamw_torch_8bit"),) if optimizer.path else ()
    fix = Fix("use adamw_torch_8bit or adamw_torch_fused", edits=edits)
    yield Violation(place(optimizer), message, notes(tp, version if fsdp2 else None), fix)


RULES: tuple[Rule[Run], ...] = (optimizer_8bit_sharded,)
