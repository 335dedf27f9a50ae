"""From offline to online: one run through both phases, exact at every cut, and the same as if asked for at once."""

import json
import shutil
from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch

import rl_training
from rl_training.analysis.logged_run import LoggedRun
from rl_training.config.loading import make_config
from rl_training.config.shared_knobs import CriticKnobs
from rl_training.data import compute_returns_to_go
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.transforms import Transforms
from rl_training.envs.environments import reset_seeds
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment import ExperimentManager, registry
from rl_training.experiment.registry import get_spec
from rl_training.report.facts import member_facts
from rl_training.runtime import load_checkpoint
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoints.replay_store import read_replay
from tests.helpers import (
    Cut,
    CutAt,
    assert_same_run,
    call_cli,
    checkpoints,
    die_at_each,
    generator,
    knobs_of,
    metric_rows,
    run_values,
    tiny_run,
)

OFFLINE = [spec.id for spec in registry.REGISTRY.values() if not spec.online and issubclass(spec.config, CriticKnobs)]
FROM_PYTHON = ["xql", "cql"]  # the others are finetuned by a config; the loop that goes on online is the same
BLOCK = {"env_steps": 250, "buffer_capacity": 230}
RUN = {"checkpoint_interval": 50, "log_interval": 25, "eval_interval": 100, "total_timesteps": 100}


def finetuned(path, algo="iql", block=BLOCK, **changes):
    return tiny_run(path, algo, finetune=block, **{**RUN, **changes})


