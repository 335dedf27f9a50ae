"""`rl-training verify` of every kind of run, as users call it: cut in processes of its own, and exact."""

import json

import pytest

from tests.faults.kinds import KINDS, values
from tests.helpers import run_cli


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_run_is_exact(fault_count, tmp_path, kind):
    (tmp_path / "config.yaml").write_text(json.dumps(values(kind, tmp_path)))
    found = json.loads(run_cli("verify", tmp_path / "config.yaml", "--seed", 1, "--json", "--cuts", 4, seconds=600).stdout)
    fault_count("verify", int(found["passed"] and len(found["resume"]["cuts"]) == 4), 1)
