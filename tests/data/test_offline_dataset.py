import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.data import TransitionDataset, mix_datasets
from rl_training.errors import ConfigError, DatasetError
from tests.helpers import small_arrays, small_dataset


def test_sampling_is_deterministic_and_keeps_shape_and_dtype():
    for dtype in (np.float32, np.float64):
        arrays = small_arrays()
        arrays["actions"] = arrays["actions"].astype(dtype)
        data = TransitionDataset.from_dict(arrays)
        batch = data.sample(16, seed=4, step=9)
        assert batch.actions.shape == (16, 2)
        assert batch.actions.dtype == torch.from_numpy(arrays["actions"]).dtype
        assert torch.equal(batch.actions, data.sample(16, seed=4, step=9).actions)
        assert not torch.equal(batch.actions, data.sample(16, seed=4, step=10).actions)
        population = data.sample(16, seed=[1, 4], step=9)
        assert population.observations.shape == (2, 16, 3)
        assert torch.equal(population.actions[1], batch.actions)


def test_rows_stay_together_and_timeouts_still_bootstrap():
    arrays = small_arrays()
    data = TransitionDataset.from_dict(arrays)
    batch = data.sample(200, seed=1)
    for row in range(200):
        at = int(np.flatnonzero((arrays["observations"] == batch.observations[row].numpy()).all(axis=1))[0])
        assert batch.rewards[row] == arrays["rewards"][at]
        assert np.array_equal(batch.next_observations[row], arrays["next_observations"][at])
        assert batch.terminals[row] == float(arrays["terminals"][at])
    assert arrays["timeouts"].any()


def test_without_optional_fields_batches_have_none(dataset):
    batch = dataset.sample(4)
    assert batch.next_actions is None
    assert batch.returns_to_go is None


def test_optional_fields_survive_sampling_and_mixing():
    arrays = small_arrays()
    arrays["next_actions"] = arrays["actions"] * 0.5
    arrays["returns_to_go"] = arrays["rewards"] * 2
    data = TransitionDataset.from_dict(arrays)
    for source in (data, mix_datasets([data, data])):
        batch = source.sample(32)
        assert torch.equal(batch.next_actions, batch.actions * 0.5)
        assert torch.equal(batch.returns_to_go, batch.rewards * 2)
    assert mix_datasets([data, small_dataset()]).next_actions is None


def test_dones_alone_are_terminals_with_one_warning():
    arrays = small_arrays()
    dones = arrays.pop("terminals") | arrays["timeouts"]
    with_timeouts = TransitionDataset.from_dict({**arrays, "dones": dones})
    assert np.array_equal(with_timeouts.terminals, dones & ~arrays["timeouts"])
    arrays.pop("timeouts")
    with pytest.warns(UserWarning, match="every done is taken as a true end") as caught:
        alone = TransitionDataset.from_dict({**arrays, "dones": dones})
    assert len(caught) == 1
    assert np.array_equal(alone.terminals, dones)


def test_missing_timeouts_are_found_at_breaks():
    arrays = small_arrays()
    expected = arrays.pop("timeouts")
    assert np.array_equal(TransitionDataset.from_dict(arrays).timeouts, expected)


def test_terminal_wins_over_timeout():
    arrays = small_arrays()
    arrays["timeouts"] = arrays["timeouts"] | arrays["terminals"]
    data = TransitionDataset.from_dict(arrays)
    assert not (data.terminals & data.timeouts).any()
    assert data.terminals.sum() == arrays["terminals"].sum()


def test_episodes_and_statistics(dataset):
    episodes = list(dataset.episodes())
    assert [episode.length for episode in episodes] == [10] * 6
    assert [episode.ended for episode in episodes] == [True, False] * 3
    assert episodes[1].total_reward == pytest.approx(dataset.rewards[10:20].sum(), rel=1e-5)
    statistics = dataset.statistics()
    assert statistics["rows"] == 60
    assert statistics["episodes"] == 6
    assert statistics["true_ends"] == 3


