"""`select_by`: the best checkpoint of a run without an environment, by a score on held-out rows."""

import math

import numpy as np
import pytest

from rl_training.analysis.logged_run import LoggedRun
from rl_training.api.policy import Policy
from rl_training.config.loading import make_config
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.export import export_member
from rl_training.ope.fqe import FQEOptions
from rl_training.registry import REGISTRY
from rl_training.runtime.checkpoints.checkpoint import CheckpointStore
from rl_training.runtime.checkpoints.member import member_of
from rl_training.runtime.evaluating.selecting import Selector, _fqe
from rl_training.runtime.offline_data import offline_data
from rl_training.tuning.scores import Rule, trial_result
from tests.helpers import Cut, CutAt, Notes, assert_same_run, call_cli, metric_rows, run_values, tiny_run
from tests.logs import plant, table, write_csv

COLUMN = {"action_distance": "action_distance", "td_error": "critic_loss", "validation_loss": "actor_loss"}


@pytest.fixture
def log(tmp_path):
    return write_csv(tmp_path / "log.csv", table(plant(rows=1200, length=40)))


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr("rl_training.runtime.evaluating.selecting._FQE_BUDGET", FQEOptions(steps=100, turns=2, ensemble=2))


def settings(log, **changes):
    return {"env_id": None, "algo_kwargs": {"dataset": {"path": str(log)}}, **changes}


def best_step(run):
    return Policy.load(run, which="best").learner.step


def scores(run, name):
    """The mean over members of a held-out figure at each evaluation, by step."""
    found = {}
    for row in metric_rows(run):
        if name in row:
            found.setdefault(row["step"], []).append(row[name])
    return {step: np.mean(values) for step, values in found.items()}


@pytest.mark.parametrize("by", COLUMN)
def test_the_best_checkpoint_has_the_lowest_mean(by, log, tmp_path):
    notes = Notes()
    result = tiny_run(tmp_path / "run", select_by=by, seeds=[0, 1], reporter=notes, **settings(log))
    found = scores(tmp_path / "run", f"validation/{COLUMN[by]}")
    assert len(found) == 3
    assert best_step(tmp_path / "run") == min(found, key=found.get)
    best = [note for note in notes.notes if note.endswith(" (the best so far)")][-1]
    assert f", score {-min(found.values()):.4g}, " in best
    assert [record.last_return for record in result.members] == [None, None]  # scores are no returns


def test_the_best_member_is_chosen_by_its_last_score(log, tmp_path, monkeypatch, capsys):
    given = iter([[9.0, 1.0, 2.0], [0.0, 3.0, 2.0], [1.0, 2.0, math.nan]])
    monkeypatch.setattr("rl_training.runtime.evaluating.selecting._held_out", lambda *_: lambda _learner, _rows: next(given))
    result = tiny_run(tmp_path / "run", select_by="action_distance", seeds=[4, 5, 6], **settings(log))
    assert [record.last_score for record in result.members] == [1.0, 2.0, None]
    assert Policy.load(tmp_path / "run").best_member() == 1
    assert Policy.load(tmp_path / "run", which="40").best_member() == 0
    words = "the best by last score (select_by: action_distance)"
    done = call_cli(capsys, "predict", tmp_path / "run", "--obs", "[0.1, 0.2, 0.3]")
    assert f"member 1, seed 5, {words}" in done.stderr
    named = call_cli(capsys, "predict", tmp_path / "run", "--obs", "[0.1, 0.2, 0.3]", "--member", "2").stderr
    assert "member" not in named
    made = call_cli(capsys, "export", tmp_path / "run", "--out", tmp_path / "made").stdout
    assert "member 1 of 3, seed 5 (the best by its last score (select_by: action_distance))" in made


def test_the_pointer_moves_only_when_the_score_improves(log, tmp_path, monkeypatch):
    given = iter([[1.0], [3.0], [2.0]])
    monkeypatch.setattr("rl_training.runtime.evaluating.selecting._held_out", lambda *_: lambda _learner, _rows: next(given))
    tiny_run(tmp_path / "run", select_by="action_distance", **settings(log))
    assert best_step(tmp_path / "run") == 80


