from __future__ import annotations

import pytest

from ndcheck.layout import Layout, layouts
from ndcheck.trainer.settings import Settings, check_fits


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "float16"}, "precision 'float16' is not one of float64, float32, bfloat16, mixed"),
        ({"samples": 0}, "samples must be at least 1, not 0"),
        ({"micro_batches": -1}, "micro_batches must be at least 1, not -1"),
        ({"micro_batches": 3}, "global_batch 16 does not split into 3 equal micro_batches"),
        ({"max_norm": 0.0}, "max_norm must be above 0, not 0.0"),
        ({"resume_at": 3}, "resume_at must be from 0 to 2, not 3"),
        ({"cp_slices": "striped"}, "cp_slices 'striped' is not one of contiguous, zigzag"),
        ({"loss_parallel": True, "vocabulary_parallel": False}, "loss_parallel needs vocabulary_parallel: .*"),
    ],
)
def test_a_wrong_setting_is_named(changes, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Settings(**changes)


def test_steps_of_an_epoch():
    """44 rows: two steps of 16 and one of 12."""
    assert Settings().steps == 3
    assert Settings(samples=32).steps == 2
    assert Settings(samples=33).steps == 3
    assert Settings().micro_batch == 8


@pytest.mark.parametrize(
    ("changes", "layout", "message"),
    [
        ({"cp_slices": "zigzag", "sequence_length": 24}, Layout(cp=8), "24 does not split into 16 equal zigzag slices"),
        ({"sequence_parallel": True, "sequence_length": 24}, Layout(cp=2, tp=8), "12 tokens do not split over tp 8"),
    ],
)
def test_options_that_need_more_of_the_sequence(changes, layout, message):
    with pytest.raises(ValueError, match=message):
        check_fits(Settings(**changes), layout, heads=16, kv_heads=8)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(ep=2), "ep 2: the reference trainer has no ep axis"),
        (Layout(pp=4), "pp 4: the reference trainer has no pp axis"),
        (Layout(dp_shard=3), "global_batch 16 / micro_batches 2 = 8 rows do not split over 3 data ranks"),
        (Layout(cp=3), "sequence_length 64 does not split into 3 equal contiguous slices"),
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
