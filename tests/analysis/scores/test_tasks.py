"""What tasks are called: by runs, by files of evaluations, and by those who write scores by hand."""

import pytest

from rl_training.analysis.comparison import compare
from rl_training.errors import ConfigError
from tests.analysis.known_scores import BAD, GOOD
from tests.analysis.runs import write_run
from tests.analysis.test_scales import evaluated


def of_sets(folder, name, shift=0.0, sets=("hopper-random", "hopper-medium")):
    """An evaluation for each data set of one environment, as arguments name them together."""
    paths = [evaluated(folder / f"{name}-{data}.json", [value + shift for value in GOOD], data=data) for data in sets]
    return f"{name}={','.join(map(str, paths))}"


def test_evaluations_on_several_sets_of_one_environment_are_tasks(tmp_path):
    found = compare([of_sets(tmp_path, "bc"), of_sets(tmp_path, "iql", 100.0)])
    assert found.tasks == ["Hopper-v5 hopper-random", "Hopper-v5 hopper-medium"]
    assert (found.normalization, found.warnings, found.pairs[0].verdict) == ("reference", [], "worse")
    twice = evaluated(tmp_path / "again.json", data="hopper-random")
    with pytest.raises(ConfigError, match=r"^bc: Hopper-v5 hopper-random is in .*again.json too; a group has one file"):
        compare([f"{of_sets(tmp_path, 'bc')},{twice}", of_sets(tmp_path, "iql")])
    old = [evaluated(tmp_path / f"old{k}.json") for k in range(2)]  # of an earlier version
    with pytest.raises(ConfigError, match="one file for each task, and this one does not tell its data: evaluate again$"):
        compare([f"bc={old[0]},{old[1]}", of_sets(tmp_path, "iql")])


def test_evaluations_of_policies_that_learned_from_different_data_are_told(tmp_path):
    one, two = (evaluated(tmp_path / f"{name}.json", data=f"{name}-v2") for name in ("random", "medium"))
    told = "Hopper-v5: trained on different data: random random-v2 random; medium medium-v2 medium"
    assert compare([one, two]).warnings == [told]
    online = evaluated(tmp_path / "sac.json")
    assert compare([one, online]).warnings == []  # of an earlier version, which does not tell
    online.write_text(online.read_text().replace('"env_id"', '"data": null, "env_id"'))
    assert compare([one, online]).warnings == ["Hopper-v5: trained on different data: random random-v2 random; sac none"]
    run = write_run(tmp_path / "run", [GOOD], env_id="Hopper-v5", data="r1", algo_kwargs={"dataset": "replay.npz"})
    assert "Hopper-v5: trained on different data: iql replay r1; random random-v2 random" in compare([run, one]).warnings


def test_runs_and_evaluations_on_the_same_sets_share_their_tasks(tmp_path):
    for data in ("random", "medium"):
        more = {"env_id": "Hopper-v5", "data": data, "algo_kwargs": {"dataset": f"{data}.npz"}}
        write_run(tmp_path / "iql" / data, [BAD], **more)
    found = compare([tmp_path / "iql", of_sets(tmp_path, "bc", sets=("random", "medium"))])
    assert sorted(found.tasks) == ["Hopper-v5 medium", "Hopper-v5 random"]
    assert not any("different data" in warning for warning in found.warnings)


@pytest.mark.parametrize("called", ["Hopper-v5", "hopper-medium", "Hopper-v5 hopper-medium"])
def test_scores_of_a_file_may_name_the_environment_or_the_data(tmp_path, called):
    ours = evaluated(tmp_path / "ours.json", data="hopper-medium")
    found = compare({"ours": ours, "corl": {called: GOOD, "hopper-random": BAD}})
    assert found.tasks == ["Hopper-v5"]
    assert found.scores["corl"]["Hopper-v5"].tolist() == GOOD
    assert "hopper-random: only some groups have it, so it is left out (here of corl)" in found.warnings


@pytest.mark.parametrize("called", ["{}", "Hopper-v5 {}"])
def test_scores_of_a_file_may_name_each_of_several_sets(tmp_path, called):
    (tmp_path / "peers.csv").write_text(
        "group,task,score\n" + "".join(f"corl,{called.format(data)},{k}\n" for data in ("random", "medium") for k in range(3))
    )
    found = compare([of_sets(tmp_path, "bc", sets=("random", "medium")), tmp_path / "peers.csv"])
    assert found.tasks == ["Hopper-v5 random", "Hopper-v5 medium"]


def test_the_way_to_common_tasks_fits_what_was_given(tmp_path):
    several = of_sets(tmp_path, "bc")
    with pytest.raises(ConfigError) as error:
        compare({"bc": several.removeprefix("bc=").split(","), "corl": {"Hopper-v5": GOOD}})
    told = "in a file of scores call a task as runs do, here `Hopper-v5 hopper-random` or `hopper-random`"
    assert str(error.value).endswith(told)
    with pytest.raises(ConfigError, match="call each task the same in all files$"):
        compare({"a": {"x": GOOD}, "b": {"y": BAD}})
    for algo, env in (("iql", "Hopper-v5"), ("bc", "Walker2d-v5")):
        write_run(tmp_path / algo, [GOOD], algo, env_id=env)
    with pytest.raises(ConfigError, match="runs of one algorithm belong together by NAME=PATH,PATH$"):
        compare([tmp_path / "iql", tmp_path / "bc"])
