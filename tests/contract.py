"""What every algorithm promises; called by name from each algorithm's tests, and over the registry by test_contract."""

import math
import runpy
import subprocess
import sys

import pytest
import torch

from rl_training.algorithms.learner import Step, summarize
from rl_training.config.loading import make_config
from rl_training.config.shared_knobs import CriticKnobs
from rl_training.errors import ConfigError
from rl_training.experiment.registry import get_spec
from rl_training.rng import Draws
from rl_training.runtime.build_learner import build_learner
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from rl_training.runtime.execution.tracing import Wanted, trace_step, variant_at
from tests.helpers import ROOT, environment, generator, is_online, metric_rows, run_values, small_batch


def make_learner(algo, seeds=(0,), observation_dim=3, action_dim=2, member_knobs=(), **knobs):
    import numpy as np

    from rl_training.data.spaces import Spaces

    config = make_config(run_values(algo, algo_kwargs=knobs))
    bound = np.ones(action_dim, dtype=np.float32)
    spaces = Spaces(observation_dim, action_dim, -bound, bound)
    return build_learner(algo, spaces, seeds, torch.device("cpu"), config.algo_kwargs, member_knobs)


def policy_inputs(algo, observation_dim, action_dim):
    """Inputs of the policy network: observations, and for FQL the noise that it turns into an action."""
    return observation_dim + (action_dim if algo == "fql" else 0)


def check_learner(algo):
    check_metrics(algo)
    check_due_groups_move(algo)
    check_updates_repeat(algo)
    check_state_round_trip(algo)
    check_members_do_not_mix(algo)
    check_bad_knobs(algo)
    check_acting(algo)
    check_values(algo)


def check_metrics(algo):
    learner = make_learner(algo)
    result = learner.update(small_batch())
    assert result.gradient_steps == 1
    assert set(result.metrics) == set(learner.metric_names)
    assert all(value.ndim == 0 and not value.requires_grad for value in result.metrics.values())
    again = make_learner(algo).update(small_batch().without_members()).metrics
    assert {name: value.item() for name, value in again.items()} == {name: v.item() for name, v in result.metrics.items()}
    population = make_learner(algo, seeds=(0, 1)).update(small_batch(members=2)).metrics
    assert all(value.shape == (2,) for value in population.values())


def check_due_groups_move(algo):
    """One update moves exactly the due groups, moments and counts included, and targets only by polyak."""
    learner = make_learner(algo)
    for _ in range(4):
        before = {
            name: learner.model.trained.flat[:, columns].clone() for name, columns in learner.model.trained.groups.items()
        }
        moments = {name: count.clone() for name, count in learner.optimizer.counts.items()}
        targets, follow = learner.model.targets.flat.clone(), learner.targets_due(learner.step)
        if isinstance(learner.knobs, CriticKnobs):  # from which the report tells how far values have come
            assert follow == ((learner.step + 1) % learner.knobs.target_interval == 0)
        due = set(learner.due_groups(learner.step))
        learner.update(small_batch())
        moved = {
            name
            for name, columns in learner.model.trained.groups.items()
            if not torch.equal(before[name], learner.model.trained.flat[:, columns])
        }
        assert moved == due
        counted = {name for name, count in learner.optimizer.counts.items() if not torch.equal(count, moments[name])}
        assert counted == due
        if follow:
            for group, columns in learner.model.targets.groups.items():
                online = learner.model.trained.flat[:, learner.model.trained.groups[group]]
                targets[:, columns] = targets[:, columns].lerp(online, learner.knobs.tau)
        assert torch.equal(targets, learner.model.targets.flat)


