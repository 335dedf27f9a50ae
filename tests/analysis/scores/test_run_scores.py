"""The scores of runs: which runs form a group and a task, and what makes a comparison unfair."""

import json
import shutil

import pytest

from rl_training.analysis.bootstrap import interval
from rl_training.analysis.comparison import compare
from rl_training.errors import CheckpointError, ConfigError
from tests.analysis.runs import write_run

LAST = [-10.0, -12.0, -11.0, -14.0, -9.0]
EARLIER = [-5.0, -30.0, -30.0, -30.0, -30.0]
WORSE = [value - 50.0 for value in LAST]


KINDS_OF_SCORES = {
    "one": ("iql", "action_distance"),
    "same": ("td3_bc", "action_distance"),
    "other": ("td3_bc", "td_error"),
}


@pytest.fixture
def runs(tmp_path):
    """Two populations on one task."""
    write_run(tmp_path / "one", [EARLIER, LAST])
    write_run(tmp_path / "two", [EARLIER, WORSE], "td3_bc")
    return tmp_path


def test_each_member_scores_with_its_last_evaluation(runs):
    found = compare([runs / "one", runs / "two"])
    assert {name: list(group["Pendulum-v1"]) for name, group in found.scores.items()} == {"iql": LAST, "td3_bc": WORSE}
    assert (found.metric, found.by, found.warnings) == ("eval/return_mean", "last", [])
    assert found.cells["iql"]["Pendulum-v1"].iqm == interval(LAST)
    assert found.conclusion.startswith("iql is better than td3_bc on Pendulum-v1: ")


def test_the_best_evaluation_is_optimistic_and_said_to_be(runs):
    found = compare([runs / "one", runs / "two"], by="best")
    assert list(found.scores["iql"]["Pendulum-v1"]) == [-5.0, *LAST[1:]]
    assert "optimistic" in found.warnings[0]
    write_run(runs / "two", [WORSE], "td3_bc")
    assert any("unequal numbers of evaluations" in warning for warning in compare([runs], by="best").warnings)


