"""`collect_dataset` and `rl-training collect`: what acts, what is written, and what is refused."""

import json
import re
import signal

import gymnasium
import numpy as np
import pytest

from rl_training import SAC, load_dataset
from rl_training.api import Policy, collect_dataset
from rl_training.errors import ConfigError
from tests.helpers import call_cli

SMALL = {"hidden_sizes": [16, 16], "batch_size": 32, "learning_starts": 50, "eval_interval": 1000, "device": "cpu"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A population of two members, with two checkpoints."""
    folder = tmp_path_factory.mktemp("runs")
    SAC("Pendulum-v1", seeds=[0, 1], run_dir=folder / "two", checkpoint_interval=60, **SMALL).learn(100)
    return folder


def bytes_of(path):
    return [(path / name).read_bytes() for name in ("rows.npy", "manifest.json")]


def test_a_policy_acts_alike_however_many_episodes_run_at_once(runs, tmp_path):
    for envs, workers in ((1, 0), (3, 2), (16, 0)):
        collect_dataset(runs / "two", tmp_path / f"{envs}", 700, noise=0.1, member=1, envs=envs, workers=workers)
    assert bytes_of(tmp_path / "1") == bytes_of(tmp_path / "3") == bytes_of(tmp_path / "16")


def test_the_actions_are_those_of_the_policy(runs, tmp_path):
    done = collect_dataset(runs / "two", tmp_path / "plain", 300, member=1)
    data, policy = load_dataset(tmp_path / "plain"), Policy.load(runs / "two", device="cpu")
    assert np.allclose(data.actions, policy.predict(np.array(data.observations), member=1), atol=1e-4)
    report = done.report()
    assert (report["rows"], report["episodes"], report["env_id"]) == (300, 2, "Pendulum-v1")
    assert (report["whole_episodes"], report["return_mean"]) == (1, pytest.approx(data.episode_returns()[0]))
    whole = collect_dataset(runs / "two", tmp_path / "whole", 200, member=1).report()
    assert (whole["whole_episodes"], whole["return_mean"]) == (1, report["return_mean"])  # it ended where the data does
    part = collect_dataset(runs / "two", tmp_path / "part", 199, member=1).report()
    assert (part["episodes"], part["whole_episodes"], part["return_mean"]) == (1, 0, None)
    collect_dataset(runs / "two", tmp_path / "noisy", 300, member=1, noise=0.1)
    collect_dataset(runs / "two", tmp_path / "sampled", 300, member=1, stochastic=True)
    noisy, sampled = (load_dataset(tmp_path / name) for name in ("noisy", "sampled"))
    assert np.abs(noisy.actions[0] - data.actions[0]) < 1.0
    assert noisy.actions[0] != data.actions[0]
    assert np.std(sampled.actions - policy.predict(np.array(sampled.observations), member=1)) > 0.3


def test_the_command_line(runs, tmp_path, capsys):
    first = next((runs / "two" / "checkpoints").glob("env-000000060_*"))
    call = ("collect", runs / "two", first, "random", "--shares", "0.5,0.25,0.25", "--rows", "1_200", "--out", tmp_path / "m")
    done = call_cli(capsys, *call, "--json")
    report = json.loads(done.stdout)
    assert [source["rows"] for source in report["sources"]] == [600, 400, 200]
    assert report["sources"][1]["source"] == f"{first}, member 0"
    assert load_dataset(tmp_path / "m").origin.startswith("collected in Pendulum-v1, seed 0; ")
    refused = call_cli(capsys, *call, code=2)
    assert "already exists; choose another name, or --overwrite" in refused.stderr
    done = call_cli(capsys, *call, "--overwrite")
    assert f"{tmp_path / 'm'}: 1,200 transitions of Pendulum-v1 in 6 episodes" in done.stdout
    assert re.search(r"\nreturn -\S+ \+- \S+ over 6 whole episodes\n", done.stdout)
    part = call_cli(capsys, "collect", "random", "--env", "Pendulum-v1", "--rows", "150", "--out", tmp_path / "part")
    assert re.search(r"150 transitions of Pendulum-v1 in 1 episodes.*\nno whole episode, so no return\n", part.stdout)
    assert f"next: rl-training train iql --dataset {tmp_path / 'm'} --env Pendulum-v1" in done.stdout


OWN_ENVIRONMENT = """
import gymnasium
import numpy as np


class Drift(gymnasium.Env):
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    observation_space = gymnasium.spaces.Dict(position=action_space, goal=action_space)

    def __init__(self, length=5):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        return self._seen(), {}

    def step(self, action):
        self.taken += 1
        return self._seen(), 1.0, self.taken == self.length, False, {}

    def _seen(self):
        return {"position": np.float32([self.taken]), "goal": np.float32([3])}


gymnasium.register("Drift-v0", entry_point=Drift)
"""


def test_an_environment_of_the_users_own(tmp_path, capsys):
    file = tmp_path / "drift_of_mine.py"
    file.write_text(OWN_ENVIRONMENT)
    out = tmp_path / "out"
    call = ("--env", "Drift-v0", "--env-kwargs", "{length: 4}", "--import", file, "--rows", "10", "--out", out)
    done = call_cli(capsys, "collect", "random", *call)
    data = load_dataset(out)
    assert [(episode.length, episode.ended) for episode in data.episodes()] == [(4, True), (4, True), (2, False)]
    assert data.observation_names == ("goal", "position")
    assert data.observations[1].tolist() == [3.0, 1.0]
    assert "collected in Drift-v0 (length=4), seed 0; random: 10 rows in 3 episodes" in data.origin
    del gymnasium.registry["Drift-v0"]
    assert f"--env Drift-v0 --env-kwargs '{{\"length\": 4}}' --import {file}" in done.stdout


def test_the_environment_of_a_run_with_other_arguments(runs, tmp_path, capsys):
    call = ("collect", runs / "two", "--rows", "20")
    call_cli(capsys, *call, "--out", tmp_path / "as_it_was")
    done = call_cli(capsys, *call, "--env-kwargs", "{g: 1.0}", "--out", tmp_path / "moon")
    named = call_cli(capsys, *call, "--env", "Pendulum-v1", "--env-kwargs", "{g: 1.0}", "--out", tmp_path / "named")
    for shown in (done, named):
        assert "--env Pendulum-v1 --env-kwargs '{\"g\": 1.0}'" in shown.stdout
    own, moon, same = (load_dataset(tmp_path / name) for name in ("as_it_was", "moon", "named"))
    assert moon.observations.tolist() == same.observations.tolist() != own.observations.tolist()
    assert "(g=1.0)" in moon.origin
    refused = call_cli(capsys, "collect", "random", "--env-kwargs", "{g: 1}", "--rows", "9", "--out", tmp_path / "no", code=2)
    assert "name one with --env ID" in refused.stderr


def test_an_npz_file_holds_the_same_rows(tmp_path):
    for out in ("data", "data.npz"):
        collect_dataset("random", tmp_path / out, 450, env_id="Pendulum-v1")
    assert load_dataset(tmp_path / "data").fingerprint == load_dataset(tmp_path / "data.npz").fingerprint


@pytest.mark.parametrize(
    ("sources", "options", "words"),
    [
        (["random"], {}, "no source has an environment: name one with --env ID"),
        (["random"], {"noise": 0.1}, "noise has no effect on random actions"),
        (["random"], {"member": 0}, "no run is among the sources"),
        (["scripted"], {"which": "best"}, "none is among the sources"),
        (["scripted"], {"env_id": "MountainCarContinuous-v0"}, "no scripted controller"),
        (["random", "scripted"], {"shares": [1.0]}, "shares must be 2 numbers above 0"),
        (["scripted"], {"noise": -1.0}, "noise = -1.0 is not legal"),
        (["scripted"], {"envs": 33}, "envs = 33 is not legal: must be an integer from 1 to 32"),
        (["scripted"], {"workers": "many"}, "workers = 'many' is not legal"),
        ([], {}, "nothing to collect from"),
        ([SAC("Pendulum-v1")], {}, "SAC is not a source to collect from: name `random`, `scripted`, or the path of a run"),
        (SAC("Pendulum-v1"), {}, "SAC is not a source"),
        (["random", None], {}, "NoneType is not a source"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path, sources, options, words):
    settings = {} if words.startswith("no source") else {"env_id": "Pendulum-v1"}
    with pytest.raises(ConfigError, match=words):
        collect_dataset(sources, tmp_path / "out", 10, **{**settings, **options})
    assert list(tmp_path.iterdir()) == []


def test_a_stop_leaves_nothing_behind(tmp_path):
    def stop(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect_dataset("random", tmp_path / "out", 1000, env_id="Pendulum-v1", progress=stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("terminal_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("out", ["out", "out.npz"])
def test_a_signal_leaves_nothing_behind(number, out, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("rl_training.cli.collect._progress", lambda rows: lambda done: signal.raise_signal(number))
    before = signal.getsignal(signal.SIGTERM)
    call = ("collect", "random", "--env", "Pendulum-v1", "--rows", "100000", "--out", tmp_path / out)
    done = call_cli(capsys, *call, code=128 + number)
    assert done.stderr == f"{number.name}: nothing was written to {tmp_path / out}\n"
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before
