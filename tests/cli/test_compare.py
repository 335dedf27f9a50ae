"""`rl-training compare`: what is printed, and what is refused."""

import json
import shutil

import pytest

from tests.analysis.runs import write_run
from tests.helpers import call_cli, run_cli, tiny_run

GOOD = [-150.0, -160.0, -155.0, -170.0, -145.0, -158.0]
BAD = [value - 200.0 for value in GOOD]


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "one", [GOOD])
    write_run(tmp_path / "two", [BAD], "td3_bc", steps=50)
    return tmp_path


def test_what_is_printed(runs):
    done = run_cli("compare", runs / "one", runs / "two", PYTHONIOENCODING="utf-8")
    lines = done.stdout.splitlines()
    assert lines[0] == "last eval/return_mean of each run; 95% intervals"
    assert lines[1].split() == ["runs", "IQM", "mean", "median"]
    assert lines[2] == "Pendulum-v1"
    assert lines[3].split()[:3] == ["iql", "6", "-156"]
    assert lines[4].split()[:3] == ["td3_bc", "6", "-356"]
    assert lines[5] == "share of runs above a score, from -370 to -145"
    assert lines[6].startswith("  iql     |█████")
    assert lines[7].startswith("  td3_bc  |")
    assert lines[8] == ""
    assert lines[9].startswith("iql is better than td3_bc on Pendulum-v1: probability of improvement 1.00 [")
    assert lines[10].startswith(
        "Measured coverage of 95% intervals with 3, 5, 10, 30 runs: IQM 93%, 96%, 96%, 95%; difference"
    )
    assert len(lines) == 11
    assert done.stderr == "warning: Pendulum-v1: trained for unequal numbers of steps: iql 100; td3_bc 50\n"


@pytest.mark.parametrize(
    ("metric", "said"),
    [("loss", ", which does not tell how good a policy is"), ("q_mean", ", which is no score"), ("x", ", higher is better")],
)
def test_the_first_line_says_which_values_are_good(tmp_path, capsys, metric, said):
    for algo in ("iql", "td3_bc"):
        with (write_run(tmp_path / algo, [GOOD], algo) / "metrics.jsonl").open("a") as stream:
            stream.write(json.dumps({"step": 100, "member": 0, "seed": 0, f"train/{metric}": 1.0}) + "\n")
    printed = call_cli(capsys, "compare", tmp_path, "--metric", f"train/{metric}").stdout
    assert printed.splitlines()[0] == f"last train/{metric} of each run{said}; 95% intervals"


def test_every_pair_has_a_line_of_its_own(runs, capsys):
    write_run(runs / "three", [BAD], "cql")
    printed = call_cli(capsys, "compare", runs / "one", runs / "two", runs / "three").stdout
    first, second, third = printed.splitlines()[-4:-1]
    assert first.startswith("iql is better than td3_bc on Pendulum-v1:")
    assert second.startswith("iql is better than cql on Pendulum-v1:")
    assert third.startswith("Intervals are widened")


def test_a_terminal_without_blocks_gets_ascii(runs):
    done = run_cli("compare", runs / "one", runs / "two", PYTHONIOENCODING="ascii")
    assert done.stdout.isascii()
    assert "|@@@@@" in done.stdout


def test_json_is_the_whole_comparison_and_nothing_else(runs):
    done = run_cli("compare", runs / "one", runs / "two", "--json", "--confidence", 0.9)
    found = json.loads(done.stdout)
    assert done.stderr == ""
    assert (found["confidence"], found["pairs"][0]["verdict"], found["tasks"]) == (0.9, "better", ["Pendulum-v1"])
    assert found["scores"]["iql"] == {"Pendulum-v1": GOOD}
    assert len(found["profiles"]["iql"]) == len(found["thresholds"])
    assert found["warnings"] == ["Pendulum-v1: trained for unequal numbers of steps: iql 100; td3_bc 50"]
    assert set(found["coverage"]["coverage"]["iqm"]) == {"3", "5", "10", "30"}


def test_scores_of_other_libraries(tmp_path, capsys):
    path = tmp_path / "scores.json"
    ours, theirs = [60, 61, 62], [10, 11, 12]
    groups = {"ours": {"hopper": ours, "walker2d": ours}, "theirs": {"hopper": theirs, "walker2d": theirs}}
    path.write_text(json.dumps(groups))
    lines = call_cli(capsys, "compare", path).stdout.splitlines()
    assert lines[0] == "scores as given; 95% intervals"
    assert [line for line in lines if not line.startswith(" ")][1:4] == ["hopper", "walker2d", "all 2 tasks"]
    assert lines[-2].startswith("ours is better than theirs over 2 tasks: ")
    assert lines[-2].endswith("Fewer than 5 seeds are too few to rely on: train 5 or more, better 10.")
    normal = call_cli(capsys, "compare", path, "--normalize", "reference").stdout
    assert "all 2 tasks (0 is the reference minimum, 100 its maximum)" in normal
    assert "optimality gap of ours: 98." in normal


