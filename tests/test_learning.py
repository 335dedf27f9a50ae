"""They learn: the last checkpoint of each packaged config, four seeds as one population, twenty fixed episodes each."""

import json

import pytest

from tests.helpers import command, environment

BARS = {
    "iql/pendulum": -200.0,
    "iql/pendulum-mixture": -180.0,
    "xql/pendulum": -200.0,
    "xql/pendulum-mixture": -180.0,
    "td3_bc/pendulum": -250.0,
    "td3_bc/pendulum-mixture": -180.0,
    "cql/pendulum": -200.0,
    "cql/pendulum-mixture": -180.0,
    "cal_ql/pendulum": -200.0,
    "cal_ql/pendulum-mixture": -180.0,
    "sac/pendulum": -180.0,
    "redq/pendulum": -180.0,
}


@pytest.mark.learning
@pytest.mark.parametrize("name", BARS)
def test_it_learns(name, tmp_path):
    import subprocess

    def call(*arguments):
        done = subprocess.run(command(*arguments), env=environment(), capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    call("train", name, "--run-dir", tmp_path / "run", "--seeds", "0..3", "--json")
    report = call("evaluate", tmp_path / "run", "--episodes", "20", "--json")
    means = [round(member["return_mean"], 1) for member in report["members"]]
    print(f"\n{name}: mean {report['return_mean']:.1f}, seeds {means}, 95 % {report['return_interval']}")
    assert report["return_mean"] >= BARS[name]
    assert min(means) >= BARS[name] - 100.0
