"""Training from a file alone: spaces from the data, held-out losses, checkpoints that predict."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_training import IQL
from rl_training.data import TransitionDataset, load_dataset, split_dataset
from rl_training.errors import ConfigError, DatasetError
from rl_training.registry import REGISTRY
from tests.helpers import (
    SHARED,
    Notes,
    assert_same_run,
    call_cli,
    knobs_of,
    metric_rows,
    small_arrays,
    tiny_run,
)
from tests.logs import plant, table, write_csv

PURELY_OFFLINE = [spec.id for spec in REGISTRY.values() if not spec.online]


@pytest.fixture
def log(tmp_path):
    return write_csv(tmp_path / "log.csv", table(plant(rows=1200, length=40)))


@pytest.mark.parametrize("algo", PURELY_OFFLINE)
def test_every_offline_algorithm_reports_held_out_losses_and_builds_no_graph_for_them(algo, log, tmp_path, monkeypatch):
    learner_type, graphs = REGISTRY[algo].learner, []
    own = learner_type.loss

    def loss(self, batch, step):
        result = own(self, batch, step)
        if not torch.is_grad_enabled():  # as a validation calls it
            graphs.append(result[0].requires_grad)
        return result

    monkeypatch.setattr(learner_type, "loss", loss)
    tiny_run(tmp_path / "run", algo, env_id=None, algo_kwargs={"dataset": {"path": str(log)}})
    assert graphs == [False] * len(graphs) != []
    rows = [row for row in metric_rows(tmp_path / "run") if any(name.startswith("validation/") for name in row)]
    assert [row["step"] for row in rows] == [40, 80, 120]
    trained = {
        name.removeprefix("train/") for row in metric_rows(tmp_path / "run") for name in row if name.startswith("train/")
    }
    held_out = {name.removeprefix("validation/") for name in rows[-1] if name.startswith("validation/")}
    assert held_out >= {name for name in trained if "learning_rate" not in name}
    figures = {
        "action_distance",
        "constant_distance",
        "cloning_distance",
        "at_bound",
        "at_bound_data",
        "spread",
        "spread_data",
        "spread_cloning",
    }
    assert held_out >= figures
    assert ("q_policy" in held_out) == (algo != "bc")
    assert not any(name.startswith("eval/") for row in metric_rows(tmp_path / "run") for name in row)


def test_training_from_the_shell(log, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "c.yaml"
    config.write_text(
        "algo: iql\nenv_id: null\ntotal_timesteps: 60\neval_interval: 30\n"
        "algo_kwargs:\n  hidden_sizes: [16, 16]\n  batch_size: 32\n  dataset:\n    path: log.csv\n"
        "    columns: {observations: 'obs_*', actions: action_0, reward: reward, episode: episode, time: time}\n"
    )
    done = call_cli(capsys, "train", "c.yaml", "--run-dir", "run")
    assert "read as CSV" in done.stderr
    assert "returns cannot be measured" in done.stderr
    assert "action bounds (the recorded range): action_0 " in done.stderr
    assert "held out: actions " in done.stderr
    assert "seed 0: held out: actions " in done.stdout
    assert "rl-training predict" in done.stdout
    action = json.loads(call_cli(capsys, "predict", "run", "--obs", "[20, 0, 5]").stdout)
    assert len(action) == 1
    assert "env_id is null" in call_cli(capsys, "evaluate", "run", code=2).stderr
    resumed = call_cli(capsys, "resume", "run", "--total-timesteps", "90", "--json")
    assert json.loads(resumed.stdout)["step"] == 90


def test_the_same_losses_at_every_look(log, tmp_path):
    """A frozen policy has the same held-out loss at every step: rows and random numbers are the same."""
    frozen = {f"{group}_learning_rate": 1e-30 for group in ("actor", "critic", "temperature")}
    tiny_run(tmp_path / "run", "cql", env_id=None, algo_kwargs={"dataset": {"path": str(log)}, "tau": 1e-30, **frozen})
    losses = [row["validation/critic_loss"] for row in metric_rows(tmp_path / "run") if "validation/critic_loss" in row]
    assert len(losses) == 3
    assert losses[0] == pytest.approx(losses[2], rel=1e-6)


def test_held_out_losses_are_those_of_the_loss_function(tmp_path):
    """By hand: one batch of the held-out rows through the public loss."""
    from rl_training.algorithms.iql import iql_loss
    from rl_training.api.policy import Policy

    arrays = small_arrays(rows=400, length=20)
    data = TransitionDataset.from_dict(arrays, action_low=[-1, -1], action_high=[1, 1])
    plain = {"normalize_observations": False, "reward": {"normalize": False}}
    kwargs = {"validation": {"fraction": 0.2, "seed": 5}, "batch_size": 400, **plain}
    tiny_run(tmp_path / "run", env_id=None, dataset=data, algo_kwargs=kwargs)
    _, held = split_dataset(data, 0.2, seed=5)
    assert len(held) == 80
    policy = Policy.load(tmp_path / "run")
    batch = held.sample(1)
    tensors = {
        name: torch.from_numpy(np.asarray(getattr(held, name), dtype=np.float32))
        for name in ("observations", "actions", "rewards", "next_observations", "terminals")
    }
    knobs = policy.learner.knobs.model_dump()
    _, metrics = iql_loss(policy.learner.model, type(batch)(**tensors), **knobs)
    last = [row for row in metric_rows(tmp_path / "run") if "validation/critic_loss" in row][-1]
    for name in ("critic_loss", "value_loss", "actor_loss"):
        assert last[f"validation/{name}"] == pytest.approx(float(metrics[name].mean()), rel=1e-4), name


def test_training_never_sees_what_is_held_out(tmp_path):
    """Poison in the held-out episodes alone changes their losses and nothing else."""
    arrays = small_arrays(rows=400, length=20)
    data = TransitionDataset.from_dict(arrays, action_low=[-1, -1], action_high=[1, 1])
    from rl_training.data.subsets import held_out_episodes

    poisoned = {name: value.copy() for name, value in arrays.items()}
    for episode in held_out_episodes(data, 0.2, 5):
        poisoned["rewards"][episode * 20 : (episode + 1) * 20] += 1000.0
    runs = {"clean": data, "poisoned": TransitionDataset.from_dict(poisoned, action_low=[-1, -1], action_high=[1, 1])}
    kwargs = {"validation": {"fraction": 0.2, "seed": 5}}
    losses = {}
    for name, dataset in runs.items():
        tiny_run(tmp_path / name, env_id=None, dataset=dataset, algo_kwargs=kwargs)
        rows = metric_rows(tmp_path / name)
        losses[name] = [row["validation/critic_loss"] for row in rows if "validation/critic_loss" in row]
        (tmp_path / f"{name}.jsonl").write_text(json.dumps([row for row in rows if "validation/critic_loss" not in row]))
    assert (tmp_path / "clean.jsonl").read_text() == (tmp_path / "poisoned.jsonl").read_text()
    assert losses["poisoned"][-1] > 100 * losses["clean"][-1]


def test_resume_is_exact_with_validation(log, tmp_path):
    from tests.helpers import Cut, CutAt

    settings = {"env_id": None, "algo_kwargs": {"dataset": {"path": str(log)}}}
    tiny_run(tmp_path / "whole", **settings)
    for step in (40, 60, 80):
        with pytest.raises(Cut):
            tiny_run(tmp_path / f"cut{step}", callbacks=[CutAt("log", step)], **settings)
        tiny_run(tmp_path / f"cut{step}", resume=True, **settings)
        assert_same_run(tmp_path / "whole", tmp_path / f"cut{step}")


def test_validation_file_and_its_change(log, tmp_path):
    other = write_csv(tmp_path / "other.csv", table(plant(rows=400, length=40, seed=9)))
    settings = {"dataset": {"path": str(log)}, "validation": {"path": str(other)}}
    tiny_run(tmp_path / "run", env_id=None, algo_kwargs=settings, learning_rate_schedule="constant", total_timesteps=50)
    write_csv(other, table(plant(rows=400, length=40, seed=10)))
    with pytest.raises(DatasetError, match="data has changed since the checkpoint"):
        tiny_run(tmp_path / "run", env_id=None, algo_kwargs=settings, learning_rate_schedule="constant", resume=True)
    narrow = small_arrays(rows=50, length=10, observation_dim=2, action_dim=1)
    np.savez(tmp_path / "narrow.npz", **narrow)
    settings["validation"] = {"path": str(tmp_path / "narrow.npz")}
    with pytest.raises(DatasetError, match="differs from the training data"):
        tiny_run(tmp_path / "x", env_id=None, algo_kwargs=settings)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"validation": {"fraction": 1.0}}, "fraction"),
        ({"validation": {}}, "set either `fraction`"),
        ({"validation": {"fraction": 0.1, "path": "x"}}, "set either `fraction`"),
        ({"dataset": {"path": "x", "action_low": -1}}, "both `action_low` and `action_high`"),
        ({"dataset": {"path": "x", "columns": {"observations": "a"}}}, "is required"),
        ({"max_dataset_bytes": "2 apples"}, "such as 500MB or 2GiB"),
    ],
)
def test_settings_are_checked(kwargs, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        tiny_run(tmp_path / "run", env_id=None, algo_kwargs={"dataset": {"path": "x"}, **kwargs})


def test_of_few_episodes_the_last_tenth_of_each_is_held_out(tmp_path):
    for name, lengths, held in (("one", [60], 6), ("three", [20, 30, 50], 10), ("long", [5, 100], 10)):
        said = Notes()
        arrays = small_arrays(rows=sum(lengths), length=sum(lengths))
        arrays["timeouts"][:] = False
        arrays["timeouts"][np.cumsum(lengths) - 1] = True
        data = TransitionDataset.from_dict(arrays)
        tiny_run(tmp_path / name, env_id=None, dataset=data, reporter=said)
        assert any(f"held out: {held} rows, {sum(lengths) - held} to learn from" in note for note in said.notes), said.notes


def test_a_run_tells_in_short_what_it_read_and_its_record_tells_all(log, tmp_path):
    said = Notes()
    data = load_dataset(log)
    tiny_run(tmp_path / "run", env_id=None, dataset=data, reporter=said)
    (line,) = [note for note in said.notes if note.startswith("data: ")]
    count = len(data.episode_spans[0])
    assert line == f"data: {len(data):,} transitions in {count} episodes; {log}: read as CSV"
    record = json.loads((tmp_path / "run" / "run.json").read_bytes())
    assert record["dataset"]["origin"] == data.origin
    assert "ends: " in data.origin
    tiny_run(tmp_path / "long", env_id=None, dataset=replace(data, origin_in_short="many words " * 99), reporter=said)
    line = [note for note in said.notes if note.startswith("data: ")][-1]
    assert 400 < len(line) < 500
    assert line.endswith("words ...")


def test_nothing_is_held_out_on_request(tmp_path):
    one = TransitionDataset.from_dict(small_arrays(rows=60, length=60))
    many = TransitionDataset.from_dict(small_arrays(rows=60, length=10))
    tiny_run(tmp_path / "none", env_id=None, dataset=many, algo_kwargs={"validation": {"fraction": 0.0}})
    assert not any("validation/critic_loss" in row for row in metric_rows(tmp_path / "none"))
    with pytest.raises(DatasetError, match="only one episode"):
        tiny_run(tmp_path / "x", env_id=None, dataset=one, algo_kwargs={"validation": {"fraction": 0.5}})


def test_validation_beside_an_environment(tmp_path):
    tiny_run(tmp_path / "run", algo_kwargs={"validation": {"fraction": 0.34}})
    rows = metric_rows(tmp_path / "run")
    assert [row["step"] for row in rows if "eval/return_mean" in row] == [40, 80, 120]
    assert [row["step"] for row in rows if "validation/critic_loss" in row] == [40, 80, 120]


def test_the_cheap_part_of_the_doctor_speaks_up(tmp_path, capsys):
    arrays = small_arrays(rows=200, length=20)
    arrays["observations"][:, 1] = arrays["next_observations"][:, 1] = 7.0
    np.savez(tmp_path / "d.npz", **arrays)
    tiny_run(tmp_path / "run", env_id=None, algo_kwargs={"dataset": {"path": str(tmp_path / "d.npz")}}, reporter=None)
    assert "constant-column: " in capsys.readouterr().err


@pytest.mark.parametrize("bound", [4, [4], [4, 4]])
def test_bounds_may_be_given(bound, tmp_path):
    """A number for each action, or one for both."""
    np.savez(tmp_path / "d.npz", **small_arrays(rows=200, length=20))
    given = {"path": str(tmp_path / "d.npz"), "action_low": -4, "action_high": bound}
    model = IQL(dataset=given, hidden_sizes=[8, 8], batch_size=16).learn(5)
    assert model.policy.spaces.action_low.tolist() == [-4, -4]
    assert model.policy.spaces.action_high.tolist() == [4, 4]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the third-party data is not here")
@pytest.mark.parametrize("algo", ["iql", "cql"])
def test_third_party_plant_without_its_environment(algo, tmp_path, capsys):
    config = tmp_path / "c.yaml"
    knobs = "\n".join(f"  {name}: {json.dumps(value)}" for name, value in knobs_of(algo).items())
    config.write_text(
        f"algo: {algo}\nenv_id: null\ntotal_timesteps: 200\neval_interval: 100\nalgo_kwargs:\n{knobs}\n"
        f"  dataset: {{path: {SHARED / 'DMSD-high-100000-train.npz'}}}\n"
        f"  validation: {{path: {SHARED / 'DMSD-high-20000-val.npz'}}}\n"
    )
    call_cli(capsys, "train", config, "--run-dir", tmp_path / "run")
    losses = [row["validation/critic_loss"] for row in metric_rows(tmp_path / "run") if "validation/critic_loss" in row]
    assert len(losses) == 2
    observation = load_dataset(SHARED / "DMSD-high-20000-val.npz").observations[0].tolist()
    action = json.loads(call_cli(capsys, "predict", tmp_path / "run", "--obs", json.dumps(observation)).stdout)
    assert len(action) == 2
    assert all(-1 <= value <= 1 for value in action)


def test_arrays_and_frames_in_python():
    arrays = small_arrays(rows=200, length=20)
    settings = {"hidden_sizes": [8, 8], "batch_size": 16}
    by_name = IQL(dataset=arrays, **settings).learn(5)
    short = {"obs": arrays["observations"], "action": arrays["actions"], "reward": arrays["rewards"]}
    short |= {"next_obs": arrays["next_observations"], "terminated": arrays["terminals"], "truncated": arrays["timeouts"]}
    again = IQL(dataset=short, **settings).learn(5)
    assert np.array_equal(by_name.predict(arrays["observations"])[0], again.predict(arrays["observations"])[0])
    pandas = pytest.importorskip("pandas")
    framed = IQL(dataset=pandas.DataFrame(table(TransitionDataset.from_dict(arrays).fields())), **settings).learn(5)
    assert np.array_equal(by_name.predict(arrays["observations"])[0], framed.predict(arrays["observations"])[0])


def test_a_finished_run_says_that_nothing_is_left(tmp_path):
    data = TransitionDataset.from_dict(small_arrays(rows=60, length=10))
    for schedule, advice in (({"kind": "constant"}, "raise total_timesteps"), ("cosine", "a schedule spans the whole run")):
        changes = {"env_id": None, "dataset": data, "learning_rate_schedule": schedule}
        tiny_run(tmp_path / advice, **changes)
        said = Notes()
        tiny_run(tmp_path / advice, resume=True, reporter=said, **changes)
        assert any(f"has spent its budget; {advice}" in text for text in said.warnings)
    model = IQL(dataset=data, hidden_sizes=[8, 8], batch_size=16, log_interval=5, reporter=(said := Notes()))
    model.learn(20, callback=lambda _step, _rows: False)
    model.learn(40)
    assert any("every member has stopped by step 5" in text for text in said.warnings)
