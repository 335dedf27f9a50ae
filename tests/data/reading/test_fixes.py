"""From rows to transitions: ends, rewards and next observations settled in one order, and the fixes that change them."""

import h5py
import numpy as np
import pytest

from rl_training.data import (
    TransitionDataset,
    filter_dataset,
    load_dataset,
    mix_datasets,
    save_dataset,
    transform_dataset,
)
from rl_training.errors import ConfigError, DatasetError
from tests.logs import FIELDS, episodes, transitions, write_hdf5, write_minari

LOG = episodes()
WHOLE, KNOWN = transitions(LOG), transitions(LOG, keep_unknown=False)
FIXES = [
    ({"ends": "timeouts"}, "every end is taken as a time limit"),
    ({"action_scale": 2.0}, "multiplied by 2"),
    ({"reward_lag": 1}, "rewards are moved by 1"),
    ({"action_lag": 1}, "actions are moved by 1 row; 4 rows without an action are left out"),
]


@pytest.mark.parametrize(("options", "words"), FIXES)
def test_fixes_are_noted(options, words):
    assert words in load_dataset({**WHOLE}, **options).origin


def test_ends_as_timeouts():
    data = load_dataset({**WHOLE}, ends="timeouts")
    assert not data.terminals.any()
    assert np.array_equal(data.timeouts, WHOLE["terminals"] | WHOLE["timeouts"])


@pytest.mark.parametrize("lag", [1, -1])
def test_reward_lag_fixes_a_shifted_column(lag):
    """Rewards rolled over the whole file come back, but for the row whose reward has left it."""
    data = load_dataset({**WHOLE, "rewards": np.roll(WHOLE["rewards"], lag)}, reward_lag=lag, reward_lag_across=True)
    expected = WHOLE["rewards"][:-1] if lag == 1 else WHOLE["rewards"][1:]
    assert np.array_equal(data.rewards, expected)
    assert data.episode_ends[-1]


def test_reward_lag_inside_episodes():
    """Where every episode begins with a reward that belongs to nobody, its last one is lost and the row is left out."""
    ends = WHOLE["terminals"] | WHOLE["timeouts"]
    late = np.roll(WHOLE["rewards"], 1)
    late[np.append(True, ends[:-1])] = 0.0
    data = load_dataset({**WHOLE, "rewards": late}, reward_lag=1)
    assert np.array_equal(data.rewards, WHOLE["rewards"][~ends])
    assert not data.terminals.any()
    assert data.timeouts.sum() == ends.sum()


@pytest.mark.parametrize("lag", [1, -1])
def test_action_lag_fixes_shifted_columns(lag):
    """Actions rolled over the whole file come back; inside episodes the rows whose action is lost are left out."""
    moved = {**WHOLE, "actions": np.roll(WHOLE["actions"], lag, axis=0)}
    data = load_dataset(moved, action_lag=lag, action_lag_across=True)
    assert np.array_equal(data.actions, WHOLE["actions"][:-1] if lag == 1 else WHOLE["actions"][1:])
    ends = WHOLE["terminals"] | WHOLE["timeouts"]
    kept = ~ends if lag == 1 else ~np.append(True, ends[:-1])
    data = load_dataset(moved, action_lag=lag)
    assert np.array_equal(data.actions, WHOLE["actions"][kept])
    assert np.array_equal(data.rewards, WHOLE["rewards"][kept])
    assert data.episode_ends.sum() == ends.sum()
    assert data.terminals.any() == (lag == -1)


def test_unknown_options_are_refused():
    with pytest.raises(ConfigError, match="rewardlag"):
        load_dataset({**WHOLE}, rewardlag=1)


def rows_as_recorded(**changes):
    """Three episodes of five rows without next observations; the middle one ends truly."""
    rows = 15
    values = {
        "observations": np.arange(rows, dtype=np.float32)[:, None] * 10,
        "actions": np.zeros((rows, 1), dtype=np.float32),
        "rewards": np.arange(rows, dtype=np.float32),
        "terminals": np.arange(rows) == 9,
        "timeouts": np.isin(np.arange(rows), (4, 14)),
    }
    return {**values, **changes}


