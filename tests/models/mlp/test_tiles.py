"""Tile sizes: how work is cut."""

import pytest

from rl_training.models.mlp.tiles import parts_of_product, rows_of_part, taken_together


@pytest.mark.parametrize(("matrices", "rows", "parts"), [(20, 7936, 8), (132, 7936, 1), (20, 256, 1), (20, 7937, 1)])
def test_sums_are_split_only_where_processors_would_be_idle(matrices, rows, parts):
    assert parts_of_product(matrices, rows) == parts


def test_parts_of_rows_cover_all_of_them():
    for rows, programs in [(256, 10), (7936, 160), (100_000, 1)]:
        part = rows_of_part(rows, programs)
        assert part % 64 == 0
        assert part * -(-rows // part) >= rows


def test_one_member_takes_one_launch():
    assert taken_together(4, 1, 100_000)
    assert taken_together(8, 2, 256)
    assert not taken_together(256, 64, 256)
