"""Knobs that change when a run goes online: what may, how it moves, and that a resume and every engine agree."""

import json
import signal
from functools import partial

import pytest
import torch

import rl_training
from rl_training.algorithms.learner import Step
from rl_training.config.finetune import Change, FinetuneConfig
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError, StoppedBySignal
from rl_training.rng import Draws
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from rl_training.runtime.execution import compiled
from rl_training.runtime.execution.tracing import Wanted, trace_step
from rl_training.runtime.phases.knobs import KnobChanges
from tests.contract import make_learner
from tests.helpers import (
    assert_same_run,
    call_cli,
    checkpoints,
    die_at_each,
    knobs_of,
    metric_rows,
    mode_of,
    run_values,
    small_batch,
    tiny_run,
)

RUN = {"total_timesteps": 40, "checkpoint_interval": 20, "log_interval": 10, "eval_interval": 100, "eval_episodes": 1}


def finetuned(path, algo, changes, *, env_steps=60, block=None, **options):
    finetune = {"env_steps": env_steps, "algo_kwargs": changes, **(block or {})}
    return tiny_run(path, algo, finetune=finetune, **{**RUN, **options})


def refused(algo, changes, **values):
    with pytest.raises(ConfigError) as caught:
        make_config(run_values(algo, finetune={"env_steps": 5, "algo_kwargs": changes}, **values))
    return str(caught.value).removeprefix("config: ")


@pytest.mark.parametrize(
    ("algo", "changes", "words"),
    [
        ("iql", {"bta": 1.0}, "`algo_kwargs.bta` cannot change online: there is no such knob. Did you mean `beta`?"),
        ("td3_bc", {"hidden_sizes": [8]}, "it sets a shape, a count or the data. What can: actor_learning_rate, "),
        ("iql", {"batch_size": 8}, "`algo_kwargs.batch_size` cannot change online: it sets a shape, a count or the data"),
        ("td3_bc", {"actor_interval": 1}, "`algo_kwargs.actor_interval` cannot change online"),
        ("cal_ql", {"gamma": 0.9}, "`algo_kwargs.gamma` cannot change online: the data is processed with it"),
        ("cal_ql", {"tail": "zero"}, "`algo_kwargs.tail` cannot change online: the data is processed with it"),
        ("iql", {"beta": -1.0}, "in `finetune`: `algo_kwargs.beta` = -1.0 is not legal: must be a number >= 0.0"),
        ("iql", {"beta": {"to": -1.0}}, "`algo_kwargs.beta` = -1.0 is not legal"),
        ("iql", {"beta": {"from": -1.0, "to": 1.0}}, "`algo_kwargs.beta` = -1.0 is not legal"),
        ("iql", {"beta": True}, "`algo_kwargs.beta` = True is not legal"),
        ("td3_bc", {"alpha": "auto"}, "`algo_kwargs.alpha` = 'auto' is not legal: must be a number >= 0.0"),
        ("td3_bc", {"exploration_noise": -0.1}, "`algo_kwargs.exploration_noise` = -0.1 is not legal"),
        ("iql", {"beta": {"form": 1.0, "to": 2.0}}, "must be a value, or {from: a, to: b, over: share}"),
        ("iql", {"beta": {"to": 1.0, "over": 2.0}}, "`over` = 2.0 is not legal: must be a number > 0 and <= 1"),
        ("iql", {"critic_loss": {"to": "huber"}}, "`algo_kwargs.critic_loss` cannot change online: it is not a number"),
        ("iql", {"tau": {"to": 0.01}}, "`algo_kwargs.tau` cannot change online: the optimizer reads it once"),
        ("cql", {"cql_clip_diff_max": {"to": 1.0}}, "it would move from None to 1.0; both must be numbers"),
        ("cql", {"alpha": 0.1}, "`algo_kwargs.alpha` cannot change online between auto and 0.1"),
        ("cql", {"lagrange_gap": 1.0}, "`algo_kwargs.lagrange_gap` cannot change online between None and 1.0"),
        ("xql", {"expectile": 0.9}, "`algo_kwargs.expectile` would do nothing online: vanilla_value_loss is false"),
    ],
)  # fmt: skip
def test_what_cannot_change_is_refused_by_name(algo, changes, words):
    assert words in refused(algo, changes)


def test_a_swept_knob_cannot_change_too():
    assert "`algo_kwargs.beta` cannot change online: it is swept" in refused("iql", {"beta": 1.0}, sweep={"beta": [1.0, 3.0]})


