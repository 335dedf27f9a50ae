"""`rl-training bench --end-to-end`: figures of whole runs, of their start, and of the other library, played by a stub."""

import json
import signal
import sys
import tempfile

import pytest

from rl_training.bench import end_to_end, settings
from rl_training.bench.against import SB3
from rl_training.bench.end_to_end import Turns, run_figures, time_to_first_steps
from rl_training.cli import run
from rl_training.errors import ConfigError
from tests.bench.test_bench import WORKER, stub

TINY = ["--end-to-end", "--hidden", "16,16", "--batch-size", "8", "--steps", "40", "--rows", "60"]
CPU = ["--device", "cpu", "--engine", "eager"]
START = {"seconds": 3.0, "imports": 1.5, "setup": 0.5, "first_steps": 1.0, "steps": 7}


@pytest.fixture
def no_starts(monkeypatch):
    monkeypatch.setattr(end_to_end, "time_to_first_steps", lambda *_: START)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(settings, "EVAL_INTERVAL", 20)
    monkeypatch.setattr(settings, "EVAL_EPISODES", 2)
    monkeypatch.setattr(end_to_end, "_ROUND_STEPS", 10)


def bench(capsys, *arguments):
    code = run(["bench", *TINY, *CPU, *arguments])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out, err


def test_figures_are_those_between_the_first_gradient_steps_and_the_end():
    def row(env_step, step, seconds, environments, evaluation):
        return {
            "env_step": env_step,
            "step": step,
            "seconds": seconds,
            "seconds/environments": environments,
            "seconds/evaluation": evaluation,
        }

    rows = [row(20, 5, 31.0, 1.0, 0.0), row(30, 15, 33.0, 1.5, 0.5), row(60, 45, 41.0, 3.0, 2.0)]
    assert run_figures(rows, 400, members=3) == {
        "steps": 400,
        "seconds": 100.0,
        "steps_per_second": 4.0,
        "steps_per_second_of_all_members": 12.0,
        "steps_per_second_between_evaluations": 5.0,
        "shares": {"environments": 0.2, "evaluation": 0.2},
    }
    with pytest.raises(ConfigError, match="raise --steps"):
        run_figures(rows[:1], 400, members=3)


