"""The doctor's matrix on a few cells; the whole of it is `python -m benchmarks.doctor_matrix`."""

import sys

import pytest
from benchmarks import doctor_matrix

from tests.helpers import ROOT


@pytest.mark.parametrize("name", ["hopper-like", "plant: heaters"])
def test_some_cells(name, monkeypatch, capsys):
    chosen = ["rewards_early", "stuck_sensor", "summed_rewards", "actions_in_percent"]
    monkeypatch.setattr(sys, "argv", ["doctor_matrix", "--seeds", "1", "--kinds", name, "--faults", *chosen])
    doctor_matrix.main()
    printed = capsys.readouterr().out
    bounded = name == "hopper-like"
    assert printed.count("| 1 of 1 | ✓ |") == 3 + bounded
    assert printed.count("| 0 of 0 | · |") == 1 - bounded
    assert f"| {name} | none | none |" in printed


def test_every_fault_is_one_of_the_documented_findings():
    documented = (ROOT / "docs" / "data.md").read_text()
    assert all(f"`{code}`" in documented for code, _ in doctor_matrix.FAULTS)
