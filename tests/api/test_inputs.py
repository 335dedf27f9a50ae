"""Observations and actions by position and by name."""

from types import SimpleNamespace

import numpy as np
import pytest

from rl_training import IQL, TransitionDataset
from rl_training.api.inputs import rows_of
from rl_training.errors import ConfigError
from tests.helpers import small_arrays

NAMES = ("T1", "T2", "TSP1")


def rows(given, names=NAMES):
    return rows_of(given, "observation", 3, names).tolist()


def test_names_come_in_any_order():
    assert rows({"TSP1": 50, "T1": 60.5, "T2": np.float32(2.0)}) == [60.5, 2.0, 50.0]
    assert rows([{"TSP1": 3, "T1": 1, "T2": 2}, {"T1": 4, "T2": 5, "TSP1": 6}]) == [[1, 2, 3], [4, 5, 6]]
    assert rows({"T1": [1, 4], "T2": np.array([2.0, 5.0]), "TSP1": (3, 6)}) == [[1, 2, 3], [4, 5, 6]]
    assert rows({"T1": [1, 4], "T2": [2, 5], "TSP1": 3}) == [[1, 2, 3], [4, 5, 3]]  # one set-point for all rows


def test_positions_still_work():
    assert rows([1, 2, 3]) == rows(np.array([1.0, 2.0, 3.0])) == rows((1, 2, 3), names=None) == [1, 2, 3]
    assert rows([[1, 2, 3]]) == [[1, 2, 3]]


def test_tables_and_their_rows():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"time": [0, 1], "TSP1": [3, 6], "T1": [1, 4], "T2": [2, 5]})
    assert rows(frame) == [[1, 2, 3], [4, 5, 6]]
    assert rows(frame.iloc[1]) == [4, 5, 6]
    assert rows(pandas.DataFrame([[1, 2, 3]])) == [[1, 2, 3]]  # without names it is an array
    assert rows(pandas.DataFrame([[1, 2, 3]]), names=None) == [[1, 2, 3]]
    with pytest.raises(ConfigError, match="observation `T1` is missing. Did you mean `T_1`"):
        rows(frame.rename(columns={"T1": "T_1"}))


def test_anything_with_columns():
    class Table(SimpleNamespace):
        def __getitem__(self, name):
            return self.values[name]

    assert rows(Table(columns=["T2", "T1", "TSP1"], values={"T1": [1], "T2": [2], "TSP1": [3]})) == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"T1": 1, "TSP": 2, "T2": 3}, "unknown observation 'TSP'. Did you mean `TSP1`? There are T1, T2, TSP1"),
        ({"T1": 1, "T2": 3}, "observation `TSP1` is missing. Needed are T1, T2, TSP1"),
        ({"T1": 1, "T2": 3, "TSP1": 3, "Q1": 3}, "unknown observation 'Q1'."),
        ({}, "observation `T1` is missing"),
        ([{"T1": 1, "T2": 3, "TSP1": 3}, {"T1": 1, "T2": 3}], "observation `TSP1` is missing"),
        ([{"T1": [1, 2], "T2": 3, "TSP1": 3}], "a list of mappings has one observation each"),
        ({"T1": [1, 2], "T2": [1, 2, 3], "TSP1": 3}, "the observations differ in length: `T1` 2, `T2` 3"),
        ({"T1": "hot", "T2": 1, "TSP1": 3}, "observation `T1` = 'hot' is not a number"),
        ({"T1": None, "T2": 1, "TSP1": 3}, "observation `T1` = None is not a number"),
        ({"T1": True, "T2": 1, "TSP1": 3}, "observation `T1` = True is not a number"),
        ({"T1": [[1]], "T2": 1, "TSP1": 3}, "observation `T1` = [[1]] is not a number"),
        ({"T1": [[1], 2], "T2": 1, "TSP1": 3}, "is not a number"),
        ({"T1": np.nan, "T2": 1, "TSP1": 3}, "observations hold NaN or inf"),
        ({"T1": [], "T2": [], "TSP1": []}, "observations have shape (0, 3)"),
        ([1, 2], "observations have shape (2,); (3,) or (batch, 3) is needed"),
        ("warm", "observations are not an array of numbers"),
        ([{"T1": 1, "T2": 3, "TSP1": 3}, [1, 2, 3]], "observations are not an array of numbers"),
    ],
    ids=str,
)
def test_faults_are_one_line(given, words):
    with pytest.raises(ConfigError) as caught:
        rows(given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_that_the_policy_does_not_have():
    with pytest.raises(ConfigError, match="trained without names of its observations; pass numbers in the recorded order"):
        rows({"T1": 1, "T2": 2, "TSP1": 3}, names=None)


def test_many_names_are_not_all_listed():
    names = tuple(f"x{number}" for number in range(60))
    with pytest.raises(ConfigError, match="`x0` is missing. Needed are x0, .*x11, and 48 more$"):
        rows_of({}, "observation", 60, names)


def test_a_reading_that_never_changed_in_the_data_is_told_when_it_does():
    arrays = small_arrays(rows=200, length=50)
    arrays["observations"][:, 1] = arrays["next_observations"][:, 1] = 850.0
    data = TransitionDataset.from_dict(arrays, action_low=[-1, -1], action_high=[1, 1])
    model = IQL(dataset=data, hidden_sizes=[8, 8], eval_interval=5, checkpoint_interval=5).learn(5)
    usual = arrays["observations"][0]
    assert model.policy.unfamiliar(usual) == {}
    changed = usual.copy()
    changed[1] = 900.0
    (line,) = model.policy.unfamiliar(changed).values()
    assert line == "`observation 1` = 900, and was 850 in all of the data: the policy does not react to it"