def test_rules_between_knobs_hold_online_too():
    words = refused("cql", {"cql_clip_diff_min": 2.0}, algo_kwargs={"cql_clip_diff_max": 1.0})
    assert "cql_clip_diff_min = 2.0 must be below cql_clip_diff_max = 1.0" in words


def spied_knobs(path, algo, name, changes, **options):
    """The value of a knob at every gradient step of a run."""
    seen, learner = [], rl_training.experiment.registry.get_spec(algo).learner
    original = learner.loss

    def spy(self, batch, step):
        value = getattr(self.knobs, name)
        seen.append(value.flatten().tolist()[0] if isinstance(value, torch.Tensor) else value)
        return original(self, batch, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "loss", spy)
        finetuned(path, algo, changes, **options)
    return seen


@pytest.mark.parametrize(
    ("algo", "name", "before", "after"), [("cql", "cql_alpha", 5.0, 1.0), ("iql", "critic_loss", "mse", "huber")]
)
def test_a_value_holds_from_the_switch_on(algo, name, before, after, tmp_path):
    assert spied_knobs(tmp_path, algo, name, {name: after}) == [before] * 40 + [after] * 60


def test_a_knob_moves_linearly_over_the_phase(tmp_path):
    """From the offline value, here the one that `auto` became, in whole rounds."""
    block = {"gradient_updates_per_step": 2, "learning_starts": 11}
    seen = spied_knobs(tmp_path, "td3_bc", "alpha", {"alpha": {"to": 0.5}}, env_steps=20, block=block)
    first = seen[0]
    assert seen[:40] == [first] * 40
    assert seen[40:] == pytest.approx([first + (0.5 - first) * step / 20 for step in range(10, 20) for _ in range(2)])
    again = spied_knobs(tmp_path / "from", "td3_bc", "alpha", {"alpha": {"from": 3.0, "to": 1.0}}, env_steps=20)
    assert again[40:] == pytest.approx([3.0 - step / 10 for step in range(20)])


def test_a_moved_knob_is_what_a_loss_would_see_as_a_number():
    learner, plain = make_learner("td3_bc"), make_learner("td3_bc", alpha=1.75)
    KnobChanges(learner, {"alpha": Change(1.0, 2.0, moves=True)}, 8).apply(2)
    step = Step(Draws.of_steps(learner.model.seed_tensor, 0), ("critic", "actor"))
    batch = small_batch()
    assert torch.equal(learner.loss(batch, step)[0], plain.loss(batch, step)[0])


def test_learning_rates_are_changed_by_a_factor(tmp_path):
    finetuned(tmp_path, "iql", {"actor_learning_rate": {"to": 1.5e-4}, "critic_learning_rate": 1e-4})
    rows = [row for row in metric_rows(tmp_path) if row.get("env_step") and "train/actor_loss" in row]
    assert [row["train/learning_rate_factor/critic"] for row in rows] == pytest.approx([1 / 3] * 6)
    assert [row["train/learning_rate_factor/actor"] for row in rows] == pytest.approx(
        [1.0 - 0.5 * step / 60 for step in (9, 19, 29, 39, 49, 59)]
    )


def test_what_the_optimizer_reads_changes_too():
    learner = make_learner("iql")
    learner.update(small_batch())
    assert learner.tau.tolist() == pytest.approx([0.005])
    KnobChanges(learner, {"max_grad_norm": Change(1e-9), "tau": Change(0.5)}, 5).apply(0)
    assert learner.tau.tolist() == [0.5]
    loss, _ = learner.pure_loss(small_batch())
    gradients = learner.gradients(loss, ["critic"])
    assert gradients["critic"].norm() <= 1.01e-9


def test_weight_decay_may_begin_online():
    learner, plain = make_learner("iql"), make_learner("iql")
    KnobChanges(learner, {"actor_weight_decay": Change(10.0)}, 5).apply(0)
    for one in (learner, plain):
        one.update(small_batch())
    mine, theirs = (one.state_dict()["actor/0/weight"] for one in (learner, plain))
    start = make_learner("iql").state_dict()["actor/0/weight"]
    assert torch.allclose(mine, theirs - 10.0 * 3e-4 * start, atol=1e-6)


def test_exploration_noise_is_an_attribute_of_the_model():
    learner = make_learner("td3_bc")
    changes = KnobChanges(learner, {"exploration_noise": Change(0.0, moves=True)}, 10)
    before = learner.knobs
    for step, noise in ((0, 0.1), (5, 0.05), (10, 0.0), (12, 0.0)):
        changes.apply(step)
        assert learner.model.exploration_noise == pytest.approx(noise)
    assert learner.knobs is before
    rows = small_batch().observations
    assert torch.equal(learner.act(rows, deterministic=False), learner.act(rows))


