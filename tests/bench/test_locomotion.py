"""The locomotion benchmark's own parts that need no MuJoCo."""

import numpy as np
from benchmarks.locomotion import stored

from rl_training.data import load_dataset
from tests.helpers import tiny_run


def test_the_actions_of_a_run_give_its_replay_again(tmp_path):
    tiny_run(tmp_path / "run", "sac", seeds=[3, 5], total_timesteps=450, eval_interval=450, checkpoint_interval=450)
    for member, seed in enumerate((3, 5)):
        replay = load_dataset(tmp_path / "run", member=member)
        assert len(replay.episode_spans[0]) == 3  # the last of them cut by the checkpoint
        again = stored.replayed("Pendulum-v1", seed, np.array(replay.actions))
        assert again.fingerprint == replay.fingerprint
    assert stored.replayed("Pendulum-v1", 4, np.array(replay.actions)).fingerprint != replay.fingerprint