def check_updates_repeat(algo):
    first, second = make_learner(algo), make_learner(algo)
    for step in range(5):
        first.update(small_batch(seed=step))
        second.update(small_batch(seed=step))
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def check_state_round_trip(algo):
    first, second = make_learner(algo, seeds=(0, 1)), make_learner(algo, seeds=(0, 1))
    for step in range(3):
        first.update(small_batch(members=2, seed=step))
        second.update(small_batch(members=2, seed=step + 50))
    second.load_state_dict(first.state_dict())
    second.step = first.step
    for step in range(3, 6):
        first.update(small_batch(members=2, seed=step))
        second.update(small_batch(members=2, seed=step))
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def check_members_do_not_mix(algo):
    """Changing one member's batch leaves the others' parameters bit for bit as they were."""
    first, second = make_learner(algo, seeds=(0, 1)), make_learner(algo, seeds=(0, 1))
    batch, other = small_batch(members=2, seed=1), small_batch(members=2, seed=1)
    other.rewards[1] = other.actions[1] = float("nan")
    first.update(batch)
    second.update(other)
    for mine, theirs in zip(first.buffers(), second.buffers(), strict=True):
        assert torch.equal(mine[0], theirs[0])
    assert not torch.isfinite(second.model.trained.flat[1]).all()


def check_bad_knobs(algo):
    """What no algorithm takes is refused at construction, with the name, the value and what is legal."""
    cases = [
        ({"actor_learning_rate": -1e-3}, "`algo_kwargs.actor_learning_rate` = -0.001 is not legal"),
        ({"batch_size": True}, "`algo_kwargs.batch_size` = True is not legal"),
        ({"max_grad_norm": float("nan")}, "`algo_kwargs.max_grad_norm` = nan is not legal"),
        ({"hiden_sizes": [8]}, "unknown key `algo_kwargs.hiden_sizes`. Did you mean `hidden_sizes`"),
    ]
    if "gamma" in get_spec(algo).config.model_fields:
        cases += [
            ({"gamma": 1.0}, "`algo_kwargs.gamma` = 1.0 is not legal: must be a number >= 0.0 and < 1.0"),
            ({"tau": 0.0}, "`algo_kwargs.tau` = 0.0 is not legal: must be a number > 0.0 and <= 1.0"),
        ]
    for knobs, words in cases:
        with pytest.raises(ConfigError) as caught:
            make_learner(algo, **knobs)
        assert words in str(caught.value)
    learner = make_learner(algo)
    with pytest.raises(ConfigError, match="`actor_learning_rate` = 2.0 is not legal"):
        type(learner)(learner.model, actor_learning_rate=2.0)


def check_acting(algo):
    learner = make_learner(algo)
    rows = torch.from_numpy(generator(3).normal(size=(6, 3)).astype("float32")) * 10
    for deterministic in (True, False):
        actions = learner.act(rows, deterministic=deterministic)
        assert actions.shape == (6, 2)
        assert actions.abs().max() <= 1.0
    assert torch.equal(learner.act(rows), learner.act(rows[None])[0])
    samples = [learner.act(rows, deterministic=False, step=step) for step in (3, 3, 4)]
    assert torch.equal(samples[0], samples[1])
    assert not torch.equal(samples[0], samples[2])
    assert torch.allclose(learner.act(rows)[2], learner.act(rows[2]), atol=1e-6)
    population = make_learner(algo, seeds=(0, 1))
    assert torch.allclose(population.act(rows.expand(2, -1, -1))[0], learner.act(rows), atol=1e-6)


def check_values(algo):
    """Q is the smallest of the trained critics; V is that of the mean action where there is no value network."""
    learner = make_learner(algo, seeds=(0, 1))
    for step in range(3):  # so that critics and targets differ
        learner.update(small_batch(members=2, seed=step))
    batch = small_batch(members=2)
    q, v = learner.q_values(batch.observations, batch.actions), learner.state_values(batch.observations)
    if algo == "bc":
        assert (q, v) == (None, None)
        return
    critics = learner.model.q_values(learner.model.online, batch.observations, batch.actions)
    assert q.shape == v.shape == batch.rewards.shape
    assert not q.requires_grad
    assert not v.requires_grad
    assert torch.equal(q, critics.detach().min(dim=1).values)
    greedy = learner.q_values(batch.observations, learner.act(batch.observations))
    assert torch.equal(v, greedy) == (algo not in ("iql", "xql"))