def test_ends_are_settled_before_next_observations():
    """A row that turns out to be a time limit has no known successor, whatever it was marked as."""
    data = load_dataset(rows_as_recorded(), ends="timeouts")
    assert data.observations[:, 0].tolist() == [0, 10, 20, 30, 50, 60, 70, 80, 100, 110, 120, 130]
    assert np.array_equal(data.next_observations, data.observations + 10)
    assert np.flatnonzero(data.timeouts).tolist() == [3, 7, 11]


def test_rewards_are_settled_before_rows_are_left_out():
    rolled = np.roll(np.arange(15, dtype=np.float32), 1)
    data = load_dataset(rows_as_recorded(rewards=rolled), reward_lag=1, reward_lag_across=True)
    assert data.rewards.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert np.flatnonzero(data.terminals).tolist() == [8]


@pytest.mark.parametrize("filler", [0.0, -0.5, 7.0])
def test_a_log_of_arrivals(filler):
    """Each row holds what came with its observation: the reward of the step before it, and whether that step was the last."""
    truth = episodes(lengths=(4, 6, 3))
    rows = {name: [] for name in ("observations", "actions", "rewards", "terminals", "timeouts")}
    for episode in truth:
        count = len(episode["observations"])
        rows["observations"].append(episode["observations"])
        rows["actions"].append(np.concatenate((episode["actions"], np.zeros((1, 2), dtype=np.float32))))
        rows["rewards"].append(np.concatenate(([filler], episode["rewards"])).astype(np.float32))
        last = np.arange(count) == count - 1
        rows["terminals"].append(last & episode["ended"])
        rows["timeouts"].append(last & (not episode["ended"]))
    data = load_dataset({name: np.concatenate(parts) for name, parts in rows.items()}, reward_lag=1)
    expected = transitions(truth)
    for name in FIELDS:
        assert np.array_equal(getattr(data, name), expected[name]), name


def test_fixes_keep_cuts_that_nobody_marked():
    unmarked = {**WHOLE, "terminals": np.zeros_like(WHOLE["terminals"]), "timeouts": np.zeros_like(WHOLE["timeouts"])}
    for options in ({}, {"on_bad_rows": "drop"}, {"ends": "timeouts"}, {"action_scale": 2.0}, {"reward_lag": 1}):
        assert len(load_dataset(unmarked, **options).episode_spans[0]) == len(LOG), options


def test_returns_do_not_survive_a_fix_that_changes_them():
    values = {**WHOLE, "returns_to_go": WHOLE["rewards"]}
    assert load_dataset(values).returns_to_go is not None
    assert load_dataset(values, on_bad_rows="drop").returns_to_go is not None  # nothing was dropped
    values["actions"] = np.where(np.arange(len(WHOLE["rewards"]))[:, None] == 3, np.nan, WHOLE["actions"]).astype(np.float32)
    for options in ({}, {"ends": "timeouts"}, {"reward_lag": 1}):
        fixed = load_dataset(values, on_bad_rows="drop", **options)
        assert fixed.returns_to_go is None
        assert "`returns_to_go` belonged" in fixed.origin
    with pytest.raises(DatasetError, match="`returns_to_go` holds NaN"):
        load_dataset({**WHOLE, "returns_to_go": np.full(len(WHOLE["rewards"]), np.nan)})


def test_following_rows_are_taken_once():
    assert (
        load_dataset(rows_as_recorded()).fingerprint
        == load_dataset(rows_as_recorded(), next_observations="following").fingerprint
    )


def test_terminals_beside_dones():
    """`done` marks every end, `terminated` the true ones: the others are time limits."""
    dones = WHOLE["terminals"] | WHOLE["timeouts"]
    values = {name: WHOLE[name] for name in FIELDS if name != "timeouts"}
    data = load_dataset({**values, "dones": dones})
    assert np.array_equal(data.timeouts, WHOLE["timeouts"])
    assert np.array_equal(TransitionDataset.from_dict({**values, "dones": dones}).timeouts, WHOLE["timeouts"])


