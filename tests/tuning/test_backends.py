"""Which backend a command gets, and what its jobs ask for."""

import re
import sys

import pytest

from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.tuning.backends.choice import Place, _Sized
from rl_training.tuning.backends.local import LocalBackend
from rl_training.tuning.job import PopulationJob
from rl_training.tuning.plan import plan
from tests.helpers import call_cli, run_values

REFUSED = {
    Place("kubernetes"): "--backend 'kubernetes': must be local, ray or slurm",
    Place(address="127.0.0.1:6379"): "--address is for --backend ray, not local",
    Place("ray", processes=2): "--jobs is for --backend local",
    Place(gpus=0.5): "--gpus and --cpus are for --backend ray and slurm",
}


@pytest.mark.parametrize("place", REFUSED, ids=lambda place: REFUSED[place])
def test_options_of_another_backend_are_refused(place, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(REFUSED[place])):
        place.backend(tmp_path)


def test_this_machine_is_the_default(tmp_path):
    assert isinstance(Place().backend(tmp_path), LocalBackend)


def test_jobs_ask_for_what_the_place_says():
    class Echo:
        def run(self, jobs):
            return iter([(job, "finished") for job in jobs])

    (half,) = _Sized(Echo(), Place("ray", gpus=0.5, cpus=3)).run([PopulationJob("a", "a", {}, gpus=1.0)])
    assert half == (PopulationJob("a", "a", {}, gpus=0.5, cpus=3), "finished")
    (whole,) = _Sized(Echo(), Place("ray")).run([PopulationJob("a", "a", {}, gpus=1.0)])
    assert whole[0].gpus == 1.0


def test_a_batch_becomes_populations_of_at_most_so_many_trials(tmp_path):
    record = make_config(run_values(seeds=[3, 8])).record()
    trials = {number: {"expectile": 0.6 + number / 20} for number in range(5)}
    populations = plan("t", trials, record, tmp_path, None, 2).populations
    assert [list(one.members) for one in populations] == [[0, 1], [2, 3], [4]]
    assert [one.job.name for one in populations] == ["t-0", "t-1", "t-2"]
    assert [len(one.job.config["trials"]) for one in populations] == [2, 2, 1]
    assert all(one.members[min(one.members)] == range(2) for one in populations)


@pytest.mark.parametrize(("backend", "extra"), [("ray", "ray"), ("slurm", "slurm")])
def test_the_command_names_the_extra_that_is_missing(backend, extra, tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna")
    for library in ("ray", "submitit"):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    (tmp_path / "space.yaml").write_text("expectile: {low: 0.6, high: 0.9}\n")
    arguments = ["--space", tmp_path / "space.yaml", "--trials", 4, "--run-dir", tmp_path / "study", "--backend", backend]
    done = call_cli(capsys, "tune", "iql/pendulum-mixture", *arguments, code=2)
    assert done.stderr.count("\n") == 1
    assert f'pip install "rl-training[{extra}]"' in done.stderr
    assert not (tmp_path / "study").exists()
