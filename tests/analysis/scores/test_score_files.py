"""Files of scores: evaluations that were written as JSON, and tables."""

import json

import pytest

from rl_training.analysis.comparison import compare
from rl_training.errors import ConfigError, DatasetError
from tests.analysis.known_scores import BAD, GOOD
from tests.analysis.runs import write_run


def test_files_of_evaluations(tmp_path):
    """Diverged members count, as they do where runs are compared, and each combination of a sweep is a group."""

    def written(name, knobs):
        rows = [{"member": k, "seed": k, "knobs": own, "return_mean": GOOD[k]} for k, own in enumerate(knobs)]
        rows[0]["diverged_at"], rows[-1]["stopped_at"] = 3, 2
        (tmp_path / name).write_text(json.dumps({"env_id": "Pendulum-v1", "members": rows}))
        return tmp_path / name

    found = compare([written("iql.json", [{}] * 4), written("sweep.json", [{"beta": 1.5}, {"beta": 1.5}, {"beta": 3.0}])])
    assert {name: scores["Pendulum-v1"].tolist() for name, scores in found.scores.items()} == {
        "iql": GOOD[:4],
        "sweep beta=1.5": GOOD[:2],
        "sweep beta=3": GOOD[2:3],
    }
    assert found.warnings == [
        f"iql: 1 of 4 members in {tmp_path / 'iql.json'} diverged; their last good policies count",
        f"iql: 1 of 4 members in {tmp_path / 'iql.json'} stopped early; their last policies count",
        f"sweep beta=1.5: 1 of 2 members in {tmp_path / 'sweep.json'} diverged; their last good policies count",
        f"sweep beta=3: 1 of 1 members in {tmp_path / 'sweep.json'} stopped early; their last policies count",
    ]
    written("iql.json", ["x", {"beta": "<b>"}])  # by another hand
    assert "iql" in compare([tmp_path / "iql.json", tmp_path / "sweep.json"]).scores


def test_evaluations_that_are_no_fair_comparison_are_told(tmp_path):
    def written(name, **more):
        rows = [{"member": k, "seed": k, "return_mean": GOOD[k]} for k in range(4)]
        (tmp_path / name).write_text(json.dumps({"env_id": "Pendulum-v1", "members": rows, **more}))
        return tmp_path / name

    files = [written("a.json", episodes=50, seed=1, environment="as registered")]
    files.append(written("b.json", episodes=50, seed=1, environment="as registered"))
    assert compare(files).warnings == []
    files.append(written("c.json", episodes=3, seed=None, environment="20"))
    assert compare(files).warnings == [
        "Pendulum-v1: evaluated in unequal numbers of episodes: a 50; b 50; c 3",
        "Pendulum-v1: evaluated in different episodes (--seed): a 1; b 1; c each member its own",
        "Pendulum-v1: evaluated in environments that are made differently: a as registered; b as registered; c 20",
    ]
    assert "On Pendulum-v1 the environments are made differently, so what differs may be their" in compare(files).conclusion
    assert "differently" not in compare(files[:2]).conclusion


def written_after(folder, name, algo, **steps):
    """What `evaluate --json` says of a policy that was trained for so many steps."""
    values = {"algo": algo, "env_id": "Pendulum-v1", **steps, "members": [{"return_mean": value} for value in GOOD]}
    (folder / f"{name}.json").write_text(json.dumps(values))
    return folder / f"{name}.json"


def test_evaluations_of_policies_that_were_trained_unequally_are_told_as_of_runs(tmp_path):
    bc = written_after(tmp_path, "bc", "bc", step=2000, env_step=None, offline_steps=2000)
    off = written_after(tmp_path, "off", "iql", step=3000, env_step=None, offline_steps=3000)
    tuned = written_after(tmp_path, "tuned", "iql", step=4500, env_step=1500, offline_steps=3000)
    sac = written_after(tmp_path, "sac", "sac", step=1, env_step=2000, offline_steps=0)
    assert compare([bc, off]).warnings == ["Pendulum-v1: trained for unequal numbers of steps: bc 2,000; off 3,000"]
    assert compare([off, tuned, sac]).warnings == [
        "Pendulum-v1: trained in different ways: off 3,000 gradient steps on data; "
        "tuned 3,000 gradient steps on data, then 1,500 environment steps; sac 2,000 environment steps"
    ]
    run = write_run(tmp_path / "run", [GOOD], "td3_bc", steps=3000, data=None)
    assert "trained" not in " ".join(compare([run, off]).warnings)
    assert "Pendulum-v1: trained for unequal numbers of steps: td3_bc 3,000; bc 2,000" in compare([run, bc]).warnings