def test_fingerprint_sees_every_change(dataset):
    assert dataset.fingerprint == small_dataset().fingerprint
    arrays = small_arrays()
    arrays["rewards"][7] = np.nextafter(arrays["rewards"][7], np.float32(9))
    assert TransitionDataset.from_dict(arrays).fingerprint != dataset.fingerprint
    assert (
        TransitionDataset.from_dict(small_arrays(), action_low=[-2, -2], action_high=[2, 2]).fingerprint
        != dataset.fingerprint
    )


def test_spaces_come_from_the_record_or_the_data(dataset):
    assert dataset.spaces.action_high.tolist() == dataset.actions.max(axis=0).tolist()
    assert dataset.spaces.action_low.tolist() == dataset.actions.min(axis=0).tolist()
    recorded = TransitionDataset.from_dict(small_arrays(), action_low=[-2, -2], action_high=[2, 3])
    assert recorded.spaces.action_high.tolist() == [2.0, 3.0]
    arrays = small_arrays()
    arrays["actions"] = arrays["actions"] * 4
    assert TransitionDataset.from_dict(arrays).spaces.action_high.max() > 3.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("scale", "shift"), [(50.0, 50.0), (0.014, 0.0), (1.65, 1.65), (1e-6, 0.1), (1e4, -3e5)])
def test_bounds_are_the_recorded_range_and_no_command_leaves_it(dtype, scale, shift):
    arrays = small_arrays()
    arrays["actions"] = (arrays["actions"].astype(dtype) * scale + shift).astype(dtype)
    spaces = TransitionDataset.from_dict(arrays).spaces
    low, high = arrays["actions"].min(axis=0), arrays["actions"].max(axis=0)
    np.testing.assert_allclose(spaces.action_low, low, rtol=1e-6)
    np.testing.assert_allclose(spaces.action_high, high, rtol=1e-6)
    commands = spaces.denormalize_actions(np.array([[-1.0, 1.0], [1.0, -1.0], [5.0, -5.0]], dtype=np.float32))
    assert (commands >= low).all()
    assert (commands <= high).all()
    back = spaces.denormalize_actions(spaces.normalize_actions(arrays["actions"]))
    np.testing.assert_allclose(back, arrays["actions"], atol=1e-5 * scale + 1e-6 * abs(shift))


def test_an_action_that_never_changes_is_held_and_hidden_from_the_learner():
    arrays = small_arrays()
    arrays["actions"][:, 0] = 0.3
    spaces = TransitionDataset.from_dict(arrays).spaces
    assert (spaces.action_dim, spaces.learned_dim, spaces.free.tolist()) == (2, 1, [False, True])
    assert spaces.normalize_actions(arrays["actions"]).shape == (60, 1)
    commands = spaces.denormalize_actions(np.array([[-1.0], [0.2], [1.0]], dtype=np.float32))
    assert commands[:, 0].tolist() == [np.float32(0.3)] * 3
    assert commands[:, 1].min() == arrays["actions"][:, 1].min()


def test_names_belong_to_columns():
    names = {"observation_names": ["a", "b", "c"], "action_names": ["u", "v"]}
    data = TransitionDataset.from_dict(small_arrays(), **names)
    assert (data.spaces.observation_names, data.spaces.action_names) == (("a", "b", "c"), ("u", "v"))
    with pytest.raises(DatasetError, match="`actions` has 2 columns: as many different names"):
        TransitionDataset.from_dict(small_arrays(), action_names=["u"])


@pytest.mark.parametrize("field", ["observations", "actions", "rewards", "next_observations"])
@pytest.mark.parametrize("row", [0, 30, 59])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_named(field, row, value):
    arrays = small_arrays()
    arrays[field][row] = value
    with pytest.raises(DatasetError, match=rf"`{field}` is NaN or inf in 1 rows \(first: {row}\)"):
        TransitionDataset.from_dict(arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": None}, "`rewards` is missing"),
        ({"observation": np.zeros(3)}, "unknown field `observation`. Did you mean `observations`"),
        ({"rewards": np.zeros(59)}, "must share one length"),
        ({"actions": np.zeros(60, dtype=np.float32)}, r"`actions` has shape \(60,\)"),
        ({"actions": np.zeros((60, 2), dtype=int)}, "continuous float actions"),
        ({"rewards": np.array(["a"] * 60)}, "numbers are needed"),
        ({"rewards": np.array([object()] * 60)}, "numbers are needed"),
        ({"terminals": np.full(60, 0.5)}, "other than 0 and 1"),
        ({"next_observations": np.zeros((60, 4), dtype=np.float32)}, "differ in shape"),
    ],
)
def test_malformed_data_is_refused(change, message):
    arrays = {**small_arrays(), **change}
    with pytest.raises(DatasetError, match=message):
        TransitionDataset.from_dict({name: value for name, value in arrays.items() if value is not None})