def run_both_phases(path, algo, **options):
    if get_spec(algo).online:  # RLPD: pretraining is its offline phase
        kwargs = {"offline_pretrain_updates": 100, "learning_starts": 30, "buffer_capacity": 230}
        return tiny_run(path, algo, seeds=[0, 7], **{**RUN, "total_timesteps": 250}, algo_kwargs=kwargs, **options)
    return finetuned(path, algo, seeds=[0, 7], **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run of an algorithm through both phases, made when first asked for."""
    paths = {}

    def run(algo):
        if algo not in paths:
            paths[algo] = tmp_path_factory.mktemp(algo)
            run_both_phases(paths[algo], algo)
        return paths[algo]

    return run


@pytest.mark.parametrize("algo", [algo for algo in OFFLINE if algo not in FROM_PYTHON])
def test_asked_for_later_is_as_asked_for_at_once(algo, whole, tmp_path):
    """An offline run that goes on online after it has ended equals one that was meant to from the start."""
    tiny_run(tmp_path, algo, seeds=[0, 7], **RUN)
    offline = (tmp_path / "metrics.jsonl").read_bytes()
    manager, checkpoint = ExperimentManager.finetuning(tmp_path, BLOCK)
    result = manager.train(resume=True, checkpoint=checkpoint)
    assert (result.step, result.env_step) == (350, 250)
    assert_same_run(whole(algo), tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes().startswith(offline)
    rows = metric_rows(tmp_path)
    assert [row["env_step"] for row in rows if row.get("env_step") and row["member"] == 0 and "eval/return_mean" in row] == [
        100,
        200,
        250,
    ]
    assert "step-000000100" in [path.name for path in checkpoints(tmp_path)]  # where the online phase began


CUTS = [
    ("checkpoint", 50),  # in the offline phase
    ("checkpoint", 100),  # at the switch, or where the ring has not been overwritten yet
    ("log", 125),  # online, in mid-episode
    ("evaluation", 200),
    ("checkpoint", 200),  # one episode has just ended
    ("log", 225),  # in the second episode
]


@pytest.mark.parametrize("algo", ["td3_bc", "cal_ql", "rlpd"])
def test_cut_and_resumed_equals_uninterrupted(algo, whole, tmp_path):
    """A delayed policy with fitted transforms, episodes that are held back until they end, and a phase of pretraining."""
    die_at_each(partial(run_both_phases, tmp_path, algo), CUTS)
    assert_same_run(whole(algo), tmp_path)


@pytest.mark.parametrize("algo", ["iql", "rlpd"])
def test_cut_again_after_the_switch(algo, whole, tmp_path):
    """Here one process goes through the switch before it dies."""
    for place in (("checkpoint", 50), ("log", 75), ("log", 150), ("log", 225)):
        with pytest.raises(Cut):
            run_both_phases(tmp_path, algo, resume=True, callbacks=[CutTwice(*place)])
    run_both_phases(tmp_path, algo, resume=True)
    assert_same_run(whole(algo), tmp_path)


class CutTwice(CutAt):
    """Dies at the second visit of a count, which is the one of the online phase, or at the first where there is one alone."""

    def __init__(self, place, step):
        super().__init__(place, step)
        self.visits = 1 if step > 100 else 0

    def _maybe(self, place, step):
        if (place, step) == (self.place, self.step):
            self.visits += 1
            if self.visits > 1 or self.step > 100 or place == "checkpoint":
                raise Cut


def test_cal_ql_samples_an_episode_once_it_has_ended(tmp_path):
    """Before the first episode ends, at 200, a batch is prior data alone; then it is the share that was asked for."""
    seen = []

    original = get_learner("cal_ql").loss

    def spy(learner, batch, step):
        if batch.prior is not None:
            seen.append((int(batch.prior.sum()), bool(torch.isfinite(batch.returns_to_go).all())))
        return original(learner, batch, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(get_learner("cal_ql"), "loss", spy)
        result = finetuned(tmp_path, "cal_ql", block={**BLOCK, "prior_ratio": 0.25, "buffer_capacity": 1000})
    assert [prior for prior, _ in seen] == [32] * 199 + [8] * 51
    assert all(finite for _, finite in seen)
    last = load_checkpoint(result.checkpoint)
    assert last.state["replay_ready"] == [200]
    assert last.tensors["online/pending"].shape[1] == 50
    assert [(s["first"], s["stop"]) for s in last.state["replay"]][-1][1] == 200


def test_next_actions_go_through_both_phases(tmp_path, monkeypatch):
    """Known in the data except where an episode was cut, unknown in what is collected; a cut run resumes exactly."""
    for module in ("offline_data", "phases.build"):
        needs = replace(get_spec("iql"), needs=("next_actions",))
        monkeypatch.setattr(f"rl_training.runtime.{module}.get_spec", lambda _, needs=needs: needs)
    original, unknown = get_learner("iql").loss, []

    def spy(learner, batch, step):
        fresh = torch.zeros_like(batch.rewards) if batch.prior is None else 1.0 - batch.prior
        unknown.append((batch.next_actions.isnan().float().mean().item(), fresh.mean().item()))
        return original(learner, batch, step)

    monkeypatch.setattr(get_learner("iql"), "loss", spy)
    finetuned(tmp_path / "whole", seeds=[0, 7])
    for offline in (True, False):  # three of the 600 rows of the data are cut
        shares = [share for share in unknown if (share[1] == 0.0) is offline]
        assert shares
        assert all(fresh <= share < fresh + 0.1 for share, fresh in shares)
    die_at_each(partial(finetuned, tmp_path / "cut", seeds=[0, 7]), [("checkpoint", 50), ("log", 125), ("checkpoint", 200)])
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def get_learner(algo):
    return {"cal_ql": rl_training.CalQLAlgorithm, "iql": rl_training.IQLAlgorithm}[algo]


def test_returns_of_fresh_episodes_are_those_of_the_data_s_rule():
    draw = generator(3)
    rewards = draw.normal(size=25).astype(np.float32)
    buffer = ReplayBuffer(100, 1, 1, returns=lambda *ends: compute_returns_to_go(*ends, 0.9))
    ends = {9: "terminals", 19: "timeouts"}
    for row, reward in enumerate(rewards):
        buffer.add(
            {
                "observations": np.zeros((1, 1)),
                "actions": np.zeros((1, 1)),
                "rewards": np.array([reward]),
                "next_observations": np.zeros((1, 1)),
                "terminals": np.array([ends.get(row) == "terminals"]),
                "timeouts": np.array([ends.get(row) == "timeouts"]),
            }
        )
        assert buffer.ready[0] == (0 if row < 9 else 10 if row < 19 else 20)
    columns = buffer.layout.columns(torch.from_numpy(buffer.rows(0, 25)))
    flags = np.arange(20)
    expected = compute_returns_to_go(rewards[:20], flags == 9, flags == 19, 0.9)
    assert np.array_equal(columns["returns_to_go"][0, :20].numpy(), expected)
    assert torch.isneginf(columns["returns_to_go"][0, 20:]).all()
    assert len(set(buffer.sample(500, seed=1).rewards.tolist())) == 20  # the pending episode is not sampled
    buffer.cut(0)
    assert buffer.ready[0] == 25


@pytest.mark.parametrize(("block", "expected"), [({"prior_ratio": 0.75}, {24}), ({"prior_ratio": 0.0}, {0})])
def test_the_share_of_prior_data_is_exact(tmp_path, block, expected):
    assert set(prior_rows(tmp_path, block, env_steps=60)) == expected


def test_the_share_moves_over_the_phase(tmp_path):
    rows = prior_rows(tmp_path, {"prior_ratio": 1.0, "prior_ratio_end": 0.0})
    assert rows[0] == 32
    assert rows[125] == 16
    assert rows[-1] == 0
    assert rows == sorted(rows, reverse=True)


def test_appended_data_is_one_pool(tmp_path):
    rows = prior_rows(tmp_path, {"replay": "append"})
    assert rows[0] >= 31  # 600 rows of data and one fresh transition
    assert 0.6 < np.mean(rows[-50:]) / 32 < 0.85  # 600 of about 825


def prior_rows(tmp_path, block, env_steps=250):
    """The number of prior rows in every batch of the online phase."""
    seen = []
    learner = get_learner("iql")
    original = learner.loss

    def spy(self, batch, step):
        if batch.prior is not None:
            seen.append(int(batch.prior.sum()))
        return original(self, batch, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "loss", spy)
        finetuned(tmp_path, block={"env_steps": env_steps, **block})
    assert len(seen) == env_steps
    return seen


def test_fitted_transforms_are_applied_to_fresh_data(tmp_path):
    reward = {"scale": 2.0, "shift": 1.0, "normalize": True}
    kwargs = {"normalize_observations": True, "reward": reward}
    result = finetuned(tmp_path, block={"env_steps": 30}, algo_kwargs=kwargs)
    last = load_checkpoint(result.checkpoint)
    transforms = Transforms.from_tensors(last.tensors)
    env = gymnasium.make("Pendulum-v1")
    observation, _ = env.reset(seed=reset_seeds(0, "training", 0, 1)[0])
    for row in read_replay(last)[0]:
        assert row[:3] == pytest.approx(transforms.observations(observation), abs=1e-5)
        observation, raw, *_ = env.step(row[3:4] * 2.0)
        assert row[4] == pytest.approx(float(transforms.rewards(np.array(raw))), rel=1e-4)
    env.close()


def test_learning_rates_are_constant_online(tmp_path):
    finetuned(tmp_path, block={**BLOCK, "learning_rate_factor": 0.3}, learning_rate_schedule={"actor": "cosine"})
    rows = [row for row in metric_rows(tmp_path) if "train/critic_loss" in row]
    factors = [row["train/learning_rate_factor/actor"] for row in rows]
    assert factors[:4] == sorted(factors[:4], reverse=True)
    assert set(factors[4:]) == {0.3}
    assert all(row["train/learning_rate_factor/critic"] == 0.3 for row in rows[4:])
    assert not any("train/learning_rate_factor/critic" in row for row in rows[:4]), "as before a finetune was asked for"


def test_a_learning_rate_that_is_whole_again_is_logged(tmp_path):
    """The schedule ends with the offline phase: a curve that ended there would look as if the rate stayed low."""
    finetuned(tmp_path, learning_rate_schedule={"actor": "cosine"}, log_interval=1)
    rows = [row for row in metric_rows(tmp_path) if "train/critic_loss" in row]
    factors = {row.get("env_step"): row["train/learning_rate_factor/actor"] for row in rows}
    assert rows[0]["train/learning_rate_factor/actor"] == 1.0, "at its first step a schedule has not begun to fall"
    assert {value for step, value in factors.items() if step} == {1.0}
    assert not any("train/learning_rate_factor/critic" in row for row in rows), "which has no schedule"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"finetune": {"env_steps": 0}}, "`finetune.env_steps` = 0"),
        ({"finetune": {}}, "`finetune.env_steps` is required"),
        ({"finetune": {"env_steps": 5, "prior_ratio": 2.0}}, "`finetune.prior_ratio` = 2.0"),
        ({"finetune": {"env_steps": 5, "replay": "mix"}}, "`finetune.replay` = 'mix'"),
        ({"finetune": {"env_steps": 5, "ratio": 0.5}}, "unknown key `finetune.ratio`"),
        ({"finetune": {"env_steps": 5}, "env_id": None}, "`env_id` is required: a finetune continues in an environment"),
        ({"finetune": {"env_steps": 5}, "early_stopping": {"patience": 3}}, "exclude each other"),
    ],
)
def test_bad_settings_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        make_config(run_values("iql", **changes))


def test_from_the_shell(tmp_path, capsys):
    tiny_run(tmp_path / "run", **RUN)
    done = call_cli(
        capsys, "finetune", tmp_path / "run", "--env-steps", "60", "--set", "prior_ratio=0.25", "--set", "replay=mixed"
    )
    assert "env step 60: mean return" in done.stderr
    report = json.loads(call_cli(capsys, "evaluate", tmp_path / "run", "--episodes", "2", "--json").stdout)
    assert (report["step"], report["env_step"]) == (160, 60)
    assert call_cli(capsys, "predict", tmp_path / "run", "--obs", "[1.0, 0.0, 0.0]").stdout
    assert json.loads(call_cli(capsys, "resume", tmp_path / "run", "--json").stdout)["env_step"] == 60
    longer = json.loads(call_cli(capsys, "finetune", tmp_path / "run", "--env-steps", "90", "--json").stdout)
    assert longer["env_step"] == 90
    other = call_cli(capsys, "finetune", tmp_path / "run", "--env-steps", "99", "--set", "prior_ratio=0.9", code=2)
    assert "finetune.prior_ratio was 0.25, is 0.9" in other.stderr
    wrong = call_cli(capsys, "finetune", tmp_path / "run", "--env-steps", "9", "--set", "prior=1", code=2)
    assert wrong.stderr.startswith("error: ")
    lone = checkpoints(tmp_path / "run")[0]
    shutil.copytree(lone, tmp_path / "lone")
    refused = call_cli(capsys, "finetune", tmp_path / "lone", "--env-steps", "20", code=2)
    assert "is not in a run directory" in refused.stderr
    new = call_cli(capsys, "finetune", tmp_path / "lone", "--env-steps", "20", "--run-dir", tmp_path / "new", "--json")
    told = json.loads(new.stdout)
    shown = [one.best for one in member_facts(LoggedRun.load(tmp_path / "new"))]
    assert (told["env_step"], shown) == (20, [one["best_return"] for one in told["members"]]), "a report says the same"
    best = json.loads(call_cli(capsys, "evaluate", tmp_path / "new", "--best", "--episodes", "1", "--json").stdout)
    assert best["step"] >= 100  # where it came from, unless a later one was better
    few = call_cli(capsys, "finetune", tmp_path / "run", "--env-steps", "30", "--set", "prior_ratio=0.25", code=2)
    assert "the budget of 30 env steps is below the 90 that" in few.stderr


def test_a_run_that_is_not_finished_or_is_online_is_refused(finished, tmp_path):
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", **RUN, callbacks=[CutAt("checkpoint", 50)])
    with pytest.raises(ConfigError, match="has not finished"):
        ExperimentManager.finetuning(tmp_path / "cut", BLOCK)
    with pytest.raises(ConfigError, match="sac already learns online"):
        ExperimentManager.finetuning(finished("sac").run_dir, BLOCK)


@pytest.mark.parametrize("algo", FROM_PYTHON)
def test_from_python(algo, tmp_path):
    cls = getattr(rl_training, get_spec(algo).name)
    settings = {**knobs_of(algo), "batch_size": 32, "eval_interval": 50, "eval_episodes": 1, "log_interval": 25}
    data = {"kind": "random", "size": 400}
    whole = cls("Pendulum-v1", dataset=data, **settings).learn(50).finetune(120, prior_ratio=0.25)
    assert whole.num_timesteps == 120
    half = cls("Pendulum-v1", dataset=data, **settings).learn(50).finetune(60, prior_ratio=0.25)
    again = cls.load(half.save(tmp_path / "half")).finetune(120)
    half.finetune(120)
    mine = whole.policy.learner.state_dict()
    for other in (again, half):
        theirs = other.policy.learner.state_dict()
        assert all(torch.equal(value, theirs[name]) for name, value in mine.items())
    with pytest.raises(ConfigError, match=r"continue with finetune\(env_steps\)"):
        whole.learn(100)
    with pytest.raises(ConfigError, match="call learn"):
        cls("Pendulum-v1", dataset=data, **settings).finetune(10)


def test_a_replay_of_another_number_of_members_is_refused(whole, tmp_path):
    checkpoint = load_checkpoint(checkpoints(whole("iql"))[-1])
    checkpoint.state["replay_ready"] = [1]
    config = make_config(run_values("iql", seeds=[0, 7], finetune=BLOCK, **RUN))
    with pytest.raises(CheckpointError, match="another number of members"):
        ExperimentManager(config, tmp_path / "new").train(resume=True, checkpoint=checkpoint)


class StopSecond(Callback):
    """Stops the second member at the first evaluation; keeps nothing."""

    def on_evaluation(self, step, evaluation, active):
        return [1]


def test_a_member_that_stopped_in_pretraining_stays_stopped(tmp_path):
    kwargs = {"algo_kwargs": {"offline_pretrain_updates": 100}}
    changes = {**RUN, "total_timesteps": 120, "eval_interval": 50, "seeds": [0, 7], **kwargs}
    tiny_run(tmp_path / "whole", "rlpd", callbacks=[StopSecond()], **changes)
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", "rlpd", callbacks=[StopSecond(), CutAt("checkpoint", 100)], **changes)
    tiny_run(tmp_path / "cut", "rlpd", callbacks=[StopSecond()], resume=True, **changes)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_member_that_stopped_offline_takes_part_in_a_finetune(tmp_path):
    tiny_run(tmp_path, seeds=[0, 7], callbacks=[StopSecond()], **RUN)
    manager, checkpoint = ExperimentManager.finetuning(tmp_path, {"env_steps": 30})
    result = manager.train(resume=True, checkpoint=checkpoint)
    assert [member.status for member in result.members] == ["training", "training"]


def test_the_switch_cannot_be_moved(tmp_path):
    constant = {**RUN, "learning_rate_schedule": "constant"}
    tiny_run(tmp_path / "a", finetune={"env_steps": 100}, **constant)
    with pytest.raises(ConfigError, match="total_timesteps was 100, is 300"):
        tiny_run(tmp_path / "a", finetune={"env_steps": 150}, resume=True, **{**constant, "total_timesteps": 300})
    assert tiny_run(tmp_path / "a", finetune={"env_steps": 150}, resume=True, **constant).env_step == 150
    tiny_run(tmp_path / "b", **constant)
    with pytest.raises(ConfigError, match="begins at step 50, before the 100"):
        tiny_run(tmp_path / "b", finetune={"env_steps": 20, "from_step": 50}, resume=True, **constant)
    with pytest.raises(ConfigError, match="from_step = 250 lies beyond the offline budget of 100"):
        tiny_run(tmp_path / "b", finetune={"env_steps": 20, "from_step": 250}, resume=True, **constant)
    with pytest.raises(ConfigError, match="early_stopping was None"):
        tiny_run(tmp_path / "b", early_stopping={"patience": 1}, resume=True, **constant)


def test_a_block_may_change_before_its_phase_begins(tmp_path):
    with pytest.raises(Cut):
        finetuned(tmp_path, block={"env_steps": 50}, callbacks=[CutAt("checkpoint", 50)])
    assert finetuned(tmp_path, block={"env_steps": 70}, resume=True).env_step == 70


def test_a_refused_finetune_leaves_the_object_as_it_was():
    settings = {**knobs_of("iql"), "batch_size": 32, "eval_interval": 50, "eval_episodes": 1}
    model = rl_training.IQL("Pendulum-v1", dataset={"kind": "random", "size": 300}, **settings).learn(20)
    with pytest.raises(ConfigError, match="prior_ratio"):
        model.finetune(20, prior_ratio=7.0)
    assert model.learn(30).num_timesteps == 30
    model.finetune(20)
    with pytest.raises(ConfigError, match="prior_ratio was 0.5, is 0.9"):
        model.finetune(40, prior_ratio=0.9)
    assert model.finetune(40).num_timesteps == 40
