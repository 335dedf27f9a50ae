"""What reaches a backend, with one that keeps rows in memory: every row once, whatever happens to the run or the backend."""

import json
from collections import defaultdict
from threading import Event

import pytest
import yaml

from rl_training.api import IQL
from rl_training.errors import ConfigError
from rl_training.experiment.manager import ExperimentManager
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from rl_training.tracking import backends, tracker
from tests.helpers import (
    ROOT,
    Notes,
    assert_same_run,
    call_cli,
    checkpoints,
    die_at_each,
    metric_rows,
    run_cli,
    run_values,
    tiny_run,
)

COUNTERS = {"step", "env_step", "member", "seed", "event"}


class Memory:
    """A backend whose contents outlive a run; it loses the last rows of one that is not finished, as a kill does."""

    def __init__(self, lost=0):
        self.rows, self.subjects, self.lost = defaultdict(list), [], lost

    def open(self, subject):
        self.subjects.append(subject)
        return MemorySink(self, subject)

    def series(self, run=-1, member=0):
        return self.rows[(list(dict.fromkeys(subject.id for subject in self.subjects))[run], member)]

    def check_mirrors(self, run_dir, members=1):
        for member in range(members):
            found = [row for row in metric_rows(run_dir) if row["member"] == member]
            sent = self.series(member=member)
            assert [row.index for row in sent] == list(range(len(found)))
            for row, line in zip(sent, found, strict=True):
                assert row.values == {name: value for name, value in line.items() if name not in COUNTERS}


class MemorySink:
    where = "in memory"

    def __init__(self, memory, subject):
        self.memory, self.subject = memory, subject
        self.held = {member.number: len(memory.rows[subject.id, member.number]) for member in subject.members}

    def send(self, rows):
        for row in rows:
            if row.index >= self.held[row.member]:
                self.memory.rows[self.subject.id, row.member].append(row)

    def close(self, *, finished):
        for member in self.held if self.memory.lost and not finished else ():
            del self.memory.rows[self.subject.id, member][-self.memory.lost :]


@pytest.fixture
def memory(monkeypatch):
    return use(monkeypatch, "tensorboard", Memory())


def use(monkeypatch, name, backend):
    monkeypatch.setitem(backends._BACKENDS, name, lambda: backend.open)
    return backend


def test_every_row_once_and_training_as_without(memory, tmp_path):
    reporter = Notes()
    tiny_run(tmp_path / "logged", log=["tensorboard"], reporter=reporter)
    tiny_run(tmp_path / "plain")
    assert_same_run(tmp_path / "plain", tmp_path / "logged")
    memory.check_mirrors(tmp_path / "logged")
    steps = [row.position for row in memory.series()]
    assert steps == [row["step"] for row in metric_rows(tmp_path / "logged")]
    assert reporter.notes.count("tensorboard: in memory") == 1
    assert reporter.warnings == []


def test_checkpoints_differ_in_the_setting_alone(memory, tmp_path):
    states = []
    for name, log in (("logged", ["tensorboard"]), ("plain", [])):
        tiny_run(tmp_path / name, log=log)
        states.append(load_checkpoint(checkpoints(tmp_path / name)[-1]).state)
    assert states[0]["config"].pop("log") == ["tensorboard"]
    assert states[1]["config"].pop("log") == []
    assert states[0] == states[1]


@pytest.mark.parametrize("lost", [0, 1, 5])
def test_a_run_that_dies_and_resumes_repeats_and_omits_nothing(memory, tmp_path, lost):
    memory.lost = lost

    def run(**options):
        tiny_run(tmp_path / "cut", log="tensorboard", seeds=[0, 1], **options)

    die_at_each(run, [("log", 50), ("log", 70), ("evaluation", 80), ("checkpoint", 90)])
    memory.check_mirrors(tmp_path / "cut", members=2)
    assert len({subject.id for subject in memory.subjects}) == 1


def test_late_results_of_evaluations_beside_training(memory, tmp_path):
    tiny_run(tmp_path / "run", log="tensorboard", eval_mode="beside")
    memory.check_mirrors(tmp_path / "run")
    positions = [row.position for row in memory.series()]
    assert positions != sorted(positions)  # why a row is known by its number


