"""The behaviour every algorithm shares, once over the registry."""

from functools import partial

import pytest
import torch

from rl_training import registry
from rl_training.errors import CheckpointError, ConfigError
from tests import contract
from tests.helpers import assert_same_run, die_at_each, is_online, metric_rows, small_batch, tiny_run

CHECKS = [
    contract.check_metrics,
    contract.check_due_groups_move,
    contract.check_updates_repeat,
    contract.check_state_round_trip,
    contract.check_members_do_not_mix,
    contract.check_bad_knobs,
    contract.check_acting,
]


@pytest.mark.parametrize("algo", registry.names())
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_learner(algo, check):
    check(algo)


@pytest.mark.parametrize("algo", registry.names())
def test_a_run_repeats_bit_for_bit(algo, tmp_path):
    tiny_run(tmp_path / "a", algo)
    tiny_run(tmp_path / "b", algo)
    assert_same_run(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("algo", [algo for algo in registry.names() if not is_online(algo)])
def test_cut_at_five_places_and_resumed(algo, tmp_path):
    """Offline ones, as a population; online ones are cut in test_online, in mid-episode and with replay."""
    tiny_run(tmp_path / "whole", algo, seeds=[0, 7])
    places = (("checkpoint", 30), ("log", 50), ("evaluation", 80), ("checkpoint", 90), ("log", 110))
    die_at_each(partial(tiny_run, tmp_path / "cut", algo, seeds=[0, 7]), places)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("algo", registry.names())
def test_population_follows_its_solo_runs(algo, tmp_path):
    """Same batches and same first weights, so the losses agree for a hundred steps."""
    changes = {"total_timesteps": 100, "env_id": "Pendulum-v1", "eval_interval": 1000}
    tiny_run(tmp_path / "all", algo, seeds=[3, 8], **changes)
    for member, seed in enumerate((3, 8)):
        tiny_run(tmp_path / str(seed), algo, seed=seed, **changes)
        mine = [row for row in metric_rows(tmp_path / "all") if row["member"] == member and "train/actor_loss" in row]
        solo = [row for row in metric_rows(tmp_path / str(seed)) if "train/actor_loss" in row]
        assert len(mine) == len(solo) >= 10
        for left, right in zip(mine, solo, strict=True):
            for name in left:
                if name.startswith("train/"):
                    assert left[name] == pytest.approx(right[name], rel=1e-4, abs=1e-5), (left["step"], name)


@pytest.mark.parametrize("algo", registry.names())
def test_states_of_another_shape_are_refused_by_name(algo):
    state = contract.make_learner(algo).state_dict()
    with pytest.raises(CheckpointError, match=r"tensor `actor/0/weight` is torch.float32 \(1, 3, 16\) in the checkpoint"):
        contract.make_learner(algo, observation_dim=4).load_state_dict({**state})
    missing = {name: value for name, value in state.items() if name != "actor/0/weight"}
    with pytest.raises(CheckpointError, match="`actor/0/weight` is missing"):
        contract.make_learner(algo).load_state_dict(missing)
    with pytest.raises(CheckpointError, match="`extra` of the checkpoint is not part"):
        contract.make_learner(algo).load_state_dict({**state, "extra": torch.zeros(1)})


@pytest.mark.parametrize("algo", registry.names())
def test_population_needs_a_members_axis(algo):
    learner = contract.make_learner(algo, seeds=(0, 1))
    with pytest.raises(ConfigError, match=r"shape \(1, 8\); \(2, batch\) is needed for 2 members"):
        learner.update(small_batch(members=1))