MOVING = {
    "alpha": {"to": 0.5},
    "exploration_noise": {"from": 0.3, "to": 0.05},
    "target_noise": 0.1,
    "critic_learning_rate": 1e-3,
}
CUTS = [("checkpoint", 20), ("log", 50)]  # offline, and online past the checkpoint at 40


@pytest.mark.parametrize("engine", ["eager", "compile"])
def test_cut_and_resumed_equals_uninterrupted(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "compile_traced", lambda traced: traced.graph)
    run = partial(finetuned, algo="td3_bc", changes=MOVING, seeds=[0, 7], engine=engine)
    run(tmp_path / "whole")
    die_at_each(partial(run, tmp_path / "cut"), CUTS if engine == "eager" else CUTS[1:])
    assert mode_of(tmp_path / "cut") == engine
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


class StopAt(Callback):
    """Asks the run to stop at the log row of an environment step."""

    def on_log(self, step, rows):
        if rows[0].get("env_step") == 40:
            signal.raise_signal(signal.SIGTERM)


def test_an_evaluation_that_a_resume_makes_up_for_sees_the_online_knobs(tmp_path):
    options = {"algo_kwargs": {"validation": {"fraction": 0.3}}, "eval_interval": 20}
    run = partial(finetuned, algo="iql", changes={"beta": {"from": 0.0, "to": 30.0}}, **options)
    run(tmp_path / "whole")
    with pytest.raises(StoppedBySignal):
        run(tmp_path / "cut", callbacks=[StopAt()])
    assert load_checkpoint(checkpoints(tmp_path / "cut")[-1]).state["hooks_pending"]
    run(tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_traced_step_takes_moving_knobs_as_inputs():
    """So their values are not baked into it."""
    learner = make_learner("td3_bc", seeds=(0, 1))
    changes = KnobChanges(learner, {"alpha": Change(0.0, 4.0, moves=True)}, 10)
    changes.apply(0)
    batch, wanted = small_batch(members=2), Wanted(("critic", "actor"), metrics=True)
    traced = trace_step(learner, wanted, torch.zeros(2, 8, 1), None, lambda _rows, _prior: batch, "float32")
    model, draws = learner.model, Draws.of_steps(learner.model.seed_tensor, 0)
    fixed = (model.trained.flat, model.targets.flat, torch.zeros(2, 8, 1), None)
    losses = []
    for step in (0, 5, 10):
        changes.apply(step)
        got = traced.graph(*fixed, *learner.moving.values(), *draws.values_of_step(traced.streams))
        metrics = dict(zip(traced.metrics, got[len(traced.segments) :], strict=True))
        _, expected = learner.loss(batch, Step(draws, wanted.due))
        assert torch.allclose(metrics["actor_loss"], expected["actor_loss"], rtol=1e-5)
        losses.append(metrics["actor_loss"][0].item())
    assert len(set(losses)) == 3
    assert losses[2] == pytest.approx(metrics["bc_loss"][0].item())  # at alpha = 0 there is nothing but cloning


def test_eager_and_compiled_runs_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "compile_traced", lambda traced: traced.graph)
    changes = {"beta": {"from": 0.0, "to": 3.0}, "expectile": 0.8}
    for engine in ("eager", "compile"):
        finetuned(tmp_path / engine, "iql", changes, engine=engine, env_steps=30)
    assert mode_of(tmp_path / "compile") == "compile"
    for here, there in zip(metric_rows(tmp_path / "eager"), metric_rows(tmp_path / "compile"), strict=True):
        assert there == pytest.approx(here, rel=1e-3, abs=1e-4)


def test_a_sweep_of_other_knobs_goes_on(tmp_path):
    result = finetuned(tmp_path, "iql", {"beta": {"to": 1.0}}, sweep={"expectile": [0.6, 0.9]}, env_steps=20)
    knobs = result.learner.knobs
    assert knobs.expectile.flatten().tolist() == pytest.approx([0.6, 0.9])
    assert knobs.beta.flatten().tolist() == pytest.approx([3.0 - 2.0 * 19 / 20] * 2)


def test_an_automatic_weight_does_not_hinder_a_sweep_of_another_knob():
    assert make_config(run_values("td3_bc", sweep={"gamma": [0.9, 0.99]})).algo_kwargs.alpha == "auto"