def test_another_metric_of_which_low_values_are_good(runs):
    found = compare([runs / "one", runs / "two"], metric="train/loss", lower_is_better=True, by="best")
    assert list(found.scores["iql"]["Pendulum-v1"]) == [1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(ConfigError, match="has no train/los: no such metric was written. Did you mean `train/loss`"):
        compare([runs], metric="train/los")
    for metric in ("seed", "step"):
        with pytest.raises(ConfigError, match=f"--metric {metric}: is no measured number; there are train/loss, eval/"):
            compare([runs], metric=metric)


def test_folders_globs_and_names_all_mean_runs(runs, monkeypatch):
    expected = compare([runs / "one", runs / "two"]).as_dict()
    assert compare([runs]).as_dict() == expected
    assert compare(runs).as_dict() == expected
    monkeypatch.chdir(runs)
    assert compare(["one", "t*"]).as_dict() == expected
    assert compare({"iql": "one", "td3_bc": ["two"]}).as_dict() == expected
    assert list(compare(["mine=one", "theirs=tw[o]"]).scores) == ["mine", "theirs"]
    mixed = compare({"mine": "one", "theirs": {"Pendulum-v1": WORSE}})
    assert (mixed.metric, list(mixed.scores)) == ("eval/return_mean", ["mine", "theirs"])


def test_groups_of_one_algorithm_are_called_by_their_directories(runs):
    write_run(runs / "two", [WORSE])
    assert list(compare([runs / "one", runs / "two"]).scores) == ["one", "two"]
    write_run(runs / "deep" / "one", [WORSE])
    names = list(compare([runs / "one", runs / "deep" / "one"]).scores)
    assert names == [str(runs / "one"), str(runs / "deep" / "one")]


def test_more_seeds_of_a_task_are_pooled_and_other_tasks_are_tasks(tmp_path):
    for algo, shift in (("iql", 0.0), ("bc", -5.0)):
        write_run(tmp_path / f"{algo}-a", [[1.0 + shift, 2.0 + shift]], algo)
        write_run(tmp_path / f"{algo}-b", [[3.0 + shift]], algo, seeds=[7])
        write_run(tmp_path / f"{algo}-c", [[800.0 + shift, 900.0]], algo, env_id="Hopper-v5")
    found = compare([f"iql={tmp_path}/iql-*", f"bc={tmp_path}/bc-a,{tmp_path}/bc-b,{tmp_path}/bc-c"])
    assert found.tasks == ["Pendulum-v1", "Hopper-v5"]
    assert list(found.scores["iql"]["Pendulum-v1"]) == [1.0, 2.0, 3.0]
    assert found.normalization == "min-max"  # Pendulum has no reference returns
    assert (found.overall["iql"].runs, found.pairs[0].difference) == (2, None)


def test_tasks_with_reference_returns_are_normalised_by_them(tmp_path):
    for algo in ("iql", "bc"):
        for env in ("Hopper-v5", "Walker2d-v5"):
            write_run(tmp_path / f"{algo}-{env}", [[1000.0, 1100.0]], algo, env_id=env)
    found = compare(tmp_path)
    assert found.normalization == "reference"
    assert found.cells["iql"]["Hopper-v5"].mean == 1050.0
    assert found.overall["iql"].mean == pytest.approx((100 * 1070.272305 / 3254.572305 + 100 * 1048.370992 / 4590.670992) / 2)


def test_datasets_of_one_environment_are_tasks_where_a_group_has_several(tmp_path):
    for algo in ("iql", "bc"):
        for name in ("medium", "expert"):
            data = {"dataset": f"data/{name}.npz"}
            write_run(tmp_path / f"{algo}-{name}", [[1.0, 2.0]], algo, env_id="Hopper-v5", data=name, algo_kwargs=data)
    found = compare(tmp_path)
    assert sorted(found.tasks) == ["Hopper-v5 expert", "Hopper-v5 medium"]
    assert found.normalization == "reference"
    single = compare([tmp_path / "iql-medium", tmp_path / "bc-expert"])
    assert single.tasks == ["Hopper-v5"]
    assert single.warnings == ["Hopper-v5: trained on different data: iql medium medium; bc expert expert"]
    moved = {"dataset": "elsewhere/hopper.npz"}
    write_run(tmp_path / "bc-expert", [[1.0, 2.0]], "bc", env_id="Hopper-v5", data="medium", algo_kwargs=moved)
    assert compare([tmp_path / "iql-medium", tmp_path / "bc-expert"]).warnings == []  # the same data under another name


def test_the_same_data_are_one_task_whatever_their_files_are_called(tmp_path):
    named = {"one/medium": "f1", "one/replay": "f2", "two/hopper-medium": "f1", "two/data": "f2"}
    for path, fingerprint in named.items():
        algo = "iql" if path.startswith("one") else "bc"
        kwargs = {"dataset": f"{path}.npz"}
        write_run(tmp_path / path, [[1.0, 2.0]], algo, env_id="Hopper-v5", data=fingerprint, algo_kwargs=kwargs)
    found = compare([tmp_path / "one", tmp_path / "two"])
    assert (found.tasks, found.warnings) == (["Hopper-v5 medium", "Hopper-v5 replay"], [])
    kwargs = {"dataset": "elsewhere/medium.npz"}  # one name, other data
    write_run(tmp_path / "one" / "replay", [[1.0, 2.0]], env_id="Hopper-v5", data="f2", algo_kwargs=kwargs)
    assert compare([tmp_path / "one", tmp_path / "two"]).tasks == ["Hopper-v5 medium (f1)", "Hopper-v5 medium (f2)"]


def test_every_combination_of_a_sweep_is_a_group(tmp_path):
    write_run(tmp_path / "a", [[1.0, 2.0, 11.0, 12.0]], seeds=[0, 1], sweep={"expectile": [0.7, 0.9]})
    found = compare([tmp_path / "a"])
    assert {name: list(group["Pendulum-v1"]) for name, group in found.scores.items()} == {
        "iql expectile=0.7": [1.0, 2.0],
        "iql expectile=0.9": [11.0, 12.0],
    }


def test_unequal_budgets_episodes_and_states_are_warned_of(runs):
    events = [("diverged", 1), ("stopped", 2)]
    write_run(runs / "two", [WORSE], "td3_bc", steps=50, eval_episodes=3, status="running", events=events)
    found = compare([runs / "one", runs / "two"])
    two = runs / "two"
    assert found.warnings == [
        f"{two}: has not finished; its scores are those after 50 steps",
        f"td3_bc: 1 of 5 members of {two} diverged; their last evaluation counts",
        f"td3_bc: 1 of 5 members of {two} stopped early; their last evaluation counts",
        "Pendulum-v1: evaluated in unequal numbers of episodes: iql 10; td3_bc 3",
        "Pendulum-v1: trained for unequal numbers of steps: iql 100; td3_bc 50",
    ]


def test_environments_that_are_made_differently_are_warned_of(runs):
    write_run(runs / "two", [WORSE], "td3_bc", env_kwargs={"g": 5.0}, max_episode_steps=50)
    found = compare([runs])
    assert found.warnings == ["Pendulum-v1: environments are made differently: iql as registered; td3_bc {'g': 5.0}, 50"]
    assert "On Pendulum-v1 the environments are made differently, so what differs may be their" in found.conclusion


def test_names_with_any_character_in_python(runs):
    assert list(compare({"lr=0.1, a": runs / "one", "b": [str(runs / "two")]}).scores) == ["lr=0.1, a", "b"]


def test_a_member_without_an_evaluation_is_left_out_and_told(runs):
    write_run(runs / "two", [[-1.0, None, -2.0]], "td3_bc")
    found = compare([runs / "one", runs / "two"])
    assert list(found.scores["td3_bc"]["Pendulum-v1"]) == [-1.0, -2.0]
    assert found.warnings == [f"td3_bc: 1 of 3 members of {runs / 'two'} have no score, which may flatter it"]


def test_pooled_runs_with_other_settings_are_warned_of(runs):
    write_run(runs / "more", [LAST], seeds=[5, 6, 7, 8, 9], algo_kwargs={"dataset": "random", "beta": 7.0})
    found = compare([f"iql={runs}/one,{runs}/more", runs / "two"])
    assert found.warnings == ["iql: runs on Pendulum-v1 are pooled though they differ in algo_kwargs.beta"]


def test_repeated_runs_and_seeds_are_refused(runs):
    with pytest.raises(ConfigError, match="one: is named twice"):
        compare([runs / "one", runs / "one"])
    write_run(runs / "again", [LAST])
    with pytest.raises(ConfigError, match=r"iql: seed 0 on Pendulum-v1 is both in .*one and .*again, alike; leave one out"):
        compare([f"iql={runs}/one,{runs}/again", runs / "two"])
    write_run(runs / "again", [LAST], algo_kwargs={"dataset": "random", "beta": 7.0})
    with pytest.raises(ConfigError, match=r"with other settings \(algo_kwargs\.beta\); give each its own NAME="):
        compare([f"iql={runs}/one,{runs}/again", runs / "two"])


def test_what_cannot_be_compared_is_told(runs, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    scores = tmp_path / "scores.json"
    scores.write_text("{}")
    unfinished = write_run(tmp_path / "new", [], "bc", status="running")
    blind = write_run(tmp_path / "blind", [], "awac", env_id=None)
    unseen = write_run(tmp_path / "unseen", [], "awac")
    lost = write_run(tmp_path / "lost", [LAST], "awac")
    (lost / "metrics.jsonl").unlink()
    cut = write_run(tmp_path / "cut", [LAST], "awac")
    (cut / "metrics.jsonl").write_text("")
    checkpoint = runs / "one" / "checkpoints" / "step-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text("{}")
    cases = [
        ([checkpoint, runs / "two"], ConfigError, "is a checkpoint or a dataset; whole runs are compared"),
        ([runs / "one", empty], CheckpointError, "is not a run directory (no run.json)"),
        ([runs / "one", tmp_path / "nowhere"], CheckpointError, "there is no run or checkpoint here"),
        ([runs / "one", f"{tmp_path}/none-*"], ConfigError, "matches no directory"),
        ([f"a={runs}/one,{runs}/two", runs / "one"], ConfigError, "a: holds runs of iql, td3_bc"),
        ([f"a={runs}/one", f"a={runs}/two"], ConfigError, "two groups are called 'a'"),
        ([runs / "one", f"={runs}/two"], ConfigError, "must be a run directory, or NAME=PATH"),
        ([runs / "one", "b="], ConfigError, "must be a run directory, or NAME=PATH"),
        ([runs / "one", f"b={scores}"], ConfigError, "scores.json: has no group"),
        ([runs / "one"], ConfigError, "there is only one group (iql)"),
        ([runs / "one", unfinished], ConfigError, "has no eval/return_mean yet, and has not finished"),
        ([runs / "one", blind], ConfigError, "has no eval/return_mean: it was not evaluated in an environment"),
        ([runs / "one", unseen], ConfigError, "has no eval/return_mean: its metrics.jsonl holds no evaluation"),
        ([runs / "one", lost], ConfigError, "its metrics.jsonl is missing or has no complete line; use a whole copy"),
        ([runs / "one", cut], ConfigError, "its metrics.jsonl is missing or has no complete line; use a whole copy"),
    ]
    for arguments, kind, words in cases:
        with pytest.raises(kind) as error:
            compare(arguments)
        assert words in str(error.value)


def test_without_an_environment_the_distance_is_suggested_and_never_what_critics_expect(tmp_path):
    for algo, status in (("iql", "finished"), ("td3_bc", "running")):
        folder = write_run(tmp_path / algo, [], algo, env_id=None, status=status, algo_kwargs={"dataset": "data/logs"})
        figures = {"validation/v_mean": -3.0, "validation/q_mean": -3.0, "validation/action_distance": 0.2}
        with (folder / "metrics.jsonl").open("a") as stream:
            stream.write(json.dumps({"step": 100, "member": 0, "seed": 0, **figures}) + "\n")
    for first, second in (("iql", "td3_bc"), ("td3_bc", "iql")):
        with pytest.raises(ConfigError) as error:
            compare([tmp_path / first, tmp_path / second])
        assert "by `--metric validation/action_distance`: how far" in str(error.value)
        assert "_mean`" not in str(error.value)
    with pytest.raises(ConfigError) as error:
        compare([tmp_path], metric="validation/w_mean")
    assert "_mean`" not in str(error.value)
    found = compare([tmp_path], metric="validation/action_distance")
    assert found.tasks == ["logs"]  # as people call the data


def without_environment(folder, algo, data, file="data/logs", value=0.2):
    """A run on data alone, with a fingerprint and a file."""
    write_run(folder, [], algo, env_id=None, data=data, seeds=[0, 1], algo_kwargs={"dataset": file})
    rows = [{"step": 100, "member": k, "seed": k, "validation/action_distance": value + 0.01 * k} for k in (0, 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_without_an_environment_other_data_is_another_task(tmp_path):
    without_environment(tmp_path / "iql", "iql", "f1" * 32, "data/arm.npz")
    without_environment(tmp_path / "bc", "bc", "f2" * 32, "data/veh.csv")
    with pytest.raises(ConfigError) as error:
        compare([tmp_path / "iql", tmp_path / "bc"], metric="validation/action_distance")
    assert str(error.value).startswith("not comparable: trained on different data (iql: arm; bc: veh); ")
    without_environment(tmp_path / "bc", "bc", "f2" * 32, "elsewhere/arm.npz")  # the same name does not make it the same
    with pytest.raises(ConfigError, match=r"different data \(iql: arm \(f1f1f1\); bc: arm \(f2f2f2\)\); "):
        compare([tmp_path / "iql", tmp_path / "bc"], metric="validation/action_distance")
    without_environment(tmp_path / "bc", "bc", "f1" * 32, "elsewhere/other.npz")
    assert compare([tmp_path / "iql", tmp_path / "bc"], metric="validation/action_distance").tasks == ["arm"]


def test_groups_without_an_environment_are_compared_on_the_data_that_they_share(tmp_path):
    for algo, sets in (("iql", ("arm", "veh")), ("bc", ("arm", "veh")), ("cql", ("arm",))):
        for name in sets:
            without_environment(tmp_path / algo / name, algo, name * 20, f"data/{name}.npz")
    both = compare([tmp_path / "iql", tmp_path / "bc"], metric="validation/action_distance")
    assert (both.tasks, both.warnings[:-1]) == (["arm", "veh"], [])
    found = compare([tmp_path / "iql", tmp_path / "cql"], metric="validation/action_distance")
    assert found.tasks == ["arm"]
    assert found.warnings == ["veh: only some groups have it, so it is left out (here of iql)"]


@pytest.mark.parametrize("status", ["finished", "running"])
def test_a_run_without_critics_is_named_where_others_have_values(tmp_path, status):
    for algo in ("iql", "bc"):
        without_environment(tmp_path / algo, algo, "f1" * 32)
    record = json.loads((tmp_path / "bc" / "run.json").read_text())
    (tmp_path / "bc" / "run.json").write_text(json.dumps({**record, "status": status}))
    add_row(tmp_path / "iql", "validation/q_policy")
    for order in (("iql", "bc"), ("bc", "iql")):
        with pytest.raises(ConfigError) as error:
            compare([tmp_path / name for name in order], metric="validation/q_policy")
        assert str(error.value) == (
            f"{tmp_path}/bc: has no validation/q_policy, which {tmp_path}/iql has: bc has no critics; leave it out, or "
            "compare by `--metric validation/action_distance`, which all have"
        )


def test_a_metric_that_only_some_runs_wrote_is_no_misspelt_one(tmp_path):
    for algo in ("iql", "td3_bc"):
        without_environment(tmp_path / algo, algo, "f1" * 32)
    add_row(tmp_path / "iql", "validation/q_policy")
    with pytest.raises(
        ConfigError, match="td3_bc: has no validation/q_policy, which .*iql has: it was not written in this run;"
    ):
        compare([tmp_path], metric="validation/q_policy")
    with pytest.raises(ConfigError, match="no such metric was written. Did you mean `validation/action_distance`"):
        compare([tmp_path], metric="validation/action_distanc")


def add_row(folder, metric, value=1.0):
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write(json.dumps({"step": 100, "member": 0, "seed": 0, metric: value}) + "\n")


def online_rows(folder, seeds, env_step, value):
    """Add an evaluation of the online phase to a run."""
    rows = [{"step": 200, "env_step": env_step, "member": k, "seed": k, "eval/return_mean": value} for k in range(seeds)]
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)


def test_steps_in_the_environment_after_those_on_data_are_told(tmp_path):
    write_run(tmp_path / "iql", [LAST], steps=5500)
    two = write_run(tmp_path / "two", [LAST], "td3_bc", steps=4000)
    online_rows(two, 5, 1500, -5.0)
    assert compare([tmp_path]).warnings == [
        "Pendulum-v1: trained in different ways: iql 5,500 gradient steps on data; "
        "td3_bc finetuned 4,000 gradient steps on data, then 1,500 environment steps"
    ]
    online_rows(write_run(tmp_path / "iql", [LAST], steps=4000), 5, 1500, -6.0)
    assert compare([tmp_path]).warnings == []
    online_rows(write_run(tmp_path / "iql", [LAST], steps=5000), 5, 500, -6.0)
    assert compare([tmp_path]).warnings == [
        "Pendulum-v1: trained for unequal numbers of steps: "
        "iql finetuned 5,000 gradient steps on data, then 500 environment steps; "
        "td3_bc finetuned 4,000 gradient steps on data, then 1,500 environment steps"
    ]


def test_a_run_and_its_finetune_are_two_groups_and_pretraining_of_an_online_algorithm_is_no_finetune(tmp_path):
    write_run(tmp_path / "offline", [LAST], steps=4000)
    online_rows(write_run(tmp_path / "online", [LAST], steps=4000), 5, 1500, -5.0)
    online_rows(write_run(tmp_path / "pretrained", [LAST], "rlpd", steps=4000), 5, 1500, -5.0)
    assert list(compare([tmp_path]).scores) == ["iql", "iql finetuned", "rlpd"]


def test_a_last_value_that_is_not_finite_is_no_missing_end(runs):
    two = write_run(runs / "two", [EARLIER, [None, *WORSE[1:]]], "td3_bc", spread=1.0)
    with (two / "metrics.jsonl").open("a") as stream:
        stream.write(json.dumps({"step": 100, "member": 0, "seed": 0, "eval/length_mean": 200.0}) + "\n")
    (told,) = compare([runs]).warnings
    assert told == (
        f"td3_bc: 1 of 5 members of {two} have no finite value at step 100, only up to 50: what was measured there is NaN or "
        "infinite, so an earlier value counts"
    )


def test_scores_of_rows_are_compared_by_their_own_name(tmp_path):
    """Its sign is turned to choose checkpoints, and with another `select_by` it is another figure."""
    chosen = {"env_id": None, "algo_kwargs": {"dataset": "random", "validation": {"fraction": 0.2}}}

    def run(name, algo, select_by, **more):
        folder = write_run(tmp_path / name, [LAST], algo, **{**chosen, "select_by": select_by, **more})
        text = (folder / "metrics.jsonl").read_text().replace("eval/return_mean", "validation/score")
        (folder / "metrics.jsonl").write_text(text)
        return folder

    one, same, other = (run(name, *kind) for name, kind in KINDS_OF_SCORES.items())
    with pytest.raises(
        ConfigError, match=r"^validation/score: is of `action_distance`, .*`--metric validation/action_distance`$"
    ):
        compare([one, same], metric="validation/score")
    with pytest.raises(ConfigError, match=r"another figure in each run \(select_by: action_distance; td_error\)"):
        compare([one, other], metric="validation/score")
    fitted = [run("f1", "iql", "fqe"), run("f2", "td3_bc", "fqe")]
    assert (
        "is an estimate from data (`select_by: fqe`), not a measured return"
        in compare(fitted, metric="validation/score").conclusion
    )
    fitted[1] = run("f3", "td3_bc", "fqe", select_gamma=0.9)
    with pytest.raises(ConfigError, match=r"select_by: fqe with gamma 0.99; fqe with gamma 0.9"):
        compare(fitted, metric="validation/score")


def test_a_run_that_lost_the_end_of_its_metrics_is_told(runs):
    two = write_run(runs / "two", [EARLIER, WORSE], "td3_bc")
    text = (two / "metrics.jsonl").read_text()
    (two / "metrics.jsonl").write_text(text[:-5])
    where = f"members of {two} have no evaluation at step 100, only up to 50: the end of its metrics.jsonl is missing"
    assert compare([runs]).warnings == [f"td3_bc: 1 of 5 {where}"]
    lines = text.splitlines(keepends=True)
    (two / "metrics.jsonl").write_text("".join(lines[:-5]))  # of no member is the end there: the record tells where it was
    record = json.loads((two / "run.json").read_text())
    (two / "run.json").write_text(json.dumps({**record, "step": 100, "env_step": None}))
    assert f"td3_bc: 5 of 5 {where}" in compare([runs]).warnings
    stopped = "".join(json.dumps({"step": 50, "member": k, "seed": k, "event": "stopped"}) + "\n" for k in range(5))
    (two / "metrics.jsonl").write_text("".join(lines[:-5]) + stopped)
    assert not any("is missing" in warning for warning in compare([runs]).warnings)  # they ended there


def test_runs_beside_scores_of_a_file(runs):
    path = runs / "peers.json"
    path.write_text(json.dumps({"corl": {"Pendulum-v1": WORSE, "Hopper-v5": [1.0]}}))
    found = compare([runs / "one", path])
    assert (list(found.scores), found.pairs[0].verdict) == (["iql", "corl"], "better")
    path.write_text(json.dumps({"iql": {"Pendulum-v1": WORSE}}))
    with pytest.raises(ConfigError, match="two groups are called 'iql'"):
        compare([runs / "one", path])


def test_luck_of_few_episodes_is_not_taken_for_a_spread_over_seeds(runs):
    """Five returns with a variance of 3.7: means of ten episodes vary by a ninth of the square of their deviation."""
    write_run(runs / "one", [LAST], spread=5.0, eval_episodes=10)
    write_run(runs / "two", [WORSE], "td3_bc", spread=1.0, eval_episodes=10)
    (warning,) = compare([runs]).warnings
    assert warning.startswith("Pendulum-v1: most of the spread over seeds is luck of 10 evaluation episodes, of which each ")
    assert "(75% of iql); compare what `rl-training evaluate RUN --episodes 100 --seed 1 --json" in warning  # 25 / 9 / 3.7
    write_run(runs / "one", [LAST], spread=4.0, eval_episodes=10)  # 16 / 9 / 3.7 is less than half
    assert compare([runs]).warnings == []
    write_run(runs / "one", [LAST], spread=20.0, eval_episodes=100)
    write_run(runs / "two", [WORSE], "td3_bc", spread=20.0, eval_episodes=100)
    assert "--episodes 400 --seed 1" in compare([runs]).warnings[0]
    write_run(runs / "three", [LAST], seeds=[5, 6, 7, 8, 9], spread=20.0, eval_episodes=100)
    assert compare([runs]).warnings[0].endswith("; more eval_episodes tell as much as more seeds would")  # of several runs
    shutil.rmtree(runs / "three")
    write_run(runs / "two", [WORSE], "td3_bc", spread=1.0, eval_episodes=10)
    write_run(runs / "one", [LAST], spread=0.0, eval_episodes=1)  # one episode tells nothing of its luck
    assert not any("luck" in warning for warning in compare([runs]).warnings)


def test_a_group_that_went_on_from_another_is_told(tmp_path):
    finetune = {"env_steps": 100, "from_step": 100}
    first = write_run(tmp_path / "first", [LAST])
    record = json.loads((first / "run.json").read_text())
    (first / "run.json").write_text(json.dumps({**record, "step": 100}))
    write_run(tmp_path / "then", [WORSE], finetune=finetune)
    told = "then: seems to go on from first (the same settings, data, seeds, steps)"
    assert [warning for warning in compare([tmp_path / "first", tmp_path / "then"]).warnings if told in warning]
    for other in ({"seeds": [5, 6, 7, 8, 9]}, {"algo_kwargs": {"beta": 5.0}}):
        write_run(tmp_path / "then", [WORSE], finetune=finetune, **other)
        assert not [warning for warning in compare([tmp_path / "first", tmp_path / "then"]).warnings if "go on" in warning]


def test_a_low_return_is_never_good(runs):
    with pytest.raises(ConfigError, match="--lower-is-better: a high eval/return_mean of a run is good"):
        compare([runs], lower_is_better=True)
