from __future__ import annotations

import pytest

from ndcheck.layout import Layout, layouts
from ndcheck.trainer.settings import Settings, check_fits


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "float16"}, "precision 'float16' is not one of float64, float32, bfloat16"),
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"micro_batches": -1}, "micro_batches must be at least 1, not -1"),
    ],
)
def test_a_wrong_setting_is_named(changes, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Settings(**changes)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(ep=2), "ep 2: the reference trainer has no ep axis"),
        (Layout(pp=4), "pp 4: the reference trainer has no pp axis"),
        (Layout(dp_shard=3), "global_batch 16 .* 3 data ranks x 2 micro_batches = 6"),
        (Layout(cp=3), "sequence_length 64 .* cp 3"),
        (Layout(tp=3), "tp 3 .* 16 attention heads"),
        (Layout(tp=16), "tp 16 .* 8 key-value heads"),
    ],
    ids=str,
)
def test_a_layout_that_cannot_carry_the_settings_is_refused(layout, message):
    with pytest.raises(ValueError, match=message):
        check_fits(Settings(), layout, heads=16, kv_heads=8)


def test_every_layout_of_eight_ranks_fits_the_defaults():
    for world_size in (1, 2, 4, 8):
        for layout in layouts(world_size, ("dp_replicate", "dp_shard", "cp", "tp")):
            check_fits(Settings(), layout, heads=16, kv_heads=8)
