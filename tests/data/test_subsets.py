"""Mix, split, filter, transform: whole episodes, optional fields carried or computed anew, always the same result."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.data import (
    TransitionDataset,
    compute_returns_to_go,
    filter_dataset,
    load_dataset,
    mix_datasets,
    save_dataset,
    split_dataset,
    transform_dataset,
)
from rl_training.data.subsets import ranked_by_length
from rl_training.errors import ConfigError, DatasetError
from rl_training.runtime.offline_data import build_offline_dataset
from tests.helpers import call_cli, make_config, run_values, small_arrays


def dataset(rows=200, length=20, seed=0, **optional):
    arrays = small_arrays(rows=rows, length=length, seed=seed)
    optional = optional or {"next_actions": arrays["actions"] * 0.5, "returns_to_go": arrays["rewards"] + 1}
    return TransitionDataset.from_dict({**arrays, **optional}, action_low=[-2, -4], action_high=[2, 4])


def rows_of(data):
    """Rows as comparable tuples, optional fields included."""
    return {
        (*o, *a, float(r), *n, float(g))
        for o, a, r, n, g in zip(
            data.observations.tolist(),
            data.actions.tolist(),
            data.rewards,
            data.next_actions.tolist(),
            data.returns_to_go,
            strict=True,
        )
    }


@settings(max_examples=50, deadline=None)
@given(fraction=st.floats(0.05, 0.95), seed=st.integers(0, 1000), length=st.integers(2, 30))
def test_a_split_is_a_partition_of_episodes(fraction, seed, length):
    data = dataset(length=length)
    rest, held = split_dataset(data, fraction, seed=seed)
    assert len(rest) + len(held) == len(data)
    assert rows_of(rest) | rows_of(held) == rows_of(data)
    assert not rows_of(rest) & rows_of(held)
    count = len(data.episode_spans[0])
    assert len(held.episode_spans[0]) == min(max(1, round(fraction * count)), count - 1)
    assert sum(part.terminals.sum() for part in (rest, held)) == data.terminals.sum()
    again = split_dataset(data, fraction, seed=seed)
    assert [part.fingerprint for part in again] == [rest.fingerprint, held.fingerprint]
    assert rest.spaces.action_high.tolist() == [2, 4]


def test_splits_differ_by_seed():
    data = dataset()
    assert split_dataset(data, 0.5, seed=0)[0].fingerprint != split_dataset(data, 0.5, seed=1)[0].fingerprint


def test_filters():
    data = dataset()
    returns = data.episode_returns()
    best = filter_dataset(data, top=0.2)
    assert len(best.episode_spans[0]) == 2
    assert sorted(best.episode_returns()) == pytest.approx(sorted(returns)[-2:])
    middle = float(np.median(returns))
    kept = filter_dataset(data, min_return=middle)
    assert (kept.episode_returns() >= middle).all()
    assert len(kept.episode_spans[0]) == (returns >= middle).sum()
    assert (filter_dataset(data, max_return=middle).episode_returns() <= middle).all()
    assert filter_dataset(data, min_length=20).fingerprint == filter_dataset(data, top=1.0).fingerprint
    assert rows_of(best) <= rows_of(data)
    for wrong in ({"top": 0.0}, {"top": 1.5}):
        with pytest.raises(ConfigError, match="top"):
            filter_dataset(data, **wrong)
    with pytest.raises(DatasetError, match="no episode passes"):
        filter_dataset(data, min_return=1e9)


def test_equal_episodes_are_kept_once():
    data = dataset()
    doubled = mix_datasets([data, data])
    assert len(filter_dataset(doubled, unique=True)) == len(data)
    assert len(filter_dataset(data, unique=True)) == len(data)


def test_optional_fields_survive_a_chain(tmp_path):
    """Mixed, split, filtered, stored and read again: rows keep their own next actions and returns."""
    first, second = dataset(seed=1), dataset(seed=2)
    mixed = mix_datasets([first, second], [1, 1])
    assert rows_of(mixed) <= rows_of(first) | rows_of(second)
    part = filter_dataset(split_dataset(mixed, 0.3)[0], top=0.5)
    save_dataset(part, tmp_path / "d")
    assert rows_of(load_dataset(tmp_path / "d")) == rows_of(part) <= rows_of(mixed)


def test_transforms_go_through_every_sibling():
    data = dataset()
    with pytest.raises(ConfigError, match="pass gamma"):
        transform_dataset(data, reward_scale=2.0)
    changed = transform_dataset(
        data, reward_scale=2.0, reward_shift=-1.0, reward_clip=(-2, 2), normalize_actions=True, gamma=0.9
    )
    assert np.allclose(changed.rewards, np.clip(data.rewards * 2 - 1, -2, 2))
    assert np.allclose(changed.actions, data.actions / [2, 4])
    assert np.allclose(changed.next_actions, data.next_actions / [2, 4])
    assert changed.spaces.action_high.tolist() == [1, 1]
    expected = compute_returns_to_go(changed.rewards, changed.terminals, changed.timeouts, 0.9)
    assert np.array_equal(changed.returns_to_go, expected)
    again = transform_dataset(
        data, reward_scale=2.0, reward_shift=-1.0, reward_clip=(-2, 2), normalize_actions=True, gamma=0.9
    )
    assert again.fingerprint == changed.fingerprint
    untouched = transform_dataset(data)
    assert np.array_equal(untouched.returns_to_go, data.returns_to_go)


def test_next_actions():
    arrays = small_arrays(rows=40, length=10)
    data = TransitionDataset.from_dict(arrays)
    changed = transform_dataset(data, next_actions=True)
    ends = data.episode_ends
    assert np.array_equal(changed.next_actions[:-1][~ends[:-1]], data.actions[1:][~ends[:-1]])
    assert np.array_equal(changed.next_actions[ends], data.actions[ends])
    assert "next_actions True" in changed.origin


def test_from_the_shell(tmp_path, capsys):
    for seed in (1, 2):
        save_dataset(dataset(seed=seed), tmp_path / f"{seed}")
    call_cli(capsys, "data", "mix", tmp_path / "1", tmp_path / "2", tmp_path / "mix", "--weights", "1,3")
    call_cli(capsys, "data", "split", tmp_path / "mix", tmp_path / "a", tmp_path / "b", "--fraction", "0.25")
    call_cli(capsys, "data", "filter", tmp_path / "a", tmp_path / "best", "--top", "50%")
    done = call_cli(
        capsys, "data", "transform", tmp_path / "best", tmp_path / "t.npz", "--reward-scale", "0.1", "--gamma", "0.9"
    )
    final = load_dataset(tmp_path / "t.npz")
    assert final.returns_to_go is not None
    assert f"{len(final):,} transitions" in done.stdout
    shown = json.loads(call_cli(capsys, "data", "inspect", tmp_path / "t.npz", "--json").stdout)
    assert shown["rows"] == len(final)
    assert shown["optional_fields"] == ["next_actions", "returns_to_go"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("filter", "1", "x"), 2, "pass a condition"),
        (("filter", "1", "x", "--top", "ten"), 2, "must be a share, such as 10%"),
        (("filter", "1", "--top", "10%"), 2, "pass the output once"),
        (("mix", "1", "2", "x", "--weights", "1"), 2, "2 weights are needed"),
        (("mix", "1", "x"), 2, "two sources"),
        (("split", "1", "x", "y", "--fraction", "1.5"), 2, "fraction"),
        (("transform", "1", "x", "--reward-clip", "3,1"), 2, "lowest and highest"),
        (("transform", "1", "x", "--reward-scale", "2"), 2, "pass gamma"),
        (("transform", "1", "x", "--gamma", "0.9", "--tail", "long"), 2, "tail"),
        (("convert", "1"), 2, "a source"),
        (("convert", "missing", "x"), 3, "no such file"),
        (("inspect", "1", "--columns", "nowhere.yaml"), 2, "--columns"),
        (("inspect", "1", "--action-low", "a"), 2, "must be numbers"),
        (("inspect", "1", "--max-bytes", "lots"), 2, "`max_bytes` = 'lots' is not legal: must be a number of bytes"),
        (("doctor", "1", "--env", "Pendulm-v1"), 2, "Did you mean `Pendulum-v1`"),
        (("doctor", "1", "--format", "zarr"), 2, "format"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(arguments, code, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        save_dataset(dataset(seed=seed), tmp_path / f"{seed}")
    assert message in call_cli(capsys, "data", *arguments, code=code).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_inspect_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_dataset(dataset(), tmp_path / "log<b>")
    done = call_cli(capsys, "data", "inspect", "log<b>", "--html", "page.html")
    assert "200 transitions in 10 episodes" in done.stdout
    assert f"page: {tmp_path / 'page.html'}" in done.stdout
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<b>log" not in page  # names are text, not markup
    assert "log&lt;b&gt;" in page
    assert page.count("<svg") == 5 + 2 + 3 + (3 + 2 + 1)  # and every column and the reward over time
    assert "<script" not in page
    assert "http" not in page


def test_inspect_writes_nothing_unless_it_is_asked_to(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_dataset(dataset(), tmp_path / "log")
    assert "200 transitions" in call_cli(capsys, "data", "inspect", "log").stdout
    assert json.loads(call_cli(capsys, "data", "inspect", "log", "--json").stdout)["html"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_episodes_that_end_in_another_way_are_not_equal():
    arrays = small_arrays(rows=20, length=10)
    for name in ("observations", "actions", "rewards", "next_observations"):
        arrays[name][10:] = arrays[name][:10]
    data = TransitionDataset.from_dict(arrays)  # one ends truly, the other is cut
    assert len(filter_dataset(data, unique=True)) == 20


def test_ends_are_found_once(tmp_path):
    """What is known to be one episode stays one, whatever its observations look like."""
    from rl_training.data.row_view import RowView

    arrays = small_arrays(rows=30, length=10)
    arrays["next_observations"][3] += 1.0  # a break inside an episode that ends truly
    first = RowView(TransitionDataset.from_dict(arrays), [0]).copy()
    assert mix_datasets([first]).episode_spans[1].tolist() == [10]
    save_dataset(first, tmp_path / "d")
    assert load_dataset(tmp_path / "d", action_scale=2.0).episode_spans[1].tolist() == [10]


def of_lengths(lengths, cost=-1.0, truly=False):
    """Episodes of these lengths, a cost in every row; every end is true, or a cut."""
    rows = int(sum(lengths))
    ends = np.zeros(rows, dtype=bool)
    ends[np.cumsum(lengths) - 1] = True
    values = np.arange(rows, dtype=np.float32)[:, None]
    return TransitionDataset.from_dict(
        {
            **{"observations": values, "next_observations": values + 1, "actions": np.cos(values)},
            "rewards": cost * (1.0 + 0.1 * np.sin(values[:, 0])),
            **{"terminals": ends & truly, "timeouts": ends & (not truly)},
        }
    )


FRAGMENTS = [3, 150, 20, 90, 300, 7, 60]


def test_returns_of_fragments_go_by_their_lengths(tmp_path, capsys):
    assert "mostly the shortest: 7 of 7 episodes were cut" in ranked_by_length(of_lengths(FRAGMENTS))
    assert "mostly the longest" in ranked_by_length(of_lengths(FRAGMENTS, cost=1.0))
    save_dataset(of_lengths(FRAGMENTS), tmp_path / "parts")
    filtered = call_cli(capsys, "data", "filter", tmp_path / "parts", tmp_path / "best", "--top", "20%")
    assert "mostly the shortest" in filtered.stderr
    assert "per step -1." in call_cli(capsys, "data", "inspect", tmp_path / "parts").stdout


def test_returns_of_whole_episodes_are_what_they_are():
    assert ranked_by_length(of_lengths(FRAGMENTS, truly=True)) == ""
    assert ranked_by_length(of_lengths([50] * 8)) == ""
    assert ranked_by_length(of_lengths(FRAGMENTS[:4])) == ""
    assert ranked_by_length(of_lengths(FRAGMENTS, cost=0.0)) == ""


def test_a_run_on_the_best_fragments_says_so(tmp_path):
    save_dataset(of_lengths(FRAGMENTS), tmp_path / "parts")
    known = {"dataset": {"path": str(tmp_path / "parts"), "top": "30%"}}
    found = build_offline_dataset(make_config(run_values("bc", algo_kwargs=known)))
    assert "mostly the shortest" in found.origin
    assert len(found) == 10
