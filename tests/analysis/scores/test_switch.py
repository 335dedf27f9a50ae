"""A run before and after its switch to online: two groups, with what each seed gained."""

import json
import re

import numpy as np
import pytest
from scipy import stats

from rl_training.analysis.comparison import compare
from rl_training.errors import ConfigError
from tests.analysis.runs import write_run
from tests.analysis.scores.test_run_scores import online_rows

BEFORE = [-20.0, -10.0, -15.0, -12.0, -30.0]
GAINS = [1.0, 2.0, 1.5, 1.2, 1.8]


@pytest.fixture
def finetuned(tmp_path):
    """A population that each seed gained in by a little: less than seeds differ by."""
    folder = write_run(tmp_path / "x", [BEFORE], steps=4000)
    rows = [
        {"step": 4200, "env_step": 500, "member": k, "seed": k, "eval/return_mean": BEFORE[k] + gain}
        for k, gain in enumerate(GAINS)
    ]
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


def test_a_run_can_be_named_as_it_was_at_its_switch(finetuned):
    found = compare([f"{finetuned}@switch", finetuned])
    assert list(found.scores) == ["iql", "iql finetuned"]
    assert found.scores["iql"]["Pendulum-v1"].tolist() == BEFORE
    assert list(compare([finetuned, f"{finetuned}@switch"]).scores) == ["iql finetuned", "iql"]
    assert list(compare([f"before={finetuned.parent}/*@switch", f"after={finetuned}"]).scores) == ["before", "after"]
    assert compare({"a": f"{finetuned}@switch", "b": {"Pendulum-v1": GAINS}}).scores["a"]["Pendulum-v1"].tolist() == BEFORE


def test_what_each_seed_gained_is_told_with_a_paired_interval(finetuned):
    """Taken for independent the groups hardly differ, since seeds do: every seed gained nevertheless."""
    found = compare([f"{finetuned}@switch", finetuned])
    assert found.pairs[0].verdict == "unclear"
    low, high = stats.t.interval(0.95, 4, loc=np.mean(GAINS), scale=stats.sem(GAINS))
    told = (
        f"Seed by seed on Pendulum-v1, iql less iql finetuned is {-np.mean(GAINS):.2f} [{-high:.2f}, {-low:.2f}] on average"
    )
    assert f"{told} (paired 95% interval, 5 seeds, 5 of them lower)." in found.conclusion
    (plain,) = found.as_dict()["seed_by_seed"]
    assert plain["gain"] == pytest.approx({"estimate": np.mean(GAINS), "low": low, "high": high}, abs=1e-4)
    assert (plain["first"], plain["second"], plain["seeds"], plain["higher"]) == ("iql finetuned", "iql", 5, 5)
    assert "gain seed by seed,Pendulum-v1,iql finetuned,iql,5,1.5" in found.table("csv")


def test_one_direction_holds_for_a_paragraph(finetuned):
    """The difference of IQM and what seeds gained are of the same group less the same other, as the verdict names them."""
    write_run(finetuned.parent / "bc", [BEFORE], "bc")
    both, three = [f"{finetuned}@switch", finetuned], [finetuned.parent / "bc", f"{finetuned}@switch", finetuned]
    for groups, against, less in (
        (both, None, ["iql less iql finetuned"] * 2),
        (both[::-1], None, ["iql finetuned less iql"] * 2),
        (both, "iql", ["iql finetuned less iql"] * 2),
        (three, None, ["bc less iql", "bc less iql finetuned", "iql finetuned less iql"]),  # whose two are no pair here
    ):
        told = compare(groups, against=against).conclusion
        assert re.findall(r"\w+(?: finetuned)? less iql(?: finetuned)?", told) == less
        assert (" of them lower)" in told) == (less[-1] == "iql less iql finetuned")


def test_the_paired_interval_has_the_confidence_that_is_asked_for(finetuned):
    found = compare([f"{finetuned}@switch", finetuned], confidence=0.8)
    low, high = stats.t.interval(0.8, 4, loc=np.mean(GAINS), scale=stats.sem(GAINS))
    assert found.seed_by_seed[0].gain == pytest.approx((np.mean(GAINS), low, high), abs=1e-4)
    assert f"[{-high:.2f}, {-low:.2f}] on average (paired 80% interval, " in found.conclusion


def test_seeds_in_runs_of_their_own_are_told_together(tmp_path):
    """Of one run for each seed, as without populations, no run alone says anything of the spread."""
    for seed, (before, gain) in enumerate(zip(BEFORE, GAINS, strict=True)):
        folder = write_run(tmp_path / f"s{seed}", [[before]], steps=4000, seeds=[seed])
        row = {"step": 4200, "env_step": 500, "member": 0, "seed": seed, "eval/return_mean": before + gain}
        with (folder / "metrics.jsonl").open("a") as stream:
            stream.write(json.dumps(row) + "\n")
    found = compare([f"{tmp_path}@switch", tmp_path])
    assert "is -1.50 [-2.01, -0.99] on average (paired 95% interval, 5 seeds, 5 of them lower)" in found.conclusion
    assert len(found.seed_by_seed) == 1
    assert [warning for warning in found.warnings if warning.startswith("iql finetuned: goes on from iql; ")]


def test_what_a_finetune_in_a_directory_of_its_own_gained_is_told_too(tmp_path):
    first = write_run(tmp_path / "first", [BEFORE])
    record = json.loads((first / "run.json").read_text())
    (first / "run.json").write_text(json.dumps({**record, "step": 100}))
    after = [value + gain for value, gain in zip(BEFORE, GAINS, strict=True)]
    write_run(tmp_path / "then", [after], finetune={"env_steps": 100, "from_step": 100})
    assert "first less then is -1.50 [-2.01, -0.99] on average" in compare([first, tmp_path / "then"]).conclusion


def test_a_switch_that_is_not_there_is_told(tmp_path):
    write_run(tmp_path / "plain", [BEFORE])
    with pytest.raises(
        ConfigError, match="plain@switch: the run has not gone online after gradient steps on data; name it with"
    ):
        compare([f"{tmp_path / 'plain'}@switch", tmp_path / "plain"])
    apart = write_run(tmp_path / "apart", [], finetune={"env_steps": 100, "from_step": 100})
    (apart / "metrics.jsonl").write_text("")
    online_rows(apart, 5, 50, -5.0)
    with pytest.raises(ConfigError, match="apart@switch: its offline phase is in another directory; name that run"):
        compare([f"{apart}@switch", tmp_path / "plain"])
