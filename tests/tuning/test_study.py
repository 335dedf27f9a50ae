"""A study from its first trial to its last: what is asked, that any death is survived exactly, what is refused."""

import os
import re
import sys

import pytest

from rl_training.analysis.logged_run import LoggedRun
from rl_training.errors import CheckpointError, ConfigError, RunBusyError, StorageError
from rl_training.runtime.checkpoints.lock import RunLock
from rl_training.tuning.backends.local import LocalBackend
from rl_training.tuning.folder import StudyFolder
from rl_training.tuning.job import FINISHED, PopulationJob, run_job
from rl_training.tuning.scores import Rule, trial_result
from rl_training.tuning.showing import summary
from rl_training.tuning.study import JOURNAL
from tests.helpers import Cut, CutAt, assert_same_run, call_cli, contents, run_values, tiny_run
from tests.tuning.fake import KNOBS, FakeBackend, run_study, task, trials_of, write_run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("studies") / "study"
    run_study(path)
    return path


def test_trial_0_has_the_configs_own_values_and_the_search_learns(whole):
    found = trials_of(whole)
    assert found[0][2] == {"expectile": 0.7, "beta": 3.0}
    assert {entry[1] for entry in found} == {"COMPLETE"}
    assert [entry[5]["begin"] for entry in found] == [0] * 4 + [4] * 4 + [8] * 4
    assert all(list(entry[4]) == [40, 80, 120] for entry in found)
    assert len({tuple(entry[2].values()) for entry in found}) == 12


def test_another_seed_asks_for_other_values(whole, tmp_path):
    run_study(tmp_path / "study", task(seed=1))
    same = [a[2] == b[2] for a, b in zip(trials_of(whole), trials_of(tmp_path / "study", task(seed=1)), strict=True)]
    assert same == [True] + [False] * 11


@pytest.mark.parametrize("place", ["job", "ask", "tell"])
def test_a_study_that_dies_anywhere_ends_the_same(whole, tmp_path, monkeypatch, place):
    """Each attempt gets a little further: `place` fails at its n-th call, and n grows."""
    from rl_training.tuning.study import Study

    path, deaths = tmp_path / "study", 0
    name = {"ask": "_add", "tell": "tell"}.get(place)
    for allowed in range(1, 60):
        calls = []
        if name is not None:
            original = getattr(Study, name)

            def counted(self, *arguments, original=original, calls=calls, allowed=allowed, **named):
                calls.append(1)
                if len(calls) > allowed:
                    raise Cut
                return original(self, *arguments, **named)

            monkeypatch.setattr(Study, name, counted)
        try:
            run_study(path, backend=FakeBackend(die_at=1 if place == "job" else None))
            break
        except Cut:
            deaths += 1
        finally:
            monkeypatch.undo()
    assert deaths >= 2
    assert trials_of(path) == trials_of(whole)


def test_a_torn_line_and_a_stale_lock_are_survived(whole, tmp_path):
    with pytest.raises(Cut):
        run_study(tmp_path / "study", backend=FakeBackend(die_at=1))
    with (tmp_path / "study" / JOURNAL).open("ab") as stream:
        stream.write(b'{"op_code":4,"worker_id"')
    os.symlink(JOURNAL, tmp_path / "study" / f"{JOURNAL}.lock")  # of Optuna's own locks
    run_study(tmp_path / "study")
    assert trials_of(tmp_path / "study") == trials_of(whole)


def test_a_study_is_only_read_by_those_who_look(tmp_path):
    path = tmp_path / "study"
    run_study(path, trials=4)
    with (path / JOURNAL).open("ab") as stream:
        stream.write(b'{"op_code":4,"worker_id"')  # as a kill leaves it; what is added now would be joined to it
    before = contents(path)
    for _ in range(2):
        assert len(summary(StudyFolder(path), task()).rows) == 4
    assert contents(path) == before
    run_study(path, trials=8)
    assert len(trials_of(path)) == 8
    renamed = path.rename(tmp_path / "other")
    with pytest.raises(CheckpointError, match="the trials of study 'other' are not in its storage"):
        summary(StudyFolder(renamed), task())


@pytest.mark.parametrize(
    ("name", "damaged", "told"),
    [
        (JOURNAL, lambda lines: [*lines[:4], b"garbage", *lines[5:]], "journal.log: is damaged (JSONDecodeError("),
        (JOURNAL, lambda lines: [*lines[:4], b'{"op_code":5}', *lines[5:]], "journal.log: is damaged (KeyError("),
        (JOURNAL, lambda lines: lines[:1], "was confirmed and is not among the 0 trials, some of which are lost"),
        ("confirm.json", lambda lines: [b"{}"], "confirm.json: is damaged (KeyError('trials')); use another copy"),
        ("confirm.json", lambda lines: [b'{"trials": {"x": {}}}'], "confirm.json: is damaged (ValueError("),
    ],
)
def test_a_damaged_study_is_told_in_one_line(tmp_path, name, damaged, told):
    run_study(tmp_path / "study", trials=4, confirm=1)
    file = tmp_path / "study" / name
    file.write_bytes(b"\n".join(damaged(file.read_bytes().splitlines())) + b"\n")
    with pytest.raises(CheckpointError, match=re.escape(told)):
        summary(StudyFolder(tmp_path / "study"), task())


