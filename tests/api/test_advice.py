"""What `ope` tells a user to do about a verdict."""

from types import SimpleNamespace

import pytest

from rl_training.api.advice import advice
from rl_training.config.algorithms.bc import BCKnobs
from rl_training.config.algorithms.iql import IQLKnobs


def found(verdict="doubt", beyond=0.02, fqe="trust", model="trust"):
    estimates = {"fqe": SimpleNamespace(verdict=fqe), "model": SimpleNamespace(verdict=model)}
    return SimpleNamespace(
        joint=SimpleNamespace(verdict=verdict), support=SimpleNamespace(beyond=beyond), estimates=estimates
    )


@pytest.mark.parametrize(
    ("policy", "episodes", "gamma", "words"),
    [
        (found("trust", 0.5, "doubt"), 3, 0.99, []),
        (found(beyond=0.3), 50, 0.99, ["train nearer to the data (lower algo_kwargs.beta or expectile; or `bc`)"]),
        (found(), 15, 0.99, ["judge by more episodes: of 15"]),
        (found(fqe="doubt"), 50, 0.99, ["judge a shorter horizon", "--gamma 0.95"]),
        (found("cannot tell", fqe="doubt"), 50, 0.9, ["judge by more episodes like those"]),
        (found("cannot tell", model="cannot tell"), 50, 0.99, ["judge by more episodes like those"]),
        (found("cannot tell", 0.3, "doubt", "doubt"), 15, 0.99, ["nearer to the data", "of 15", "--gamma 0.95"]),
    ],
)
def test_every_verdict_but_trust_has_an_advice(policy, episodes, gamma, words):
    told = advice(policy, episodes, gamma, IQLKnobs())
    assert bool(told) == bool(words)
    assert "\n" not in told
    assert [word for word in words if word not in told] == []


def test_parts_are_not_called_episodes():
    told = advice(found(), 3, 0.99, IQLKnobs(), parts=True)
    assert told == "judge by more episodes: parts of 3 are no 30 episodes, 30 whole ones or more are better"


def test_a_clone_is_not_told_to_clone():
    told = advice(found(beyond=0.3), 50, 0.99, BCKnobs())
    assert "train nearer to the data" in told
    assert "`bc`" not in told