def test_a_run_that_starts_over_is_a_new_one(memory, tmp_path):
    for _ in range(2):
        tiny_run(tmp_path / "run", log="tensorboard", overwrite=True)
    assert len({subject.id for subject in memory.subjects}) == 2
    memory.check_mirrors(tmp_path / "run")


def test_a_run_that_goes_on_elsewhere_is_a_new_one(memory, tmp_path):
    tiny_run(tmp_path / "run", log="tensorboard")
    manager, checkpoint = ExperimentManager.resuming(checkpoints(tmp_path / "run")[0], tmp_path / "new")
    manager.train(resume=True, checkpoint=checkpoint)
    memory.check_mirrors(tmp_path / "new")
    assert len({subject.id for subject in memory.subjects}) == 2
    assert memory.series()[0].position > checkpoint.step


def finetune(run, *, run_dir=None, env_steps=60):
    manager, checkpoint = ExperimentManager.finetuning(run, {"env_steps": env_steps, "learning_starts": 9}, run_dir)
    reporter = Notes()
    manager.train(resume=True, checkpoint=checkpoint, reporter=reporter)
    return reporter


def test_a_finetune_goes_on_where_the_offline_phase_ended(memory, tmp_path):
    tiny_run(tmp_path / "run", log="tensorboard", learning_rate_schedule="constant")
    finetune(tmp_path / "run")
    memory.check_mirrors(tmp_path / "run")
    positions = [row.position for row in memory.series()]
    assert positions == sorted(positions)
    assert positions[-1] == 120 + 60
    finetune(tmp_path / "run", env_steps=80)
    memory.check_mirrors(tmp_path / "run")
    assert memory.series()[-1].position == 120 + 80


def test_a_finetune_in_a_directory_of_its_own_has_the_same_positions(memory, tmp_path):
    tiny_run(tmp_path / "run", log="tensorboard")
    finetune(tmp_path / "run", run_dir=tmp_path / "fine")
    memory.check_mirrors(tmp_path / "fine")
    assert memory.series()[-1].position == 120 + 60


def test_another_way_from_an_earlier_checkpoint_is_a_new_run(memory, tmp_path):
    tiny_run(tmp_path / "run", log="tensorboard", keep_checkpoints=9)
    earlier = next(path for path in checkpoints(tmp_path / "run") if load_checkpoint(path).step == 60)
    reporter = finetune(earlier)
    assert len({subject.id for subject in memory.subjects}) == 2
    memory.check_mirrors(tmp_path / "run")
    assert len([note for note in reporter.notes if "logged as a new one" in note]) == 1


def test_the_same_way_from_an_earlier_checkpoint_is_the_same_run(memory, tmp_path):
    tiny_run(tmp_path / "run", log="tensorboard", keep_checkpoints=9)
    manager, checkpoint = ExperimentManager.resuming(checkpoints(tmp_path / "run")[0])
    manager.train(resume=True, checkpoint=checkpoint)
    assert len({subject.id for subject in memory.subjects}) == 1
    memory.check_mirrors(tmp_path / "run")


def test_a_shorter_end_than_was_logged_is_a_new_run(memory, tmp_path):
    constant = {"log": "tensorboard", "learning_rate_schedule": "constant", "keep_checkpoints": 9}
    tiny_run(tmp_path / "run", **constant)
    manager, checkpoint = ExperimentManager.resuming(checkpoints(tmp_path / "run")[0])
    manager.config = manager.config.model_copy(update={"total_timesteps": 90})
    manager.train(resume=True, checkpoint=checkpoint)
    assert len({subject.id for subject in memory.subjects}) == 2
    memory.check_mirrors(tmp_path / "run")


