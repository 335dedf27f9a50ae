"""What a run says at its end."""

import re

import numpy as np

from tests.helpers import call_cli, small_arrays, tiny_run


def test_the_summary_names_the_unit_of_every_step(finished, tmp_path, capsys):
    offline = call_cli(capsys, "resume", finished.copy(tmp_path / "evaluated")).stdout
    assert re.search(r"best -\d+\.\d at gradient step (40|80|120)\nafter 120 gradient steps\n", offline)
    np.savez(tmp_path / "log.npz", **small_arrays(observation_dim=3, action_dim=1))
    tiny_run(tmp_path / "run", env_id=None, algo_kwargs={"dataset": {"path": str(tmp_path / "log.npz")}})
    online = call_cli(capsys, "finetune", tmp_path / "run", "--env", "Pendulum-v1", "--env-steps", "80").stdout
    assert re.search(r"best -\d+\.\d at environment step (40|80)\b", online)
    assert "\nafter 200 gradient steps and 80 environment steps\n" in online
