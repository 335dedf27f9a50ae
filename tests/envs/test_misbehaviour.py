"""Environments that misbehave while they are learned in: one line, after saving what there is to save, and the right code."""

import gymnasium
import numpy as np
import pytest
import torch
import yaml

from rl_training import SAC
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from tests.helpers import Notes, assert_same_run, call_cli, checkpoints, metric_rows, run_values, tiny_run

UNSCALED = {"normalize_observations": False, "reward": {"normalize": False}}  # without random steps, which are calls too
SHORT = {"eval_episodes": 1, "eval_interval": 40, "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8, **UNSCALED}}


class Odd(gymnasium.Env):
    """A point that drifts; what is wrong with it, and after how many calls, is set for the class."""

    wrong, calls, steps = "", 0, 0
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    @property
    def observation_space(self):
        wide = self.due("wide") or (self.due("wide at reset") and self.steps == 0)
        return gymnasium.spaces.Box(-9.0, 9.0, (3 if wide else 2,))

    @staticmethod
    def due(what):
        return Odd.wrong == what and Odd.calls > 60

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = self.np_random.normal(), 0
        if self.due("exit in reset"):
            raise SystemExit(0)
        return self.seen(), {}

    def step(self, action):
        Odd.calls += 1
        self.steps += 1
        self.at = 0.9 * self.at + 0.1 * float(action[0])
        if self.due("exit in step"):
            raise SystemExit(0)
        if self.due("no gradients"):
            torch.set_grad_enabled(False)
        return self.seen(), -abs(self.at), self.steps == 25 and Odd.wrong != "endless", False, {}

    def seen(self):
        return np.full(self.observation_space.shape, self.at, dtype=np.float32)

    def close(self):
        if Odd.wrong == "close":
            raise RuntimeError("the cable is stuck\nfor good")
        if Odd.wrong == "exit in close":
            raise SystemExit(0)


@pytest.fixture
def odd(monkeypatch):
    gymnasium.register("Odd-v0", entry_point=Odd)

    def make(wrong):
        monkeypatch.setattr(Odd, "wrong", wrong)
        monkeypatch.setattr(Odd, "calls", 0)
        return "Odd-v0"

    yield make
    del gymnasium.registry["Odd-v0"]


def train(capsys, folder, env_id, code, **changes):
    (folder / "c.yaml").write_text(yaml.safe_dump(run_values("sac", env_id=env_id, **{**SHORT, **changes})))
    return call_cli(capsys, "train", folder / "c.yaml", "--run-dir", folder / "run", code=code).stderr


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("exit in reset", "failed in reset"),
        ("exit in step", "failed in step"),
        ("wide", "returned an observation of shape (3,); its space declares (2,)"),
        ("wide at reset", "returned an observation of shape (3,); its space declares (2,)"),
    ],
)
def test_a_failure_is_one_line_after_saving(odd, tmp_path, capsys, wrong, words, workers):
    errors = train(capsys, tmp_path, odd(wrong), 2, workers=workers)
    (line,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert words in line
    assert "the run is saved at env step" in line
    assert checkpoints(tmp_path / "run")
    odd("")
    call_cli(capsys, "resume", tmp_path / "run")


@pytest.mark.parametrize("wrong", ["close", "exit in close"])
def test_a_close_that_fails_costs_a_line(odd, tmp_path, capsys, wrong):
    errors = train(capsys, tmp_path, odd(wrong), 0, workers=0)
    lines = [line for line in errors.splitlines() if "failed in close()" in line]
    assert lines
    assert all(line.startswith("warning: environment Odd-v0 failed in close(): ") for line in lines)


@pytest.mark.parametrize("mode", ["wait", "beside"])
def test_episodes_that_never_end_are_cut_with_a_warning(odd, tmp_path, capsys, monkeypatch, mode):
    monkeypatch.setattr("rl_training.envs.evaluation.MOST_STEPS", 70)
    said = Notes()
    tiny_run(tmp_path / "run", "sac", env_id=odd("endless"), reporter=said, eval_mode=mode, workers=0, **SHORT)
    cut = "1 of 1 episodes in Odd-v0 did not end within 70 steps, and were cut there; set max_episode_steps"
    assert next(text for text in said.warnings if "endless" in text) == f"endless-episodes: env step 40: {cut}"
    assert {row["eval/length_mean"] for row in metric_rows(tmp_path / "run") if "eval/length_mean" in row} == {70.0}
    assert cut in call_cli(capsys, "evaluate", tmp_path / "run", "--episodes", 1).stderr
    tiny_run(tmp_path / "limited", "sac", env_id=odd("endless"), reporter=said, max_episode_steps=90, **SHORT)
    assert {row["eval/length_mean"] for row in metric_rows(tmp_path / "limited") if "eval/length_mean" in row} == {90.0}


def test_gradients_that_are_switched_off_are_switched_on(odd, tmp_path):
    tiny_run(tmp_path / "plain", "sac", env_id=odd(""), **SHORT)
    tiny_run(tmp_path / "off", "sac", env_id=odd("no gradients"), **SHORT)
    assert torch.is_grad_enabled()
    assert_same_run(tmp_path / "plain", tmp_path / "off")
    for number, off in enumerate((torch.no_grad(), torch.inference_mode())):
        with off:
            tiny_run(tmp_path / str(number), "sac", env_id=odd(""), **SHORT)
            assert not torch.is_grad_enabled()
        assert_same_run(tmp_path / "plain", tmp_path / str(number))


@pytest.mark.parametrize("env_id", ["../../..", "/etc/x", "..", "", "a//b", "x\x00", "x" * 500, "./Pendulum-v1"])
def test_an_id_that_is_no_name_makes_no_directory(tmp_path, monkeypatch, env_id):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ConfigError, match=r"`env_id` = .* is not legal: must be the id of an environment"):
        make_config(run_values("sac", env_id=env_id))
    with pytest.raises(ConfigError, match="must be the id of an environment"):
        SAC(env_id)
    assert [path.name for path in tmp_path.rglob("*")] == ["here"]
