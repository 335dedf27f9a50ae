"""Parts of one episode, which gaps or bad rows cut, are held out together."""

import numpy as np
import pytest

from rl_training import rng
from rl_training.data.dataset_loaders import load_dataset
from rl_training.data.offline_mixers import mix_datasets
from rl_training.data.subsets import filter_dataset, held_out_episodes, split_views
from tests.helpers import generator
from tests.logs import write_csv

ROWS = 12  # of an episode
COLUMNS = {"observations": ["T", "number"], "actions": ["u"], "reward": "r", "time": "t"}


def log(episodes, *, gaps=True, bad=False):
    """Episodes whose time leaps twice, or in which two rows are bad; `number` tells which one a row is of."""
    rows = []
    for number in range(episodes):
        for k in range(ROWS):
            leap = 100.0 * (k // 4) if gaps else 0.0
            rows.append({"episode": number, "t": 1000.0 * number + k + leap, "T": float(k), "number": number})
    table = {name: [row[name] for row in rows] for name in rows[0]}
    draw = generator(0)
    table |= {name: draw.normal(size=len(rows)).tolist() for name in ("u", "r")}
    if bad:
        for k in range(len(rows)):
            if k % ROWS in (4, 8):
                table["T"][k] = float("nan")
    return table


def numbers(view):
    return set(view.whole("observations")[:, 1].tolist())


@pytest.mark.parametrize("bad", [False, True])
def test_an_episode_is_on_one_side(bad, tmp_path):
    path = write_csv(tmp_path / "log.csv", log(20, gaps=not bad, bad=bad))
    options = {"on_bad_rows": "drop"} if bad else {}
    data = load_dataset(path, columns={**COLUMNS, "episode": "episode"}, **options)
    assert len(data.episode_spans[0]) == 60
    for seed in range(3):
        rest, held = split_views(data, 0.2, seed)
        assert len(numbers(held)) == 4
        assert not numbers(held) & numbers(rest)
    kept = filter_dataset(data, min_return=-1e9)  # a copy knows it too
    assert np.array_equal(held_out_episodes(kept, 0.2), held_out_episodes(data, 0.2))


def test_a_file_without_an_episode_column_is_on_one_side(tmp_path):
    table = log(10)
    for number in range(10):
        rows = slice(number * ROWS, (number + 1) * ROWS)
        write_csv(tmp_path / f"day{number}.csv", {name: values[rows] for name, values in table.items() if name != "episode"})
    rest, held = split_views(load_dataset(tmp_path, columns=COLUMNS), 0.2)
    assert len(numbers(held)) == 2
    assert not numbers(held) & numbers(rest)


def test_parts_of_a_single_log_are_held_out_by_themselves(tmp_path):
    table = {name: values for name, values in log(4).items() if name != "episode"}
    data = load_dataset(write_csv(tmp_path / "log.csv", table), columns=COLUMNS)
    assert len(data.episode_spans[0]) == 12
    assert len(held_out_episodes(data, 0.2)) == 2


def test_statistics_and_mixtures_know_of_parts(tmp_path):
    columns = {**COLUMNS, "episode": "episode"}
    cut = load_dataset(write_csv(tmp_path / "cut.csv", log(3)), columns=columns)
    whole = load_dataset(write_csv(tmp_path / "whole.csv", log(4, gaps=False)), columns=columns)
    assert (cut.statistics()["episodes"], cut.statistics()["parts_of"]) == (9, 3)
    assert "parts_of" not in whole.statistics()
    mixed = mix_datasets([whole, cut])
    assert mixed.cut_from.tolist() == [0, 1, 2, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6]
    assert mix_datasets([whole, whole]).cut_from is None


def test_whole_episodes_are_chosen_as_ever(tmp_path):
    path = write_csv(tmp_path / "log.csv", log(20, gaps=False))
    data = load_dataset(path, columns={**COLUMNS, "episode": "episode"})
    assert data.cut_from is None
    order = np.argsort(rng.bits([3], "split", 0, (20,))[0].numpy(), kind="stable")
    assert held_out_episodes(data, 0.2, 3).tolist() == sorted(order[:4].tolist())