def test_a_score_that_is_not_finite_is_never_the_best():
    given = iter([[math.nan], [1.0], [math.inf], [2.0], [1.5]])
    selector = Selector(lambda _learner, _rows: next(given))
    assert [selector.take(selector.scores(None, []), [0]) for _ in range(5)] == [False, True, False, True, False]


def test_only_members_that_still_train_count():
    selector = Selector(lambda _learner, _rows: [])
    selector.take([100.0, 1.0, 3.0], [1, 2])
    assert selector.best == 2.0


def test_the_penalty_of_cql_is_no_td_error(log, tmp_path):
    tiny_run(tmp_path / "run", "cql", select_by="td_error", **settings(log))
    loss, penalty = (scores(tmp_path / "run", f"validation/{name}") for name in ("critic_loss", "conservative_loss"))
    errors = {step: loss[step] - penalty[step] for step in loss}
    assert best_step(tmp_path / "run") == min(errors, key=errors.get)


@pytest.mark.parametrize(("place", "step"), [("log", 40), ("log", 60), ("checkpoint", 80), ("log", 80)])
def test_a_killed_and_resumed_run_ends_identical(place, step, log, tmp_path):
    own = settings(log, select_by="action_distance", seeds=[0, 1])
    tiny_run(tmp_path / "whole", **own)
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", callbacks=[CutAt(place, step)], **own)
    tiny_run(tmp_path / "cut", resume=True, **own)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    assert best_step(tmp_path / "whole") == best_step(tmp_path / "cut")
    kept = [CheckpointStore(tmp_path / name / "checkpoints", 2).load("latest").state["held_out"] for name in ("whole", "cut")]
    assert kept[0] == kept[1]
    assert kept[0]["best_score"] == -min(scores(tmp_path / "cut", "validation/action_distance").values())


def test_a_member_alone_begins_without_the_score_of_all(log, tmp_path):
    tiny_run(tmp_path / "run", select_by="action_distance", seeds=[0, 1], **settings(log))
    path = export_member(tmp_path / "run", tmp_path / "one", member=1)
    assert "best_score" not in CheckpointStore(path / "checkpoints", 2).load("latest").state["held_out"]


def test_without_it_there_is_no_best_checkpoint(log, tmp_path):
    tiny_run(tmp_path / "run", **settings(log))
    with pytest.raises(CheckpointError, match="evaluations in an environment or `select_by` choose one"):
        best_step(tmp_path / "run")


def test_from_the_shell(log, tmp_path, capsys):
    small = ("--set", "algo_kwargs.hidden_sizes=[8]", "--set", "eval_interval=20", "--set", "select_by=td_error")
    done = call_cli(capsys, "train", "iql", "--dataset", log, "--total-timesteps", 40, "--run-dir", tmp_path / "run", *small)
    assert f"evaluate {tmp_path / 'run'} --data PATH --best" in done.stdout
    assert "after " in call_cli(capsys, "evaluate", tmp_path / "run", "--data", log, "--best").stdout


FOLLOWS_ITS_CRITICS = ["cql", "cal_ql", "sac_n", "edac"]


@pytest.mark.parametrize("algo", FOLLOWS_ITS_CRITICS)
def test_a_policy_that_is_not_fitted_to_data_has_no_loss_to_go_by(algo, log, tmp_path):
    with pytest.raises(ConfigError, match=f"{algo}'s is not: use action_distance, td_error or fqe"):
        tiny_run(tmp_path / "run", algo, select_by="validation_loss", **settings(log))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    "algo", [spec.id for spec in REGISTRY.values() if not spec.online and spec.id not in FOLLOWS_ITS_CRITICS]
)
def test_every_other_offline_algorithm_has_one(algo, log, tmp_path):
    tiny_run(tmp_path / "run", algo, select_by="validation_loss", total_timesteps=10, eval_interval=10, **settings(log))
    assert best_step(tmp_path / "run") == 10