def test_all_faults_come_at_once():
    arrays = small_arrays()
    arrays["observations"][3] = np.nan
    arrays["rewards"][5] = np.inf
    with pytest.raises(DatasetError, match=r"`observations` is NaN.*`rewards` is NaN"):
        TransitionDataset.from_dict(arrays)


def test_empty_data_is_refused():
    empty = {name: value[:0] for name, value in small_arrays().items()}
    with pytest.raises(DatasetError, match="no rows"):
        TransitionDataset.from_dict(empty)


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    other=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    weights=st.none() | st.tuples(st.floats(0.1, 1), st.floats(0.1, 1)),
)
def test_mixing_keeps_whole_episodes_and_joins_are_boundaries(lengths, other, weights):
    def build(sizes, mark):
        rows = sum(sizes)
        ends = np.zeros(rows, dtype=bool)
        ends[np.cumsum(sizes) - 1] = True
        values = np.full((rows, 2), mark, dtype=np.float32)
        number = np.repeat(np.arange(len(sizes)), sizes).astype(np.float32)
        return TransitionDataset.from_dict(
            {
                "observations": values,
                "actions": values * 0.1,
                "rewards": number,
                "next_observations": values,
                "terminals": np.zeros(rows, dtype=bool),
                "timeouts": ends,
            }
        )

    first, second = build(lengths, 1.0), build(other, 2.0)
    mixed = mix_datasets([first, second], weights)
    found = {1.0: [], 2.0: []}
    for episode in mixed.episodes():
        marks = set(mixed.observations[episode.rows, 0].tolist())
        numbers = set(mixed.rewards[episode.rows].tolist())
        assert len(marks) == len(numbers) == 1
        found[marks.pop()].append((int(numbers.pop()), episode.length))
    for mark, sizes in ((1.0, lengths), (2.0, other)):
        assert all(sizes[number] == length for number, length in found[mark])
        assert len({number for number, _ in found[mark]}) == len(found[mark])
        if weights is None:
            assert len(found[mark]) == len(sizes)


def test_mixing_by_weight_gives_the_asked_share():
    first, second = small_dataset(rows=2000, seed=1), small_dataset(rows=1000, seed=2)
    mixed = mix_datasets([first, second], [0.5, 0.5])
    assert len(mixed) == pytest.approx(2000, abs=20)
    assert mix_datasets([first, second], [0.5, 0.5]).fingerprint == mixed.fingerprint
    with pytest.raises(ConfigError, match="weights must be 2 numbers"):
        mix_datasets([first, second], [0.0, 0.0])
    with pytest.raises(DatasetError, match="differ in shape"):
        mix_datasets([first, small_dataset(observation_dim=4)])


def test_a_field_that_is_none_is_absent():
    arrays = small_arrays()
    whole = TransitionDataset.from_dict(arrays)
    absent = {"dones": None, "next_actions": None, "returns_to_go": None}
    assert TransitionDataset.from_dict({**arrays, **absent}).fingerprint == whole.fingerprint


def test_a_sensor_that_is_read_again_for_every_row_cuts_no_episode():
    arrays = small_arrays(rows=200, length=20, observation_dim=4)
    arrays["timeouts"][:] = arrays["terminals"][:] = False
    inside = ~np.isin(np.arange(200), np.arange(19, 200, 20))
    arrays["next_observations"][:-1][inside[:-1]] = arrays["observations"][1:][inside[:-1]]
    assert len(TransitionDataset.from_dict(arrays).episode_spans[0]) == 10
    arrays["next_observations"][:, 2] += 0.01
    assert len(TransitionDataset.from_dict(arrays).episode_spans[0]) == 10
    arrays["next_observations"] += 0.01  # nothing continues: every row stands alone
    assert len(TransitionDataset.from_dict(arrays).episode_spans[0]) == 200