def test_a_run_killed_before_its_first_checkpoint_stays_the_same_run(memory, tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(RuntimeError, match="killed"):
        tiny_run(tmp_path / "run", log="tensorboard", callbacks=[stop_at(20)])
    assert not checkpoints(tmp_path / "run")
    tiny_run(tmp_path / "run", log="tensorboard", resume=True)
    assert len({subject.id for subject in memory.subjects}) == 1
    memory.check_mirrors(tmp_path / "run")


def stop_at(wanted):
    def stop(step, rows):
        if step == wanted:
            raise RuntimeError("killed")

    return stop


def test_a_backend_that_is_named_later_gets_everything(monkeypatch, memory, tmp_path):
    other = use(monkeypatch, "mlflow", Memory())
    with pytest.raises(RuntimeError, match="killed"):
        tiny_run(tmp_path / "run", log="tensorboard", callbacks=[stop_at(50)])
    tiny_run(tmp_path / "run", log=["tensorboard", "mlflow"], resume=True)
    memory.check_mirrors(tmp_path / "run")
    other.check_mirrors(tmp_path / "run")


class Failing(Memory):
    """Raises where it is told to."""

    def __init__(self, place, after=0):
        super().__init__()
        self.place, self.after = place, after

    def open(self, subject):
        if self.place == "open":
            raise SystemExit("no such server\nwith details")
        sink, failing = super().open(subject), self
        send, close = sink.send, sink.close

        def sometimes(rows):
            if failing.place == "send" and len(failing.series()) >= failing.after:
                raise OSError(28, "No space left on device")
            send(rows)

        def never(*, finished):
            if failing.place == "close":
                raise ConnectionError
            close(finished=finished)

        sink.send, sink.close = sometimes, never
        return sink


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("open", "SystemExit: no such server with details"),
        ("send", "OSError: [Errno 28] No space left on device"),
        ("close", "ConnectionError"),
    ],
)
def test_a_failing_backend_costs_one_warning(monkeypatch, memory, tmp_path, place, why):
    failing, reporter = use(monkeypatch, "wandb", Failing(place, after=5)), Notes()
    tiny_run(tmp_path / "run", log=["wandb", "tensorboard"], reporter=reporter)
    advice = f"`rl-training resume {tmp_path / 'run'} --log wandb` sends what is missing"
    assert reporter.warnings == [f"wandb: {why}; the run goes on without it, and {advice}"]
    memory.check_mirrors(tmp_path / "run")
    tiny_run(tmp_path / "plain")
    assert_same_run(tmp_path / "plain", tmp_path / "run")

    failing.place = "nowhere"
    tiny_run(tmp_path / "run", log=["wandb"], resume=True)  # which has nothing left to train
    failing.check_mirrors(tmp_path / "run")


def test_a_backend_that_hangs_is_left_behind(monkeypatch, memory, tmp_path):
    released = Event()

    class Hanging(Memory):
        def open(self, subject):
            released.wait()
            return super().open(subject)

    use(monkeypatch, "mlflow", Hanging())
    monkeypatch.setattr(tracker, "WAIT_SECONDS", 0.01)
    reporter = Notes()
    tiny_run(tmp_path / "run", log=["mlflow"], reporter=reporter)
    released.set()
    (warning,) = reporter.warnings
    assert warning.startswith("mlflow: did not take the last rows within 0 seconds; the run goes on without it")


