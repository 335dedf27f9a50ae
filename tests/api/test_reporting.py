"""Reports from Python: files, and pictures of policies."""

import io
import json
import os
import re

import pytest

import rl_training
from rl_training.analysis.logged_run import RETURN
from rl_training.api import reporting
from rl_training.api.reporting import load_runs, policy_pictures
from rl_training.envs.rendering import DrawsNothingError
from rl_training.errors import ConfigError
from rl_training.report.facts import member_facts, number
from rl_training.report.page.document import Picture
from tests.helpers import contents
from tests.report.run_files import population, rows_of, without_environment, write_run


def test_a_report_is_written_and_replaced_and_leaves_the_run_alone(tmp_path):
    run = population(tmp_path / "run")
    before = contents(run)
    out = tmp_path / "new" / "page.html"
    assert rl_training.write_report([run], out, picture=False) == out
    rl_training.write_report([run], out, title="Again", picture=False)
    assert "<h1>Again</h1>" in out.read_text()
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]
    assert contents(run) == before


@pytest.mark.parametrize("name", [b"a\xffb", b"a\x1b[2Jb\n|`<img src=x>"])
@pytest.mark.parametrize("kind", ["html", "md", "csv", "png"])
def test_any_name_of_a_directory_can_be_reported(tmp_path, name, kind):
    runs = [population(tmp_path / folder / os.fsdecode(name)) for folder in ("first", "second")]
    record = json.loads((runs[0] / "run.json").read_text())
    (runs[0] / "run.json").write_text(json.dumps({**record, "status": "DatasetError", "message": f"{runs[0]}: is gone"}))
    report = reporting.make_report(load_runs(runs), kind, title=os.fsdecode(name), picture=False)
    if kind != "png":
        shown = report.replace(rb"\[", b"[")  # as Markdown shows it
        assert b"first/a" + (rb"\udcffb" if name == b"a\xffb" else rb"\x1b[2Jb\n") in shown
        assert kind == "html" or b"\x1b" not in report  # which may be printed


@pytest.mark.parametrize("name", ["page.html", "page.md", "page.csv", "page.png"])
def test_only_an_earlier_report_of_its_kind_is_replaced(tmp_path, name):
    run, out = population(tmp_path / "run"), tmp_path / name
    rl_training.write_report([run], out, picture=False)
    rl_training.write_report([run], out, picture=False)
    out.write_text("my notes")
    with pytest.raises(ConfigError, match="was not written by this command"):
        rl_training.write_report([run], out, picture=False)
    assert out.read_text() == "my notes"


def test_the_policy_is_drawn_by_its_environment(finished):
    image = pytest.importorskip("PIL.Image")
    warnings = []
    runs = load_runs([finished("iql", [4, 5]).run_dir])
    (picture,) = policy_pictures(runs, warnings.append)
    assert warnings == []
    assert picture.caption.startswith("seed ")
    assert "an episode of 200 steps, return -" in picture.caption
    best = max(one.final for one in member_facts(runs[0]))
    assert f"; its evaluations: {number(best)} on average" in picture.caption, "one episode may be an easy one"
    assert len(picture.moving) < 360_000
    with image.open(io.BytesIO(picture.moving)) as gif, image.open(io.BytesIO(picture.still)) as still:
        assert (gif.format, still.format) == ("GIF", "PNG")
        assert gif.n_frames > 10
        assert still.size == gif.size


def test_a_policy_that_cannot_be_drawn_leaves_a_line_and_no_error(tmp_path):
    warnings = []
    found = policy_pictures(load_runs([population(tmp_path / "a"), without_environment(tmp_path / "b")]), warnings.append)
    assert [(one.label, one.moving) for one in found] == [("a", b"")], "without an environment there is nothing to draw"
    assert len(warnings) == 1
    assert warnings[0].startswith("a: no picture of the policy: ")


def test_policies_beyond_those_that_a_page_holds_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "_picture", lambda run, name, limit: Picture(name, "drawn", b"GIF", b"PNG"))
    runs = load_runs([population(tmp_path / name) for name in "abcdef"])
    *shown, left_out = policy_pictures(runs, pytest.fail)
    assert [one.label for one in shown] == ["a", "b", "c", "d"]
    assert left_out.label == "e, f"
    page = reporting.render_page(runs, pictures=[*shown, left_out])
    assert "e, f: no picture: a page holds those of 4 runs, the best of each algorithm and environment first; report" in page
    assert len(policy_pictures(runs[:4], pytest.fail)) == 4


def test_where_no_environment_draws_no_picture_is_missing(tmp_path, monkeypatch):
    def draws_nothing(run, name, limit):
        raise DrawsNothingError

    monkeypatch.setattr(reporting, "_picture", draws_nothing)
    assert policy_pictures(load_runs([population(tmp_path / name) for name in "abcdef"]), pytest.fail) == []


def test_the_best_run_of_each_algorithm_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "_picture", lambda run, name, limit: Picture(name, "drawn", b"GIF", b"PNG"))
    folders = [population(tmp_path / f"a_iql_{points}", points=points) for points in (3, 4, 5, 6)]  # returns rise
    folders.append(write_run(tmp_path / "z_bc", rows_of(RETURN, [[-500.0]], (0,)), algo="bc"))
    *shown, left_out = policy_pictures(load_runs(folders), pytest.fail)
    assert [one.label for one in shown] == ["a_iql_4", "a_iql_5", "a_iql_6", "z_bc"]
    assert left_out.label == "a_iql_3"


def test_an_animation_that_is_too_large_is_left_out(finished, monkeypatch):
    pytest.importorskip("PIL")
    monkeypatch.setattr(reporting, "_PICTURE_BYTES", 2_000)
    monkeypatch.setattr(reporting, "_SIZES", ((64, 3), (32, 2)))
    warnings = []
    runs = load_runs([finished("iql", [4, 5]).run_dir])
    (small,) = policy_pictures(runs, warnings.append)
    whole = number(max(one.final for one in member_facts(runs[0])))
    told = r"seed \d, the first [23] of about 200 steps of an episode, in which it earns -[\d.]+; whole episodes in its "
    assert re.fullmatch(rf"{told}evaluations: {whole} on average", small.caption), "never called the return of an episode"
    assert 0 < len(small.moving) <= 2_000
    monkeypatch.setattr(reporting, "_PICTURE_BYTES", 20)
    (none,) = policy_pictures(runs, warnings.append)
    assert (none.moving, len(warnings)) == (b"", 1)
    assert "the smallest animation has " in warnings[0]


def test_a_run_is_named_once(tmp_path):
    run = population(tmp_path / "run")
    with pytest.raises(ConfigError, match="is named twice"):
        load_runs([run, f"{run}/"])
    with pytest.raises(ConfigError, match="at least one run"):
        load_runs([])
