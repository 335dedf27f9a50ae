"""Tile sizes: how work is cut."""

import pytest

from rl_training.models.mlp.network import StackedMLP
from rl_training.models.mlp.tiles import (
    backward_tiles,
    forward_tiles,
    parameter_programs,
    parts_of_product,
    rows_of_part,
    taken_together,
    updates_at_once,
)


@pytest.mark.parametrize(("matrices", "rows", "parts"), [(20, 7936, 8), (132, 7936, 1), (20, 256, 1), (20, 7937, 1)])
def test_sums_are_split_only_where_processors_would_be_idle(matrices, rows, parts):
    assert parts_of_product(matrices, rows) == parts


def test_parts_of_rows_cover_all_of_them():
    for rows, programs in [(256, 10), (7936, 160), (100_000, 1)]:
        part = rows_of_part(rows, programs)
        assert part % 64 == 0
        assert part * -(-rows // part) >= rows


@pytest.mark.parametrize(
    ("width", "precision", "norm", "rows"),
    [(512, "tf32", "none", 32), (512, "tf32", "after", 64), (512, "bf16", "none", 16), (256, "tf32", "none", 32)],
)
def test_a_forward_pass_of_wide_networks_has_rows_that_fit(width, precision, norm, rows):
    layout = StackedMLP("f", "f", 24, (width,) * 4, 6, norm=norm).layout
    tiles = forward_tiles(10 * 256, precision, layout)
    assert tiles["ROWS"] == rows
    weights = tiles["STEP"] * width * tiles["num_stages"] * 4
    assert weights < 220 * 1024  # of shared memory


@pytest.mark.parametrize("hidden", [(512, 16), (16, 512), (256, 16), (512, 64, 512)], ids=str)
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("norm", ["none", "after"])
def test_no_step_is_wider_than_a_layer(hidden, precision, norm):
    layout = StackedMLP("f", "f", 24, hidden, 6, norm=norm).layout
    for rows in (256, 2560, 10_000, 20_000, 100_000):
        assert forward_tiles(rows, precision, layout)["STEP"] <= min(hidden)
        assert backward_tiles(rows, precision, layout)["STEP"] <= min(hidden)


@pytest.mark.parametrize("norm", ["none", "after"])
@pytest.mark.parametrize(("width", "precision", "warps"), [(512, "tf32", 8), (512, "bf16", 4), (256, "tf32", 4)])
def test_a_backward_pass_of_wide_networks_has_more_warps_in_place_of_fewer_rows(width, precision, warps, norm):
    layout = StackedMLP("f", "f", 24, (width,) * 4, 6, norm=norm).layout
    tiles = backward_tiles(10 * 256, precision, layout)
    assert tiles["num_warps"] == warps
    assert tiles["STEP"] * width * tiles["num_stages"] * 4 < 220 * 1024


def test_one_member_takes_one_launch():
    assert taken_together(4, 1, 100_000)
    assert taken_together(8, 2, 256)
    assert not taken_together(256, 64, 256)


@pytest.mark.parametrize(("inputs", "ends"), [(15, 1), (16, 2)])  # the bias is one input more
def test_tiles_cover_every_parameter_of_a_network(inputs, ends):
    layout = StackedMLP("q", "q", inputs, (256, 512, 256), 1, 2).layout
    tiles = {"TILE_IN": 128, "TILE_OUT": 128, "TILE_END": 256}
    assert parameter_programs(layout, 16, tiles | {"WEIGHTS": True, "REST": False}) == 2 * 4 + 4 * 2
    assert parameter_programs(layout, 16, tiles | {"WEIGHTS": False, "REST": True}) == ends + (2 + 1) + 1
    assert parameter_programs(layout, 16, tiles | {"WEIGHTS": True, "REST": True}) == 16 + ends + 4


@pytest.mark.parametrize("norm", ["none", "before"])
@pytest.mark.parametrize("hidden", [(7,), (32, 16, 8)])
def test_hidden_weights_and_the_rest_are_all_columns(hidden, norm):
    layout = StackedMLP("q", "q", 5, hidden, 1, 3, norm=norm).layout
    weights, rest = layout.hidden_weight_columns, layout.other_columns
    assert len(weights) == len(hidden) - 1
    assert all(
        end - start >= 3 * below * above for (start, end), below, above in zip(weights, hidden, hidden[1:], strict=False)
    )
    ranges = sorted([*weights, *rest])
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == layout.size


@pytest.mark.parametrize(
    ("change", "applied"),
    [({}, True), ({"precision": "bf16"}, False), ({"rows": 257}, False), ({"outputs": 17}, False), ({"members": 1}, False)],
    ids=str,
)
def test_gradients_are_applied_at_once_where_that_is_faster(change, applied):
    given = {"stacks": 256, "members": 64, "rows": 256, "outputs": 6, "precision": "tf32"}
    assert updates_at_once(**{**given, **change}) == applied