def test_d3rlpy_files_of_version_1_are_not_shifted(tmp_path):
    arrays = {
        "observations": np.arange(8, dtype=np.float32)[:, None],
        "actions": np.zeros((8, 1), dtype=np.float32),
        "rewards": np.arange(8, dtype=np.float32) * 10,
        "terminals": np.array([0, 0, 0, 1, 0, 0, 0, 0], dtype=np.float32),
        "episode_terminals": np.array([0, 0, 0, 1, 0, 0, 0, 1], dtype=np.float32),
        "version": "1.0",
    }
    data = load_dataset(write_hdf5(tmp_path / "d.h5", arrays))
    assert data.rewards.tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert np.flatnonzero(data.terminals).tolist() == [3]
    assert "layout of 1.x" in data.origin


@pytest.mark.parametrize(
    "options",
    [
        {"ends": "timeout"},
        {"on_bad_rows": "dropp"},
        {"next_observations": "folowing"},
        {"reward_lag": "1"},
        {"reward_lag": 1.5},
        {"action_scale": 0},
        {"max_bytes": "many"},
        {"action_low": [-1.0]},
    ],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(ConfigError):
        load_dataset({**WHOLE}, **options)


def test_bounds_of_a_file_with_another_width_are_refused():
    with pytest.raises(DatasetError, match="bounds of 2 actions"):
        load_dataset({**WHOLE, "action_low": np.array([-1.0]), "action_high": np.array([1.0])})


def test_one_bound_is_that_of_every_action(tmp_path):
    for low, high in ((-3, 3.5), ([-3.0], [3.5]), (-3, [3.5, 3.5])):
        data = load_dataset({**WHOLE}, action_low=low, action_high=high)
        assert data.spaces.action_low.tolist() == [-3.0, -3.0]
        assert data.spaces.action_high.tolist() == [3.5, 3.5]
    save_dataset(data, tmp_path / "store")
    mapped = load_dataset(tmp_path / "store", action_low=-2, action_high=[2.0, 2.5])
    assert mapped.spaces.action_low.tolist() == [-2.0, -2.0]
    assert mapped.spaces.action_high.tolist() == [2.0, 2.5]


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        ([-1, -1, -1], 1, "`action_low` (--action-low) has 3 numbers, and FILE has 2 actions: give 2, or one for all"),
        (
            [-1, -1, -1],
            [1, 1, 1, 1],
            "`action_low` (--action-low) has 3 numbers and `action_high` (--action-high) has 4 numbers, "
            "and FILE has 2 actions: give 2, or one for all",
        ),
        ([-1, 2], 1, "`action_low` (--action-low) is 2 for action 1, above 1, its `action_high` (--action-high)"),
        (-1, 1e39, "`action_high` (--action-high) must be finite numbers, got [inf, inf]"),
    ],
)
@pytest.mark.parametrize("stored", ["npz", "directory"])
def test_bounds_that_cannot_be_are_refused_by_their_own_name(low, high, words, stored, tmp_path):
    path = tmp_path / ("d.npz" if stored == "npz" else "store")
    save_dataset(load_dataset({**WHOLE}), path)
    with pytest.raises(ConfigError) as refused:
        load_dataset(path, action_low=low, action_high=high)
    assert str(refused.value) == words.replace("FILE", str(path))


def test_one_action_takes_one_bound():
    one = small([0, 1, 2, 3])
    with pytest.raises(ConfigError, match="has 2 numbers, and dataset has 1 action: give one$"):
        load_dataset(one, action_low=[-1, -1], action_high=[1])


def test_columns_are_for_tables(tmp_path):
    np.savez(tmp_path / "d.npz", **WHOLE)
    with pytest.raises(ConfigError, match="has no columns to name"):
        load_dataset(tmp_path / "d.npz", columns={"observations": "a", "actions": "b", "reward": "c"})


