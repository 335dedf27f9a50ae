"""The behaviour every algorithm shares, once over the registry."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_training import registry
from rl_training.api.policy import Policy
from rl_training.config.shared_knobs import CriticKnobs
from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime import evaluate_policy
from tests import contract
from tests.helpers import assert_same_run, die_at_each, generator, is_online, metric_rows, out_of_reach, small_batch, tiny_run


@pytest.mark.parametrize("algo", registry.names())
def test_the_tests_of_every_algorithm_check_its_learner(algo):
    """Each algorithm's own file calls the contract of a learner once, under its name."""
    text = Path(__file__).with_name(f"test_{algo}_update.py").read_text()
    assert text.count(f'check_learner("{algo}")') == 1


@pytest.mark.parametrize("algo", registry.names())
def test_a_run_repeats_bit_for_bit(algo, finished, tmp_path):
    tiny_run(tmp_path, algo)
    assert_same_run(finished(algo).run_dir, tmp_path)


@pytest.mark.parametrize("algo", [algo for algo in registry.names() if not is_online(algo)])
def test_cut_at_five_places_and_resumed(algo, finished, tmp_path):
    """Offline ones, as a population; online ones are cut in test_online, in mid-episode and with replay."""
    places = (("checkpoint", 30), ("log", 50), ("evaluation", 80), ("checkpoint", 90), ("log", 110))
    die_at_each(partial(tiny_run, tmp_path, algo, seeds=[0, 7]), places)
    assert_same_run(finished(algo, [0, 7]).run_dir, tmp_path)


@pytest.mark.parametrize("algo", registry.names())
def test_population_follows_its_solo_runs(algo, finished, tmp_path):
    """Same batches and same first weights, so the losses agree for a hundred steps."""
    tiny_run(tmp_path, algo, seed=7)
    population = losses(finished(algo, [0, 7]).run_dir)
    for member, alone in enumerate((finished(algo).run_dir, tmp_path)):
        mine, solo = [row for row in population if row["member"] == member], losses(alone)
        assert len(mine) == len(solo) >= 10
        for left, right in zip(mine, solo, strict=True):
            for name in left:
                if name.startswith("train/"):
                    assert left[name] == pytest.approx(right[name], rel=1e-4, abs=1e-5), (left["step"], name)


@pytest.mark.parametrize("algo", [spec.id for spec in registry.REGISTRY.values() if issubclass(spec.config, CriticKnobs)])
def test_the_discounts_of_a_batch_replace_gamma(algo):
    """Rows over several steps bring their own discount: the loss is that of a learner with this gamma."""
    batch = small_batch()
    own = replace(batch, discounts=torch.full_like(batch.rewards, 0.9**3))
    losses = [
        contract.make_learner(algo, gamma=gamma).pure_loss(rows)[0]
        for gamma, rows in ((0.5, own), (0.9**3, batch), (0.5, batch))
    ]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    assert losses[0].item() != pytest.approx(losses[2].item(), rel=1e-3)


def losses(run_dir):
    """The log rows of the first hundred steps, environment steps where a run counts them."""
    rows = [row for row in metric_rows(run_dir) if "train/actor_loss" in row]
    return [row for row in rows if row.get("env_step", row["step"]) <= 100]


@pytest.mark.parametrize("algo", registry.names())
def test_evaluate_and_predict_from_a_checkpoint_alone(algo, finished, tmp_path):
    result = finished(algo)
    alone = shutil.copytree(result.checkpoint, tmp_path / "elsewhere")
    observations = generator().normal(size=(7, 3)).astype(np.float32)
    with out_of_reach(result.run_dir):
        policy = Policy.load(alone)
        same = {"episodes": 2, "seeds": policy.learner.model.seeds, "transforms": policy.transforms}
        assert evaluate_policy(policy.learner, "Pendulum-v1", **same).member_means == [result.members[0].last_return]
        actions = policy.predict(observations)
    inside = result.spaces.denormalize_actions(
        result.learner.act(torch.from_numpy(result.transforms.observations(observations))).numpy()
    )
    assert np.array_equal(actions, inside)
    assert actions.shape == (7, 1)
    assert np.abs(actions).max() <= 2.0
    assert policy.predict(observations[0]).shape == (1,)


@pytest.mark.parametrize("algo", registry.names())
def test_states_of_another_shape_are_refused_by_name(algo):
    state = contract.make_learner(algo).state_dict()
    shape = rf"\(1, {contract.policy_inputs(algo, 3, 2)}, 16\)"
    with pytest.raises(CheckpointError, match=f"tensor `actor/0/weight` is torch.float32 {shape} in the checkpoint"):
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