@pytest.mark.parametrize(
    ("algo", "changes", "message"),
    [
        ("iql", {"select_by": "fqe", "env_id": "Pendulum-v1"}, "`select_by` is for runs without an environment"),
        ("bc", {"select_by": "td_error", "env_id": None}, "needs critics, and bc has none"),
        ("iql", {"select_by": "reward", "env_id": None}, "select_by"),
    ],
)
def test_what_a_config_refuses(algo, changes, message):
    with pytest.raises(ConfigError, match=message):
        make_config(run_values(algo, **changes))


def test_held_out_rows_are_needed(log, tmp_path):
    kwargs = {"dataset": {"path": str(log)}, "validation": {"fraction": 0.0}}
    with pytest.raises(ConfigError, match=r"none are: set algo_kwargs\.validation\.fraction"):
        tiny_run(tmp_path / "run", env_id=None, select_by="action_distance", algo_kwargs=kwargs)


def fqe_of(run):
    """The score of `select_by: fqe` for a run, and its last checkpoint."""
    last = CheckpointStore(run / "checkpoints", 2).load()
    config = make_config(last.state["config"])
    return _fqe(config, offline_data(config, None, Notes(), lambda: None)), last


def test_the_score_of_a_policy_does_not_depend_on_those_beside_it(log, tmp_path):
    tiny_run(tmp_path / "run", select_by="fqe", seeds=[0, 1, 2], eval_interval=120, **settings(log))
    score, last = fqe_of(tmp_path / "run")
    together = score(Policy.from_checkpoint(last).learner, [])
    alone = [score(Policy.from_checkpoint(member_of(last, member)).learner, [])[0] for member in range(3)]
    assert together == pytest.approx(alone, rel=1e-4, nan_ok=True)
    assert len({value for value in together if math.isfinite(value)}) >= 2


def test_a_value_that_the_rewards_do_not_allow_is_no_score(log, tmp_path, monkeypatch):
    monkeypatch.setattr("rl_training.ope.episodes.Episodes.possible_values", lambda *_: (1e6, 2e6))
    tiny_run(tmp_path / "run", select_by="fqe", **settings(log))
    assert not any(row.get("validation/score") for row in metric_rows(tmp_path / "run"))
    run = LoggedRun.load(tmp_path / "run")
    found = trial_result(run, [0], Rule(select_by="fqe"))
    assert (found.values, found.seeds) == (None, [None])
    assert found.why_failed == "1 of 1 seeds have no score: fitted Q evaluation found values that the rewards do not allow"
    with pytest.raises(CheckpointError, match="no best checkpoint"):
        best_step(tmp_path / "run")


def test_the_discount_of_the_score_may_be_another_than_that_of_training(log, tmp_path):
    kwargs = {**settings(log)["algo_kwargs"], "gamma": 0.5}
    for name, changes in (("own", {}), ("same", {"select_gamma": 0.5}), ("other", {"select_gamma": 0.9})):
        tiny_run(tmp_path / name, select_by="fqe", eval_interval=120, env_id=None, algo_kwargs=kwargs, **changes)
    own, same, other = (scores(tmp_path / name, "validation/score")[120] for name in ("own", "same", "other"))
    assert own == same
    assert other != own
    with pytest.raises(ConfigError, match="`select_gamma` is the discount of `select_by: fqe`, which is not set"):
        make_config(run_values(select_gamma=0.9))


def test_fitted_q_evaluation_chooses_the_policy_that_would_earn_most(log, tmp_path):
    tiny_run(tmp_path / "run", select_by="fqe", **settings(log))
    store = CheckpointStore(tmp_path / "run" / "checkpoints", 2)
    found = store.load("best").state["held_out"]
    assert math.isfinite(found["best_score"])
    score, _ = fqe_of(tmp_path / "run")
    assert score(Policy.from_checkpoint(store.load("best")).learner, []) == [found["best_score"]]
    assert score(Policy.from_checkpoint(store.load()).learner, [])[0] <= found["best_score"]