def test_evaluations_of_earlier_versions_tell_less_of_the_steps(tmp_path):
    """How many steps came before those online is not in them; nothing is claimed of what is not known."""
    off = written_after(tmp_path, "off", "iql", step=3000, env_step=None)
    tuned = written_after(tmp_path, "tuned", "iql", step=4500, env_step=1500)
    sac = written_after(tmp_path, "sac", "sac", step=1, env_step=2000)
    assert compare([off, tuned, sac]).warnings == [
        "Pendulum-v1: trained in different ways: off 3,000 gradient steps on data; "
        "tuned gradient steps on data, then 1,500 environment steps; sac 2,000 environment steps"
    ]
    new = written_after(tmp_path, "new", "td3_bc", step=4500, env_step=1500, offline_steps=3000)
    assert compare([tuned, new]).warnings == []
    for number, step in enumerate((None, "1", 1.5, [1])):
        foreign = written_after(tmp_path, f"foreign{number}", "iql", step=step, env_step=step)
        assert compare([off, foreign]).warnings == []


def test_luck_of_few_episodes_is_told_of_evaluations_too(tmp_path):
    """Unless all members had the same episodes; the variance over seeds is 5.3 here, that of each mean 36 / 9 of it."""

    def written(name, seed, std, episodes=10):
        values = [value + len(name) for value in (-1.0, -2.0, -3.0, -4.0, -7.0)]
        rows = [{"return_mean": value, "return_std": std} for value in values]
        how = {"env_id": "Pendulum-v1", "episodes": episodes, "seed": seed, "environment": "as registered"}
        (tmp_path / f"{name}.json").write_text(json.dumps({**how, "members": rows}))
        return tmp_path / f"{name}.json"

    found = compare([written("a", None, 6.0), written("bb", None, 1.0)])
    few = "Pendulum-v1: most of the spread over seeds is luck of 10 evaluation episodes, of which each seed has its own"
    advice = "`rl-training evaluate RUN --episodes 100 --seed 1 --json > NAME.json` gives: equal episodes"
    assert found.warnings == [f"{few} (75% of a); compare what {advice}"]
    assert "with more and equal episodes (see the warning) fewer may" in found.conclusion
    assert compare([written("a", 1, 6.0), written("b", 1, 6.0)]).warnings == []
    for std, episodes in ((6.0, 1), (6.0, "10"), (6.0, None), ("6", 10), (None, 10)):
        assert compare([written("a", None, std, episodes), written("b", None, std, episodes)]).warnings == []


def test_evaluations_on_several_tasks_are_one_group_by_its_name(tmp_path):
    def written(name, task, scores):
        rows = [{"member": k, "return_mean": score} for k, score in enumerate(scores)]
        (tmp_path / name).write_text(json.dumps({"env_id": task, "members": rows, "episodes": len(name)}))
        return tmp_path / name

    far = [1e6 * value for value in GOOD]
    iql = written("iql-cart.json", "Cart-v0", GOOD), written("iql-arm.json", "Arm-v0", far)
    bc = written("bc-cart.json", "Cart-v0", BAD), written("bc-arm.json", "Arm-v0", [0.5 * value for value in far])
    found = compare([f"iql={iql[0]},{iql[1]}", f"bc={bc[0]},{bc[1]}"])
    assert (found.tasks, found.normalization, found.pairs[0].verdict) == (["Cart-v0", "Arm-v0"], "min-max", "better")
    assert found.scores["iql"]["Arm-v0"].tolist() == far
    assert found.warnings[0] == "Cart-v0: evaluated in unequal numbers of episodes: iql 13; bc 12"
    assert compare({"iql": iql, "bc": bc}).scores.keys() == found.scores.keys()
    with pytest.raises(ConfigError, match=r"^iql: Cart-v0 is in .*bc-cart.json too; a group has one file for each task, and"):
        compare([f"iql={iql[0]},{bc[0]}", f"bc={bc[1]}"])
    with pytest.raises(ConfigError, match="names runs and files of scores; a group is one or the other"):
        compare([f"iql={iql[0]},{tmp_path}", f"bc={bc[1]}"])
    (tmp_path / "both.json").write_text(json.dumps({"a": GOOD, "b": BAD}))
    with pytest.raises(ConfigError, match=r"both.json: has the groups a, b; pass it without a name"):
        compare([f"iql={tmp_path}/both.json", f"bc={bc[1]}"])


def test_a_seed_that_a_table_has_twice_is_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Group,Task,Seed,Score\na,x,0,1.5\na,x,0,2.5\na,y,0,1\nb,x,0,3\nb,x,1,4\nb,y,,3\nb,y,,3\n")
    assert compare([path]).warnings == [f"a: seed 0 on x more than once in {path}, where each row counts as a run of its own"]


def test_evaluations_whose_members_all_diverged_are_told_with_the_verdict(tmp_path):
    for name, lost in (("a", 2), ("b", 1)):
        rows = [{"return_mean": float(k), **({"diverged_at": 3} if k < lost else {})} for k in range(2)]
        (tmp_path / f"{name}.json").write_text(json.dumps({"env_id": "Pendulum-v1", "members": rows}))
    found = compare([tmp_path / "a.json", tmp_path / "b.json"])
    assert "Every member of a diverged, so its scores are of policies before that." in found.conclusion
    assert "Every member of b" not in found.conclusion