def test_what_tells_of_the_rows_cannot_be_written(memory, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tracking.jsonl").mkdir()  # what no one can write to, root included
    reporter = Notes()
    with pytest.raises(ConfigError, match="not from a run"):
        tiny_run(tmp_path / "run", log="tensorboard", reporter=reporter)

    def spoil(step, rows):
        if step == 50:
            (tmp_path / "other" / "tracking.jsonl").unlink()

    tiny_run(tmp_path / "other", log="tensorboard", callbacks=[spoil], reporter=reporter)
    (warning,) = reporter.warnings
    assert warning.startswith("tensorboard: FileNotFoundError")
    tiny_run(tmp_path / "plain")
    assert_same_run(tmp_path / "plain", tmp_path / "other")


def test_events_are_rows_too(memory, tmp_path):
    tiny_run(tmp_path / "run", log="tensorboard", early_stopping={"threshold": -1e9})
    assert [row.values for row in memory.series() if "event/stopped" in row.values] == [{"event/stopped": 1.0}]
    assert memory.series()[-1].values == {"event/stopped": 1.0}


def test_members_of_a_sweep_and_their_hyperparameters(memory, tmp_path):
    sweep = {"expectile": [0.7, 0.70000001]}
    tiny_run(tmp_path / "run", log="tensorboard", seeds=[3, 4], sweep=sweep)
    (subject,) = memory.subjects
    assert [member.name for member in subject.members] == [
        "0_expectile-0.7_seed-3",  # numbered, because both values are written alike
        "1_expectile-0.7_seed-4",
        "2_expectile-0.7_seed-3",
        "3_expectile-0.7_seed-4",
    ]
    assert subject.project == "rl-training-Pendulum-v1"
    assert subject.name == "iql-run"
    settings = subject.members[3].hyperparameters
    assert (settings["seed"], settings["algo_kwargs.expectile"]) == (4, 0.70000001)
    assert settings["algo_kwargs.hidden_sizes"] == "[16, 16]"
    assert not {"seeds", "sweep", "log"} & set(settings)
    assert "knob/expectile" in metric_rows(tmp_path / "run")[0]
    assert not any(name.startswith("knob/") for row in memory.series() for name in row.values)


def test_the_command_line_goes_on_with_what_a_run_has(memory, monkeypatch, tmp_path, capsys):
    other, run = use(monkeypatch, "wandb", Memory()), tmp_path / "run"
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(run_values(learning_rate_schedule="constant")))
    call_cli(capsys, "train", tmp_path / "c.yaml", "--run-dir", run, "--log", "tensorboard", "--log", "tensorboard")
    call_cli(capsys, "resume", run, "--total-timesteps", 140)
    memory.check_mirrors(run)
    call_cli(capsys, "resume", run, "--total-timesteps", 160, "--log", "wandb")
    call_cli(capsys, "resume", run, "--total-timesteps", 180, "--log", "none")
    assert [row.position for row in memory.series()][-1] == 140
    assert [row.position for row in other.series()][-1] == 160
    assert ExperimentManager.open(run).config.log == ()
    call_cli(
        capsys, "finetune", run, "--env-steps", 40, "--set", "learning_starts=9", "--log", "wandb", "--log", "tensorboard"
    )
    memory.check_mirrors(run)
    other.check_mirrors(run)
    assert {subject.id for subject in other.subjects} == {subject.id for subject in memory.subjects}


def test_managed_algorithms_take_the_setting(memory, tmp_path):
    recipe, small = {"kind": "random", "size": 300, "seed": 0}, {"hidden_sizes": [16, 16], "batch_size": 16}
    model = IQL("Pendulum-v1", dataset=recipe, run_dir=tmp_path / "run", log="tensorboard", log_interval=10, **small)
    model.learn(20)
    model.learn(40)
    memory.check_mirrors(tmp_path / "run")
    assert len(memory.subjects) == 2
    with pytest.raises(ConfigError, match=r"Did you mean `mlflow`\?"):
        IQL("Pendulum-v1", log=["mlflw"])


def test_a_damaged_record_is_begun_again(memory, tmp_path):
    tiny_run(tmp_path / "run", log="tensorboard")
    (tmp_path / "run" / "tracking.jsonl").write_text("{")
    tiny_run(tmp_path / "run", log="tensorboard", resume=True)
    memory.check_mirrors(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "tracking.jsonl").read_text().splitlines()[0])["id"] == memory.subjects[-1].id


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow", "trackio"])
def test_a_missing_library_is_said_before_anything_is_done(tmp_path, name):
    (tmp_path / f"{name}.py").write_text("raise ModuleNotFoundError('No module', name=__name__)\n")
    where = f"{tmp_path}:{ROOT / 'src'}"
    done = run_cli("train", "iql/pendulum", "--run-dir", tmp_path / "run", "--log", name, code=2, PYTHONPATH=where)
    assert done.stderr.splitlines()[-1] == f'error: --log {name}: {name} is not installed: pip install "rl-training[{name}]"'
    assert not (tmp_path / "run").exists()


def test_names_are_checked(tmp_path):
    done = run_cli("train", "iql/pendulum", "--log", "tensorbord", code=2)
    assert "Did you mean `tensorboard`?" in done.stderr
    done = run_cli("train", "iql/pendulum", "--log", "none", "--log", "wandb", code=2)
    assert "excludes other names" in done.stderr