def test_a_database_instead_of_a_journal(whole, tmp_path):
    given = task(storage=f"sqlite:///{tmp_path}/trials.db")
    with pytest.raises(Cut):
        run_study(tmp_path / "study", given, backend=FakeBackend(die_at=2))
    run_study(tmp_path / "study", given)
    assert trials_of(tmp_path / "study", given) == trials_of(whole)
    assert not (tmp_path / "study" / JOURNAL).exists()
    with pytest.raises(ConfigError, match="already holds a study 'study' of another directory"):
        run_study(tmp_path / "other" / "study", given)
    with pytest.raises(ConfigError, match="--storage nothing://here: cannot be opened"):
        run_study(tmp_path / "third", task(storage="nothing://here"))
    assert not (tmp_path / "third").exists()


def test_more_trials_later_and_none_twice(whole, tmp_path):
    backend = FakeBackend()
    run_study(tmp_path / "study", trials=4, backend=backend)
    run_study(tmp_path / "study", trials=4, backend=backend)
    run_study(tmp_path / "study", trials=12, backend=backend)
    assert backend.names == ["trials-00000", "trials-00004", "trials-00008"]
    assert trials_of(tmp_path / "study") == trials_of(whole)


def test_another_study_is_refused_by_what_differs(whole):
    before = {name: found for name, found in contents(whole).items() if name != "run.lock"}
    for given, words in (
        (task(seed=1), "search.seed was 0, is 1"),
        (task(seeds=(0, 1, 2)), r"config.seeds was \[0, 1\], is \[0, 1, 2\]"),
        (task(space={**KNOBS, "beta": {"low": 1.0, "high": 9.0}}), '"high": 20.0.*"high": 9.0'),
        (task(rule=Rule("mean")), 'score.statistic was "iqm", is "mean"'),
        (task(changes={"algo_kwargs": {"tau": 0.1}}), "config.algo_kwargs.tau was 0.005, is 0.1"),
    ):
        with pytest.raises(ConfigError, match=f"holds another study: .*{words}"):
            run_study(whole, given)
    assert {name: found for name, found in contents(whole).items() if name != "run.lock"} == before
    with RunLock(whole), pytest.raises(RunBusyError):
        run_study(whole)


def test_grid_random_and_two_numbers(tmp_path):
    few = {"beta": {"choices": [1.0, 2.0, 3.0]}, "hidden_sizes": {"choices": [[8], [16, 16]]}}
    said = run_study(tmp_path / "grid", task(few, sampler="grid"), trials=50)
    found = trials_of(tmp_path / "grid", task(few, sampler="grid"))
    assert "all 6 points of the grid are told" in said
    assert len({str(entry[2]) for entry in found}) == len(found) == 6
    assert found[0][2] == {"beta": 3.0, "hidden_sizes": "[16, 16]"}
    outside = task({"beta": {"low": 1.0, "high": 9.0}}, sampler="grid")
    run_study(tmp_path / "points", outside, trials=50)
    assert [entry[2]["beta"] for entry in trials_of(tmp_path / "points", outside)] == [3.0, 1.0, 5.0, 7.0, 9.0]
    run_study(tmp_path / "random", task(sampler="random"))
    two = task(rule=Rule(also="spread"), sampler="nsga2")
    with pytest.raises(Cut):
        run_study(tmp_path / "two", two, backend=FakeBackend(die_at=1))
    run_study(tmp_path / "two", two)
    run_study(tmp_path / "again", two)
    assert trials_of(tmp_path / "two", two) == trials_of(tmp_path / "again", two)
    assert all(len(entry[3]) == 2 and entry[3][1] >= 0.0 for entry in trials_of(tmp_path / "two", two))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sampler": "nsga2"}, "--sampler nsga2 is for two numbers"),
        ({"rule": Rule(also="spread"), "seeds": (0,)}, "--also spread: needs several seeds"),
        ({"rule": Rule(also="spread"), "pruning": {"kind": "median"}}, "--prune stops trials by one number"),
        ({"rule": Rule(also="action_distance")}, "the score needs held-out rows"),
        ({"changes": {"sweep": {"tau": [0.1, 0.2]}}}, "has several settings already"),
        ({"changes": {"early_stopping": {"patience": 1}}, "pruning": {"kind": "median"}}, "--prune excludes"),
        ({"batch": 5000}, "is more than 4,096 members"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path, given, words):
    with pytest.raises(ConfigError, match=words):
        run_study(tmp_path / "study", task(**given))
    assert not (tmp_path / "study").exists()


def test_failed_and_pruned_trials_are_told_as_such(tmp_path):
    run_study(tmp_path / "study", backend=FakeBackend(diverged=[0]), trials=4)
    found = trials_of(tmp_path / "study")
    assert [entry[1] for entry in found] == ["FAIL", "COMPLETE", "COMPLETE", "COMPLETE"]
    assert found[0][5]["failed"] == "1 of 2 seeds diverged"
    given = task(pruning={"kind": "median"})
    run_study(tmp_path / "pruned", given, trials=4)
    found = trials_of(tmp_path / "pruned", given)
    assert [entry[1] for entry in found] == ["COMPLETE", "PRUNED", "PRUNED", "PRUNED"]
    assert list(found[1][4]) == [40]