@pytest.mark.usefixtures("no_starts", "small")
def test_an_online_run_in_turns_with_the_other_library(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv(SB3.variable, stub(tmp_path, WORKER))
    out, err = bench(
        capsys,
        "--algo",
        "sac",
        "--members",
        "2",
        "--against",
        "sb3",
        "--seconds",
        "0.1",
        "--env-kwargs",
        "{g: 9.5}",
        "--json",
    )
    figures = json.loads(out)
    (result,) = figures["results"]
    assert (result["algo"], result["env"], result["members"], result["unit"]) == ("sac", "Pendulum-v1", 2, "environment step")
    assert (result["engine"], result["device"], result["hidden_sizes"], result["batch_size"]) == ("eager", "cpu", [16, 16], 8)
    assert result["starts"] == [START, START]
    assert result["steps_per_second_of_all_members"] == pytest.approx(2 * result["steps_per_second"])
    assert sum(result["shares"].values()) == pytest.approx(1.0, abs=0.05)  # of rounded milliseconds
    assert all(result["shares"][part] > 0 for part in ("environments", "acting", "gradient_steps", "evaluation"))
    assert result["without_evaluation"] is None
    other = result["against"]
    assert other["steps_per_second"] == pytest.approx(100.0)
    assert other["ratio"] == pytest.approx(other["ours"] / 100.0)
    received = other["versions"]["settings"]
    assert received == {
        "algorithm": "SAC",
        "env_id": "Pendulum-v1",
        "env_kwargs": {"g": 9.5},
        "hidden_sizes": [16, 16],
        "batch_size": 8,
        "buffer_capacity": 1_000_000,
        "learning_starts": 4,
        "train_frequency": 1,
        "gradient_updates_per_step": 1,
        "threads": result["threads"],
        "device": "cpu",
        "tf32": False,
    }
    assert other["versions"]["arguments"] == ["-I", str(SB3.worker)]
    assert "in turns with sb3" in err


@pytest.mark.usefixtures("no_starts", "small")
def test_an_offline_run_with_and_without_evaluation(capsys):
    out, _ = bench(capsys, "--algo", "bc", "--json")
    (result,) = json.loads(out)["results"]
    with_it, without = result["shares"], result["without_evaluation"]["shares"]
    assert (with_it["evaluation"] > 0, without["evaluation"], with_it["environments"]) == (True, 0.0, 0.0)
    assert result["evaluation_ratio"] == pytest.approx(result["seconds"] / result["without_evaluation"]["seconds"])
    out, _ = bench(capsys, "--algo", "bc")
    assert (
        "second start (compiled before): 3.0 s to the first 7 gradient steps (imports 1.5, setup 0.5, first steps 1.0)" in out
    )
    assert "s without evaluation" in out


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("inside", [False, True])
def test_a_stopped_bench_leaves_nothing_and_offers_no_resume(number, inside, capsys, tmp_path, monkeypatch):
    def stop(*_):
        signal.raise_signal(number)

    monkeypatch.setattr(end_to_end, "time_to_first_steps", (lambda *_: START) if inside else stop)
    monkeypatch.setattr(end_to_end._StopAfter, "on_log", stop)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run(["bench", *TINY, *CPU, "--algo", "bc"]) == 128 + number
    assert capsys.readouterr().err.splitlines()[-1] == f"{number.name}: the bench was stopped, and keeps nothing of its runs"
    assert list(tmp_path.iterdir()) == []


def test_a_start_is_that_of_the_command(tmp_path):
    values = {
        "algo": "sac",
        "env_imports": ["json"],
        "hidden": [8],
        "batch_size": 8,
        "steps": 40,
        "device": "cpu",
        "engine": "eager",
    }
    config = settings.EndToEndSettings.checked(values).run_config(tmp_path)
    start = time_to_first_steps(config, tmp_path / "run", tmp_path / "cache")
    assert start["seconds"] == pytest.approx(start["imports"] + start["setup"] + start["first_steps"])
    assert min(start.values()) > 0
    nowhere = (
        config.changed(env_id="Nowhere-v1") if hasattr(config, "changed") else config.model_copy(update={"env_id": "No-v1"})
    )
    with pytest.raises(ConfigError, match="the run stopped .exit code 2.: error: unknown environment"):
        time_to_first_steps(nowhere, tmp_path / "other", tmp_path / "cache")


def test_turns_begin_once_steps_are_compiled(monkeypatch):
    times = iter(
        [1.0, 1.0, 9.0, 11.0, 16.0, 20.0, 26.0, 30.0, 37.0, 40.0, 48.0, 50.0]
    )  # a turn's end, and the next one's beginning
    monkeypatch.setattr(end_to_end.time, "perf_counter", lambda: next(times))

    class Fake:
        def round_of(self, seconds):
            assert seconds == 5.0
            return lambda: 4.0

    turns = Turns(Fake, seconds=30.0)
    assert turns.on_log(10, [{"data/episodes": 1}])
    assert turns.opponent is None
    learning = [{"train/critic_loss": 0.5}]
    assert turns.on_log(20, learning)  # the opponent starts; compiling is no round
    assert turns.on_log(30, learning)  # 11 to 16: as long as the opponent's rounds should be
    assert turns.on_log(40, learning)
    assert turns.on_log(50, learning)
    assert not turns.on_log(60, learning)  # three rounds each, and 33 seconds
    assert (turns.ours, turns.theirs) == ([6.0, 7.0, 8.0], [4.0, 4.0, 4.0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algo", "iql", "--env", "Pendulum-v1"], "--env goes with --end-to-end"),
        (["--algo", "iql", "--end-to-end", "--obs", "3"], "--obs goes without --end-to-end"),
        (["--algo", "iql", "--end-to-end", "--against", "d3rlpy"], "only `sb3` is known with --end-to-end"),
        (["--algo", "sac", "--against", "sb3"], "only `d3rlpy` is known without --end-to-end"),
        (["--algo", "iql", "--end-to-end", "--against", "sb3"], "sb3 has no twin of iql; --against sb3 compares sac, td3"),
        (["--algo", "sac", "--end-to-end", "--against", "sb3", "--set", "tau=0.1"], "tau=... has no twin in sb3"),
        (["--algo", "sac", "--end-to-end", "--against", "sb3", "--import", "json"], "leave out --import with --against"),
        (["--algo", "all", "--end-to-end"], "unknown algorithm `all`"),
        (["--algo", "iql", "--end-to-end", "--set", "dataset.kind=random"], "makes its own rows"),
    ],
)
def test_refusals_are_one_line(capsys, monkeypatch, arguments, words):
    monkeypatch.setenv(SB3.variable, sys.executable)
    assert run(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert words in err
