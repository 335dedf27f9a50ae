"""Commands that write a file make missing folders, and end with where it is from the root: a mistyped path is seen."""

import numpy as np
import pytest

from tests.helpers import call_cli, small_arrays

COMMANDS = {
    "report": ("report", "run", "--no-picture", "--out", "typo/out.html"),
    "export": ("export", "run", "--out", "typo/out"),
    "export-member": ("export-member", "run", "--member", "0", "--out", "typo/out"),
    "collect": ("collect", "random", "--env", "Pendulum-v1", "--rows", "200", "--out", "typo/out"),
    "convert": ("data", "convert", "log.npz", "typo/out.npz"),
    "inspect": ("data", "inspect", "log.npz", "--html", "typo/out.html"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_full_path_is_told(name, finished, tmp_path, monkeypatch, capsys):
    if "run" in COMMANDS[name]:
        finished.copy(tmp_path / "run")
    np.savez(tmp_path / "log.npz", **small_arrays(observation_dim=3, action_dim=1))
    monkeypatch.chdir(tmp_path)
    said = call_cli(capsys, *COMMANDS[name]).stdout
    (written,) = (tmp_path / "typo").glob("out*")
    assert str(written) in said
