"""Episodes that occur twice: where they come from is named."""

import numpy as np

from rl_training.config.blocks import ReadOptions
from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine
from tests.helpers import generator
from tests.logs import write_csv


def test_a_file_that_was_copied_is_named(tmp_path):
    draw = generator(0)
    for name in ("monday", "tuesday", "wednesday"):
        x = np.cumsum(draw.normal(size=80))
        columns = {"x": x, "u": draw.uniform(-1, 1, 80), "cost": -np.abs(x)}
        write_csv(tmp_path / f"{name}.csv", columns)
    (tmp_path / "z_copy.csv").write_bytes((tmp_path / "tuesday.csv").read_bytes())
    options = ReadOptions.checked({"columns": {"observations": ["x"], "actions": ["u"], "reward": "cost"}})
    (finding,) = [f for f in examine(read_dataset(str(tmp_path), options=options)) if f.code == "duplicate-episodes"]
    assert "episode 3 (z_copy.csv line 2) is episode 1 (tuesday.csv line 2) again" in finding.evidence