def test_a_fault_of_the_config_stops_before_it_is_told_of_every_trial(tmp_path):
    broken = FakeBackend(status="DatasetError: log.csv: no such file")
    with pytest.raises(ConfigError, match="trials-00000: DatasetError: log.csv: no such file"):
        run_study(tmp_path / "study", backend=broken)
    assert {entry[1] for entry in trials_of(tmp_path / "study")} == {"RUNNING"}
    run_study(tmp_path / "study", trials=4)
    run_study(tmp_path / "study", trials=8, backend=broken)
    assert [entry[1] for entry in trials_of(tmp_path / "study")] == ["COMPLETE"] * 4 + ["FAIL"] * 4


def test_values_outside_the_space_are_said(tmp_path):
    given = task(space={"beta": {"low": 5.0, "high": 9.0}})
    said = run_study(tmp_path / "study", given, trials=4)
    assert said[0] == "the config's own beta is outside the space, so no trial has its values"
    assert trials_of(tmp_path / "study", given)[0][2] != {"beta": 3.0}


def test_scores_over_seeds(tmp_path):
    from rl_training.config.loading import make_config

    config = make_config(run_values(seeds=[0, 1, 2, 3, 4], trials=[{"beta": 1.0}, {"beta": 4.0}])).record()
    write_run(PopulationJob("one", str(tmp_path / "one"), config))
    run = LoggedRun.load(tmp_path / "one")
    results = {name: trial_result(run, range(5, 10), Rule(name)) for name in ("iqm", "mean", "lower")}
    seeds = sorted(results["iqm"].seeds)
    assert results["iqm"].values == [pytest.approx(sum(seeds[1:4]) / 3)]
    assert results["mean"].values == [pytest.approx(sum(seeds) / 5)]
    assert results["lower"].values[0] < results["mean"].values[0]
    assert list(results["iqm"].curve) == [40, 80, 120]
    spread = trial_result(run, range(5, 10), Rule(also="spread"))
    assert spread.values[1] > 0.0
    assert trial_result(run, range(5), Rule(of="best")).values >= trial_result(run, range(5), Rule()).values


def test_without_optuna_one_line_names_the_extra(tmp_path, monkeypatch, capsys):
    (tmp_path / "space.yaml").write_text("beta: {low: 1, high: 9}\n")
    monkeypatch.setitem(sys.modules, "optuna", None)
    done = call_cli(capsys, "tune", "iql/pendulum", "--space", tmp_path / "space.yaml", "--trials", 4, code=2)
    assert done.stderr == "error: a study of `rl-training tune` needs Optuna: pip install 'rl-training[sweep]'\n"


def test_a_damaged_study_is_one_line(tmp_path):
    with pytest.raises(CheckpointError, match="holds no study"):
        StudyFolder(tmp_path).read()
    (tmp_path / "study.json").write_text('{"format": 1}')
    with pytest.raises(CheckpointError, match=r"study\.json: is damaged"):
        StudyFolder(tmp_path).read()


def job(folder, **changes):
    from rl_training.config.loading import make_config

    config = make_config(run_values(trials=[{"beta": 1.0}, {"beta": 4.0}], **changes)).record()
    return PopulationJob(folder.name, str(folder), config)


def test_a_job_is_harmless_to_run_twice_and_goes_on_where_it_was(tmp_path, monkeypatch):
    assert run_job(job(tmp_path / "one")) == FINISHED
    before = contents(tmp_path / "one")
    assert run_job(job(tmp_path / "one")) == FINISHED
    assert contents(tmp_path / "one") == before
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", trials=[{"beta": 1.0}, {"beta": 4.0}], callbacks=[CutAt("checkpoint", 60)])
    assert run_job(job(tmp_path / "cut")) == FINISHED
    assert_same_run(tmp_path / "one", tmp_path / "cut")
    missing = job(tmp_path / "bad", algo_kwargs={"dataset": {"path": str(tmp_path / "none.csv")}})
    assert run_job(missing).startswith("DatasetError: ")

    def full(self, **_):
        raise StorageError("the disk is full")

    monkeypatch.setattr("rl_training.tuning.job.ExperimentManager.train", full)
    with pytest.raises(StorageError):
        run_job(job(tmp_path / "two"))


def test_jobs_side_by_side_are_those_one_after_the_other(tmp_path):
    jobs = [job(tmp_path / name, seed=seed) for seed, name in enumerate(("a", "b"))]
    done = {one.name: status for one, status in LocalBackend(2).run(jobs)}
    assert done == {"a": FINISHED, "b": FINISHED}
    assert {one.name: status for one, status in LocalBackend().run(jobs)} == done
    run_job(job(tmp_path / "alone", seed=1))
    assert_same_run(tmp_path / "b", tmp_path / "alone")
