"""What random actions earned at the beginning of a run, by its metrics; and the warning where a policy earns no more."""

import json

import pytest

from rl_training.analysis.logged_run import LoggedRun
from rl_training.analysis.random_play import random_play
from tests.analysis.runs import write_run
from tests.helpers import call_cli

ONLINE = {"algo_kwargs": {"learning_starts": 50}}


def play_of(folder, episodes, **config):
    """What is found in a run that logged these episodes: (env_step, member, number, return)."""
    write_run(folder, [[1.0, 2.0]], "sac", **{**ONLINE, **config})
    with (folder / "metrics.jsonl").open("a") as file:
        for env_step, member, number, value in episodes:
            row = {"step": 1, "env_step": env_step, "member": member, "seed": member}
            file.write(json.dumps({**row, "data/episodes": number, "data/episode_return": value}) + "\n")
    return random_play(LoggedRun.load(folder))


def test_each_episode_before_the_first_update_counts_once(tmp_path):
    episodes = [(10, 0, 1, -4.0), (20, 0, 1, -4.0), (30, 0, 2, -6.0), (30, 1, 1, -8.0), (60, 1, 2, 100.0)]
    found = play_of(tmp_path / "run", episodes)
    assert (found.mean, found.episodes) == (pytest.approx(-6.0), 3)
    assert str(found) == "random actions at the start returned -6.00 (3 episodes)"


def test_two_episodes_are_too_few_and_a_run_on_data_has_none(tmp_path):
    assert play_of(tmp_path / "few", [(10, 0, 1, -4.0), (20, 0, 2, -6.0)]) is None
    assert play_of(tmp_path / "starts", [(60, 0, number, -4.0) for number in range(9)]) is None
    assert random_play(LoggedRun.load(write_run(tmp_path / "iql", [[1.0]]))) is None


@pytest.mark.parametrize(("env", "told"), [("Goal", True), ("Calm", False)])
def test_a_policy_that_earns_no_more_than_random_actions_is_told(tmp_path, capsys, env, told):
    """One pays for large actions alone, which a policy after one update does not take, the other for small ones."""
    given = ("--set", "algo_kwargs={hidden_sizes: [8], batch_size: 8, learning_starts: 199}", "--set", "log_interval=10")
    run = ("--env", f"Tests/{env}-v0", "--import", "tests.envs.own_environments", "--total-timesteps", 200, "--seed", 0)
    done = call_cli(capsys, "train", "sac", *run, *given, "--run-dir", tmp_path / "run")
    assert str(random_play(LoggedRun.load(tmp_path / "run"))) in done.stdout
    assert ("earns no more than random actions" in done.stderr) == told