def small(observations, following=None, **more):
    """Rows with one observation, an action of 0 and rewards 1, 2, 3, ..."""
    column = np.array(observations, dtype=np.float32)[:, None]
    values = {"observations": column, "actions": np.zeros((len(column), 1), dtype=np.float32)}
    values["rewards"] = np.arange(1, len(column) + 1, dtype=np.float32)
    if following is not None:
        values["next_observations"] = np.array(following, dtype=np.float32)[:, None]
    return values | {name: np.array(value) for name, value in more.items()}


def shown(data):
    """Transitions as (observation, reward, next observation, end)."""
    ends = np.where(data.terminals, "T", np.where(data.timeouts, "c", "-"))
    return list(zip(data.observations[:, 0], data.rewards, data.next_observations[:, 0], ends, strict=True))


@pytest.mark.parametrize("marks", [{"timeouts": [0, 1, 0, 0, 0]}, {"dones": [0, 1, 0, 0, 1]}, {"terminals": [0, 1, 0, 0, 1]}])
def test_masks_beside_other_marks(marks):
    data = load_dataset(small([0, 1, 10, 11, 12], masks=[1, 1, 1, 1, 0], **marks))
    assert shown(data) == [(0, 1, 1, "c"), (10, 3, 11, "-"), (11, 4, 12, "-"), (12, 5, 12, "T")]


def test_following_rows_do_not_cross_a_break():
    values = small([0, 1, 10, 11], [1, 2, 11, 12], terminals=[0, 0, 0, 1])
    assert shown(load_dataset(values, next_observations="following")) == [(0, 1, 1, "c"), (10, 3, 11, "-"), (11, 4, 11, "T")]


def test_nan_is_no_bridge_between_episodes():
    values = small([0, 1, np.nan, 11], [1, 2, 11, 12], terminals=[0, 0, 0, 1])
    assert shown(load_dataset(values, reward_lag=1, on_bad_rows="drop")) == [(0, 2, 1, "c")]


def test_a_done_that_is_neither_terminal_nor_timeout_is_a_cut():
    values = small([0, 1, 10, 11], terminals=[0, 0, 0, 1], timeouts=[0, 0, 0, 0], dones=[0, 1, 0, 1])
    assert shown(load_dataset(values)) == [(0, 1, 1, "c"), (10, 3, 11, "-"), (11, 4, 11, "T")]


def test_the_successor_of_a_true_end_does_not_matter():
    values = small([0, 1, 2], [1, 2, np.nan], terminals=[0, 0, 1], timeouts=[0, 0, 0])
    with pytest.raises(DatasetError, match="`next_observations` is NaN"):
        load_dataset(values)
    assert shown(load_dataset(values, on_bad_rows="drop")) == [(0, 1, 1, "-"), (1, 2, 2, "-"), (2, 3, 2, "T")]


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_minari_with_integer_flags(kind, tmp_path):
    path = write_minari(tmp_path / "m", LOG)
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        for group in file.values():
            for name in ("terminations", "truncations"):
                flags = group[name][()].astype(kind)
                del group[name]
                group[name] = flags
    data = load_dataset(path, next_observations="following")
    assert np.array_equal(data.terminals, KNOWN["terminals"])
    assert np.array_equal(data.observations, KNOWN["observations"])


def test_breaks_are_judged_by_the_size_of_the_numbers():
    tiny = small([0, 1e-7, 5e-7, 6e-7], [1e-7, 2e-7, 6e-7, 7e-7], terminals=[0, 0, 0, 1])
    assert np.flatnonzero(load_dataset(tiny).timeouts).tolist() == [1]
    mixed = small([0, 0, 0], [200.2, 300.3, 400.4], terminals=[0, 0, 1])
    mixed["observations"] = np.array([[100.1], [200.2], [300.3]])
    assert not load_dataset(mixed).timeouts.any()