def test_tasks_with_unequal_numbers_of_runs(tmp_path, capsys):
    path = tmp_path / "scores.json"
    groups = {"ours": {"hopper": [60] * 9, "walker2d": [0, 1, 2]}, "theirs": {"hopper": [1] * 9, "walker2d": [3, 4, 5]}}
    path.write_text(json.dumps(groups))
    lines = call_cli(capsys, "compare", path).stdout.splitlines()
    place = lines.index("all 2 tasks, each with the same weight whatever its number of runs")
    name, fewest, to, most, *_, mean, median = lines[place + 1].split()
    assert (name, fewest, to, most) == ("ours", "3", "to", "9")
    assert (float(mean), float(median)) == (30.5, 31.0), "half of the weight is walker2d's"
    assert lines[place + 2].split()[:4] == ["theirs", "3", "to", "9"]


def test_a_run_that_was_trained(finished, tmp_path, capsys):
    run_dir = finished("iql", [4, 5, 6]).run_dir
    path = tmp_path / "peer.csv"
    path.write_text("group,task,score\n" + "".join(f"peer,Pendulum-v1,{-900 - k}\n" for k in range(6)))
    found = json.loads(call_cli(capsys, "compare", run_dir, path, "--json").stdout)
    assert found["cells"]["iql"]["Pendulum-v1"]["runs"] == 3
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    last = [row["eval/return_mean"] for row in rows if "eval/return_mean" in row][-3:]
    assert found["scores"]["iql"]["Pendulum-v1"] == last


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "Missing argument"),
        (["one"], 2, "there is only one group (iql); name two or more to compare"),
        (["one", "one"], 2, "one: is named twice"),
        (["one", "nowhere"], 4, "nowhere: there is no run or checkpoint here"),
        (["one", "none-*"], 2, "none-*: matches no directory"),
        (["one", "x="], 2, "'x=': must be a run directory, or NAME=PATH[,PATH...]"),
        (["one", "missing.json"], 3, "missing.json: is missing"),
        (["one", "two", "--by", "worst"], 2, "--by 'worst': must be `last` or `best`"),
        (["one", "two", "--metric", "eval/retrun_mean"], 2, "Did you mean `eval/return_mean`?"),
        (["one", "two", "--confidence", "95"], 2, "the confidence must be between 0 and 1, such as 0.95; got 95.0"),
        (["one", "two", "--confidence", "high"], 2, "--confidence"),
        (["one", "two", "--normalize", "rank"], 2, "must be one of auto, reference, min-max, none"),
        (["one", "two", "--normalize", "reference"], 2, "there are none for Pendulum-v1"),
        (["one", "two", "--against", "td3"], 2, "--against td3: is no group. Did you mean `td3_bc`?"),
    ],
)
def test_what_is_refused(runs, monkeypatch, capsys, arguments, code, words):
    monkeypatch.chdir(runs)
    done = call_cli(capsys, "compare", *arguments, code=code)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_run_without_its_record_is_refused_alone_and_in_a_folder(runs, capsys):
    lost = runs / "more" / "lost"
    shutil.copytree(runs / "two", lost)
    (lost / "run.json").unlink()
    shutil.copytree(runs / "two", runs / "more" / "whole")
    for group in (lost, runs / "more", f"x={lost},{runs / 'two'}"):
        error = call_cli(capsys, "compare", runs / "one", group, code=4).stderr
        way_out = f"use another copy of the run, or `rl-training resume {lost}`, which writes it anew"
        assert error == f"error: {lost}: its run.json is missing; {way_out}\n"


def test_what_other_programs_write_is_no_run(runs, capsys):
    for name in ("metrics.jsonl", "wandb/metrics.jsonl"):
        (runs / name).parent.mkdir(exist_ok=True)
        (runs / name).write_text("{}\n")
    assert len(json.loads(call_cli(capsys, "compare", runs, "--json").stdout)["scores"]) == 2
    error = call_cli(capsys, "compare", runs / "one", runs / "wandb", code=4).stderr
    assert "wandb: is not a run directory (no run.json); pass one that" in error


def test_help_names_every_option():
    done = run_cli("compare", "--help")
    for option in (
        "--by",
        "--metric",
        "--lower-is-better",
        "--confidence",
        "--normalize",
        "--against",
        "--json",
        "--scores",
        "--format",
        "--out",
    ):
        assert option in done.stdout


