"""What random actions earned before a run is kept with it, and a policy that earns no more is told."""

import json

import pytest

from rl_training.analysis.logged_run import LoggedRun
from rl_training.analysis.random_play import random_play
from tests.helpers import Cut, CutAt, call_cli, tiny_run


def play_in(folder):
    return random_play(LoggedRun.load(folder))


def test_the_mean_of_whole_episodes_is_kept_also_by_a_run_that_is_resumed(tmp_path):
    tiny_run(tmp_path / "run", "sac")
    found = play_in(tmp_path / "run")
    assert found.episodes == 5  # of 200 steps
    assert -1800.0 < found.mean < -700.0
    assert str(found) == f"random actions before the run returned {found.mean:.1f} (5 episodes)"
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", "sac", callbacks=[CutAt("checkpoint", 60)])
    tiny_run(tmp_path / "cut", "sac", resume=True)
    assert play_in(tmp_path / "cut") == found


def test_where_none_were_taken_or_hardly_one_ended_nothing_is_known(tmp_path, finished):
    assert play_in(finished("iql").run_dir) is None
    tiny_run(tmp_path / "off", "sac", algo_kwargs={"normalize_observations": False, "reward": {"normalize": False}})
    tiny_run(tmp_path / "long", "sac", max_episode_steps=400, total_timesteps=20)
    assert [play_in(tmp_path / name) for name in ("off", "long")] == [None, None]


@pytest.mark.parametrize("odd", [3, "x", {"return_mean": "x", "episodes": 5}, {"episodes": 5}, {"return_mean": None}])
def test_a_record_of_a_stranger_is_no_traceback(tmp_path, finished, odd):
    run = finished.copy(tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "random_play": odd}))
    assert play_in(run) is None


@pytest.mark.parametrize(("env", "told"), [("Goal", True), ("Calm", False)])
def test_a_policy_that_earns_no_more_than_random_actions_is_told(tmp_path, capsys, env, told):
    """One pays for large actions alone, which a policy after one update does not take, the other for small ones."""
    given = ("--set", "algo_kwargs={hidden_sizes: [8], batch_size: 8, learning_starts: 199}", "--total-timesteps", 200)
    run = ("--env", f"Tests/{env}-v0", "--import", "tests.envs.own_environments", "--seed", 0)
    done = call_cli(capsys, "train", "sac", *run, *given, "--run-dir", tmp_path / "run")
    assert str(play_in(tmp_path / "run")) in done.stdout
    assert ("earns no more than random actions" in done.stderr) == told