def test_observations_of_whole_numbers_and_truth_values():
    flags = small([0, 1, 0], [1, 0, 1], terminals=[0, 0, 1])
    flags |= {name: flags[name].astype(bool) for name in ("observations", "next_observations")}
    assert load_dataset(flags).observations.dtype == np.float32


def test_a_reading_says_that_rows_left_out_cut_episodes():
    """Rows 2 and 3 are one gap in the first episode, row 6 another, and the last rows of both episodes are missing."""
    rows = np.arange(20, dtype=np.float32)
    values = {"observations": rows[:, None].copy(), "actions": rows[:, None].copy(), "rewards": rows.copy()}
    values |= {"next_observations": rows[:, None] + 1, "terminals": np.zeros(20, bool), "timeouts": rows % 10 == 9}
    for row in (2, 3, 6, 9, 19):
        values["rewards"][row] = np.nan
    fixed = load_dataset(values, on_bad_rows="drop")
    assert "5 rows with NaN or inf are left out; 4 cuts of episodes by rows left out: each part counts as" in fixed.origin
    assert fixed.episode_spans[0].tolist() == [0, 2, 4, 6]
    values["rewards"][[2, 3, 6, 9, 19]] = 0.0
    values["rewards"][0] = np.nan
    assert "1 row with NaN or inf is left out" in load_dataset(values, on_bad_rows="drop").origin
    assert "cut" not in load_dataset(values, on_bad_rows="drop").origin
    values["rewards"][0] = 0.0
    assert "left out" not in load_dataset(values, on_bad_rows="drop").origin


def sparse(rewards, **changes):
    """Three episodes of five rows that pay on their last row alone, which is left out where they were cut."""
    return rows_as_recorded(rewards=np.where(np.arange(15) % 5 == 4, rewards, 0.0).astype(np.float32), **changes)


def test_rewards_of_rows_that_are_left_out_are_kept_beside_the_row_before():
    """By episode: cut and paid 4, truly ended and paid 9, cut and paid 14; in a reading, from arrays, and through copies."""
    values = sparse(np.arange(15))
    arrays = TransitionDataset.from_dict(values)
    for data in (load_dataset(values), arrays, filter_dataset(arrays, min_length=4), mix_datasets([arrays])):
        assert data.episode_returns().tolist() == [0, 9, 0]
        assert data.logged_returns().tolist() == [4, 9, 14]
        assert (data.statistics()["return_max"], data.statistics()["return_mean"]) == (14, 9)
    assert filter_dataset(arrays, top=1 / 3).observations[0, 0] == 100
    doubled = transform_dataset(arrays, reward_scale=2.0)
    assert doubled.logged_returns().tolist() == [8, 18, 28]
    nothing = load_dataset(sparse(0.0))
    assert mix_datasets([nothing, arrays]).logged_returns().tolist() == [0, 0, 0, 4, 9, 14]
    assert load_dataset(WHOLE).unseen_rewards is None
    assert nothing.unseen_rewards is None


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_no_number_counts_in_no_return(reward):
    rewards = np.arange(15.0)
    rewards[4] = reward  # on a row that is left out, so nobody learns from it
    assert load_dataset(sparse(rewards)).logged_returns().tolist() == [0, 9, 14]


def test_a_notable_share_of_rows_that_are_left_out_is_told_at_every_start(tmp_path):
    told = "2 last rows of cut episodes are left out"
    assert load_dataset(rows_as_recorded()).origin_in_short.endswith(f"{told} (13% of all)")
    long = {name: np.concatenate([np.repeat(values[:1], 200, axis=0), values]) for name, values in rows_as_recorded().items()}
    data = load_dataset(long)
    assert told in data.origin
    assert told not in data.origin_in_short
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", **rows_as_recorded())
    assert load_dataset(tmp_path).origin_in_short.endswith("4 last rows of cut episodes are left out (13% of all)")
    assert load_dataset(tmp_path).logged_returns().sum() == 2 * np.arange(15).sum()