def test_tables_with_other_separators(tmp_path):
    (tmp_path / "a.csv").write_text("group;score\na;1.5\na;2.5\nb;3\nb;4\n")
    assert compare([tmp_path / "a.csv"]).scores["a"]["scores"].tolist() == [1.5, 2.5]


def test_tables_with_the_line_ends_of_old_programs(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"group,score\ra,1.5\ra,2.5\rb,3\rb,4\r")
    assert compare([tmp_path / "a.csv"]).scores["a"]["scores"].tolist() == [1.5, 2.5]


def test_combinations_that_differ_beyond_six_digits_are_two_groups(tmp_path):
    rows = [{"return_mean": 1.0, "knobs": {"gamma": value}} for value in (0.9999991, 0.9999991, 0.9999994, 0.9999994)]
    (tmp_path / "sw.json").write_text(json.dumps({"env_id": "Pendulum-v1", "members": rows}))
    assert list(compare([tmp_path / "sw.json"]).scores) == ["sw gamma=0.9999991", "sw gamma=0.9999994"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "is not valid JSON"),
        ("a.json", "[1, 2]", "is not a JSON object"),
        ("a.json", '{"data": "log.npz", "algo": "iql", "members": [{"member": 0}]}', "has no returns of an evaluation"),
        ("a.json", '{"a": {"x": [1, "two"]}}', "a, x: scores must be numbers"),
        ("a.json", '{"a": [1, NaN]}', "is not valid JSON"),
        ("a.json", '{"a": [1], "a": [2]}', "is not valid JSON"),
        ("a.csv", "", "needs the columns group and score"),
        ("a.csv", "name,return\na,1\n", "needs the columns group and score"),
        ("a.csv", "group,score\n", "has no rows"),
        ("a.csv", "group,score\na,1\na\n", "line 3 has an empty field"),
        ("a.csv", "group,score\na,1,5\n", "line 2 has more fields than the header"),
        ("a.csv", "group,score\na,1\n\na,high\n", "line 4: 'high' is no score"),
        ("a.csv", "group,score\na,1\na,high\n", "line 3: 'high' is no score"),
        ("a.csv", "group,score\na,nan\n", "line 2: 'nan' is no score"),
        ("a.csv", b"group,score\n\xff\xfe,1\n", "is not text"),
        ("a.json", f'{{"a": [{"9" * 401}]}}', "a, scores: scores must be numbers"),
        ("a.csv", f"group,score\n{'a' * 200_000},1\n", "is no table of scores: field larger than field limit"),
        ("missing.csv", None, "is missing"),
    ],
)
def test_damaged_files_of_scores(tmp_path, name, text, words):
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DatasetError) as error:
        compare([tmp_path / name])
    assert words in str(error.value)
    assert name in str(error.value)


def test_a_file_beside_a_run_keeps_its_place_and_is_compared_with_it(tmp_path):
    """50 common episodes of a file are not the five of each member's own with which a run was evaluated."""
    rows = [{"return_mean": value} for value in (-1.0, -2.0, -3.0, -2.5, -1.5)]
    how = {"env_id": "Pendulum-v1", "episodes": 50, "seed": 1, "environment": "as registered"}
    (tmp_path / "old.json").write_text(json.dumps({**how, "members": rows}))
    run = write_run(tmp_path / "run", [[-10.0, -12.0, -11.0, -14.0, -9.0]], eval_episodes=5)
    found = compare([f"x={tmp_path / 'old.json'}", f"y={run}"])
    assert (list(found.scores), found.pairs[0].first, found.from_files) == (["x", "y"], "x", ["x"])
    assert "Pendulum-v1: evaluated in unequal numbers of episodes: y 5; x 50" in found.warnings
    assert "Pendulum-v1: evaluated in different episodes (--seed): y each member its own; x 1" in found.warnings
    assert list(compare([run, tmp_path / "old.json"]).scores) == ["iql", "old"]
    (tmp_path / "old.json").write_text(json.dumps({**how, "environment": "{'g': 1.0}", "members": rows}))
    assert "On Pendulum-v1 the environments are made differently" in compare([run, tmp_path / "old.json"]).conclusion


def test_runs_in_unlike_environments_beside_a_file_are_told_once(tmp_path):
    how = {"env_id": "Pendulum-v1", "episodes": 5, "seed": None, "environment": "as registered"}
    (tmp_path / "old.json").write_text(json.dumps({**how, "members": [{"return_mean": value} for value in GOOD]}))
    one = write_run(tmp_path / "one", [BAD])
    two = write_run(tmp_path / "two", [GOOD], "td3_bc", env_kwargs={"g": 9.0})
    assert compare([one, two, tmp_path / "old.json"]).conclusion.count("environments are made differently") == 1