def wanted_at(learner, step, **results):
    return Wanted(variant_at(learner, step, report=False).due, **results)


def check_traced(learner, rows, make_batch, wanted, same):
    """Compare a traced step with the learner's own, on other random numbers than it was traced with; return it."""
    traced = trace_step(learner, wanted, rows, None, make_batch, "float32")
    model, draws = learner.model, Draws.of_steps(learner.model.seed_tensor, 7)
    got = traced.graph(model.trained.flat, model.targets.flat, rows, None, *draws.values_of_step(traced.streams))
    loss, metrics = learner.loss(make_batch(rows, None), Step(draws, wanted.due, wanted.metrics))
    gradients = learner.gradients(loss, wanted.due) if wanted.gradients else {}
    reported = summarize(metrics) if wanted.metrics else {}
    assert (traced.segments, traced.metrics) == (tuple(gradients), tuple(reported))
    for name, value, expected in zip([*gradients, *reported], got, [*gradients.values(), *reported.values()], strict=True):
        assert same(value, expected), name
    return traced


def nearly(value, expected):
    return torch.allclose(value, expected, rtol=1e-4, atol=1e-6)


def check_short_run(algo, run_dir):
    """A run of the trainer leaves checkpoints, metrics and an evaluation; returns its log rows."""
    result = get_spec(algo).train()(make_config(run_values(algo)), run_dir)
    rows = metric_rows(run_dir)
    unit = "env_step" if is_online(algo) else "step"
    train = [row for row in rows if "train/actor_loss" in row and unit in row]  # less the rows of a pretraining
    evaluations = [row for row in rows if "eval/return_mean" in row and unit in row]
    assert [row[unit] for row in train] == list(range(10, 121, 10))
    assert [row[unit] for row in evaluations] == [40, 80, 120]
    assert {f"train/{name}" for name in get_spec(algo).learner.metric_names} <= set(train[0])
    assert train[0]["train/learning_rate_factor/actor"] < 1.0
    assert all(row["member"] == 0 and row["seed"] == 0 for row in rows)
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert result.evaluation.returns.shape == (1, 2)
    assert result.members[0].last_return == evaluations[-1]["eval/return_mean"]
    checkpoint, groups = load_checkpoint(result.checkpoint), result.learner.model.trained.groups
    assert checkpoint.position == 120
    assert checkpoint.step == result.step == train[-1]["step"]
    assert checkpoint.tensors["actor/0/weight"].shape == (1, policy_inputs(algo, 3, 1), 16)
    assert max(checkpoint.tensors[f"adam/count/{group}"].item() for group in groups) == checkpoint.step
    return train


def script_arguments(algo):
    return ["--steps", "60"] if is_online(algo) else ["--steps", "60", "--rows", "400"]


def check_reference_script(algo, capsys, monkeypatch):
    """The example runs as a program, inside this process, and predicts the same from its saved checkpoint."""
    path = ROOT / "examples" / f"{algo}_pendulum_reference.py"
    monkeypatch.syspath_prepend(str(path.parent))  # what Python does for a program that is named by its path
    monkeypatch.setattr(sys, "argv", [str(path), *script_arguments(algo)])
    capsys.readouterr()
    runpy.run_path(str(path), run_name="__main__")
    check_script_output(capsys.readouterr().out)


def check_reference_script_from_the_shell(algo):
    """The same in an interpreter of its own: one example is enough to show that the scripts need nothing else."""
    done = subprocess.run(
        [sys.executable, f"examples/{algo}_pendulum_reference.py", *script_arguments(algo)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    check_script_output(done.stdout)


def check_script_output(text):
    lines = text.splitlines()
    assert lines[0].startswith("mean return over 10 episodes: -")
    assert lines[1].split(": ")[1] == lines[2].split(": ")[1]