def test_a_single_run_has_no_interval_whose_coverage_could_be_told(tmp_path, capsys):
    write_run(tmp_path / "one", [[-150.0]])
    write_run(tmp_path / "two", [[-350.0]], "td3_bc")
    printed = call_cli(capsys, "compare", tmp_path / "one", tmp_path / "two").stdout
    assert "how often" not in printed
    assert "coverage" not in printed


def test_the_table_of_coverage_is_printed_if_asked(runs):
    lines = run_cli("compare", runs / "one", runs / "two", "--verbose", PYTHONIOENCODING="utf-8").stdout.splitlines()[-5:]
    assert [line.split()[:3] for line in lines] == [
        ["how", "often", "95%"],
        ["3", "runs", "5"],
        ["IQM", "93%", "(80%"],
        ["difference", "of", "IQM"],
        ["probability", "of", "improvement"],
    ]
    assert ")9" not in lines[4], "columns are apart"


def test_a_table_for_a_paper_is_printed_or_written(runs, capsys):
    two = ("compare", runs / "one", runs / "two")
    printed = call_cli(capsys, *two, "--format", "latex").stdout
    assert printed.startswith("% rl-training compare\n% needs \\usepackage{booktabs}\n")
    assert call_cli(capsys, *two, "--out", runs / "new" / "t.tex").stdout == f"table: {runs / 'new' / 't.tex'}\n"
    assert (runs / "new" / "t.tex").read_text() == printed
    call_cli(capsys, *two, "--out", runs / "new" / "t.tex", "--confidence", 0.9)  # its own is replaced
    assert (runs / "new" / "t.tex").read_text() != printed
    call_cli(capsys, *two, "--out", runs / "t.csv")
    assert (runs / "t.csv").read_text().startswith("measure,task,group,against,seeds,")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "html"), "--format html: must be one of text, md, latex, csv"),
        (("--out", "table"), "table: does not say what to write; end the name in .md, .tex, .csv, or pass --format"),
        (("--out", "t.md", "--format", "latex"), "t.md: ends like md, but --format is latex"),
        (("--out", "t.md", "--format", "text"), "t.md: does not say what to write"),
        (("--out", "notes.md"), "notes.md: was not written by this command; choose another name with --out"),
        (("--json", "--format", "md"), "--json prints everything as one object"),
        (("--scores", "raw"), "--scores 'raw': must be one of returns, normalized"),
        (("--scores", "normalized"), "--scores normalized: is for scores from files; these are returns of runs"),
    ],
)
def test_options_of_tables_and_scales_that_do_not_fit(runs, monkeypatch, capsys, options, words):
    monkeypatch.chdir(runs)
    (runs / "notes.md").write_text("mine")
    assert words in call_cli(capsys, "compare", "one", "two", *options, code=2).stderr
    assert (runs / "notes.md").read_text() == "mine"


def test_evaluations_on_equal_episodes_are_compared(finished, tmp_path, capsys):
    """As a warning about the luck of episodes advises: what `evaluate --json` prints is a file of scores."""
    for algo in ("iql", "td3_bc"):
        told = call_cli(capsys, "evaluate", finished(algo, [0, 7]).run_dir, "--episodes", 3, "--seed", 1, "--json").stdout
        (tmp_path / f"{algo}.json").write_text(told)
    found = json.loads(call_cli(capsys, "compare", tmp_path / "iql.json", tmp_path / "td3_bc.json", "--json").stdout)
    members = json.loads((tmp_path / "iql.json").read_text())["members"]
    assert found["scores"]["iql"] == {"Pendulum-v1": [row["return_mean"] for row in members]}


def test_evaluations_tell_as_runs_do_that_they_were_trained_unequally(finished, tmp_path, capsys):
    tiny_run(tmp_path / "tuned", finetune={"env_steps": 60, "learning_starts": 20, "gradient_updates_per_step": 2})
    pretrained = {"offline_pretrain_updates": 10, "dataset": {"kind": "random", "size": 400}}
    tiny_run(tmp_path / "rlpd", "rlpd", algo_kwargs=pretrained)
    runs = {"td3_bc": finished("td3_bc").run_dir, "iql finetuned": tmp_path / "tuned", "rlpd": tmp_path / "rlpd"}
    for name, run in runs.items():
        told = call_cli(capsys, "evaluate", run, "--episodes", 1, "--seed", 1, "--json").stdout
        (tmp_path / f"{name}.json").write_text(told)
    found = [
        json.loads(call_cli(capsys, "compare", *groups, "--json").stdout)["warnings"]
        for groups in (runs.values(), [tmp_path / f"{name}.json" for name in runs])
    ]
    (as_runs,), (as_files,) = ([text for text in own if "trained in different ways" in text] for own in found)
    assert as_files == as_runs
    assert "gradient steps on data, then 60 environment steps" in as_files