def test_from_the_shell_and_python(tmp_path, capsys):
    tiny_run(tmp_path, **RUN)
    setting = ("--set", "algo_kwargs.beta={to: 1.0}", "--set", "algo_kwargs.expectile=0.9", "--set", "replay=fresh")
    done = call_cli(capsys, "finetune", tmp_path, "--env-steps", "20", *setting, "--json")
    assert json.loads(done.stdout)["env_step"] == 20
    stored = load_checkpoint(checkpoints(tmp_path)[-1]).state["config"]["finetune"]
    assert stored["algo_kwargs"] == {"beta": {"to": 1.0}, "expectile": 0.9}
    longer = call_cli(capsys, "finetune", tmp_path, "--env-steps", "30", code=2)
    assert "finetune.env_steps was 20, is 30" in longer.stderr  # what moves spans the phase
    data, settings = {"kind": "random", "size": 300}, {**knobs_of("iql"), "batch_size": 32, "eval_episodes": 1}
    model = rl_training.IQL("Pendulum-v1", dataset=data, **settings).learn(20)
    with pytest.raises(ConfigError, match="Did you mean `beta`"):
        model.finetune(20, algo_kwargs={"bet": 1.0})
    model.finetune(20, algo_kwargs={"beta": 1.0}).finetune(30)
    assert model.config.finetune.algo_kwargs == {"beta": 1.0}
    with pytest.raises(ConfigError, match="finetune.algo_kwargs.beta was 1.0, is 2.0"):
        model.finetune(40, algo_kwargs={"beta": 2.0})


def spied_batches(path, algo="iql", **block):
    """The batches of the online phase, and how many transitions there were."""
    seen, learner = [], rl_training.experiment.registry.get_spec(algo).learner
    original = learner.loss

    def spy(self, batch, step):
        seen.append(batch)
        return original(self, batch, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "loss", spy)
        finetuned(path, algo, {}, block={"replay": "fresh", **block})
    return seen[40:]


def test_fresh_data_alone_after_steps_that_only_collect(tmp_path):
    """The warm-up of WSRL: the policy acts, nothing is learned, and prior data is gone."""
    batches = spied_batches(tmp_path, learning_starts=25)
    assert len(batches) == 36  # after steps 25, ..., 60
    assert all(batch.prior is None for batch in batches)
    assert len({row for batch in batches[:1] for row in batch.rewards.flatten().tolist()}) <= 25
    last = load_checkpoint(checkpoints(tmp_path)[-1])
    rows = rl_training.runtime.checkpoints.replay_store.read_replay(last)[0]
    collected = set(rows[:, 4].tolist())
    assert all(set(batch.rewards.flatten().tolist()) <= collected for batch in batches)
    assert [row["step"] for row in metric_rows(tmp_path) if row.get("env_step") == 20] == [40]


def test_fresh_data_needs_no_warm_up(tmp_path):
    batches = spied_batches(tmp_path)
    assert len(batches) == 60
    assert len(set(batches[0].rewards.flatten().tolist())) == 1  # the only transition there is


def test_fresh_data_resumes_exactly(tmp_path):
    run = partial(finetuned, algo="iql", changes={}, block={"replay": "fresh", "learning_starts": 15})
    run(tmp_path / "whole")
    die_at_each(partial(run, tmp_path / "cut"), [("log", 50)])
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_fresh_episodes_that_are_sampled_once_they_have_ended_must_end_first(tmp_path):
    with pytest.raises(ConfigError, match="set finetune.learning_starts to at least 200"):
        finetuned(tmp_path, "cal_ql", {}, block={"replay": "fresh", "learning_starts": 150})
    finetuned(tmp_path, "cal_ql", {}, env_steps=210, block={"replay": "fresh", "learning_starts": 200})
    assert load_checkpoint(checkpoints(tmp_path)[-1]).step == 51
    short = {"replay": "fresh", "learning_starts": 200, "buffer_capacity": 20}
    with pytest.raises(ConfigError, match="raise learning_starts or buffer_capacity above the length of an episode"):
        finetuned(tmp_path / "short", "cal_ql", {}, env_steps=230, block=short)


def test_a_knob_may_move_over_a_share_of_the_phase_and_stay():
    change = FinetuneConfig.checked({"env_steps": 10, "algo_kwargs": {"beta": {"to": 1.0, "over": 0.5}}}).changes["beta"]
    assert [change.at(done, 3.0) for done in (0.0, 0.25, 0.5, 0.9, 1.0)] == [3.0, 2.0, 1.0, 1.0, 1.0]
