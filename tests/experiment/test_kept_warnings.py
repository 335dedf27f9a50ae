"""The warnings of a run stay with it: in run.json, once each, also when it is interrupted and resumed."""

import json

import numpy as np
import pytest

from rl_training.experiment.kept_warnings import KeepingReporter, kept_in, warnings_of
from rl_training.runtime.progress import NOTHING_LEFT
from rl_training.runtime.validating.concerns import Concern
from tests.helpers import Cut, CutAt, Notes, small_arrays, tiny_run


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Data with a constant column, and a doubt about the policy that holds at every evaluation, with other figures."""
    arrays = small_arrays(rows=200, length=20)
    arrays["observations"][:, 1] = arrays["next_observations"][:, 1] = 7.0
    np.savez(tmp_path / "d.npz", **arrays)
    doubt = "rl_training.runtime.validating.held_out.concerns"
    monkeypatch.setattr(doubt, lambda figures, _knobs: [Concern("far-from-data", f"{figures['action_distance']!r} away")])
    return {"env_id": None, "algo_kwargs": {"dataset": {"path": str(tmp_path / "d.npz")}}}


def texts(run_dir):
    return [(one["at"], one["text"].split(": ")[0]) for one in kept_in(run_dir)]


def test_findings_about_the_data_and_doubts_about_the_policy_are_kept(settings, tmp_path):
    said = Notes()
    tiny_run(tmp_path / "run", reporter=said, **settings)
    kept = json.loads((tmp_path / "run" / "run.json").read_text())["warnings"]
    assert [one["text"] for one in kept] == said.warnings
    found = texts(tmp_path / "run")
    assert (None, "data") in found
    assert ("step 80", "far-from-data") in found  # it held at 40 too


def test_a_resumed_run_neither_loses_nor_repeats_them(settings, tmp_path):
    tiny_run(tmp_path / "whole", **settings)
    for place in (("log", 20), ("log", 100), ("checkpoint", 120)):
        run_dir = tmp_path / "-".join(map(str, place))
        with pytest.raises(Cut):
            tiny_run(run_dir, callbacks=[CutAt(*place)], **settings)
        assert (None, "data") in texts(run_dir)
        tiny_run(run_dir, resume=True, **settings)
        assert [code for _, code in texts(run_dir)] == [code for _, code in texts(tmp_path / "whole")]


def test_a_command_with_nothing_to_do_adds_none_and_a_new_start_removes_them(settings, tmp_path):
    tiny_run(tmp_path / "run", **settings)
    before, said = kept_in(tmp_path / "run"), Notes()
    tiny_run(tmp_path / "run", resume=True, reporter=said, **settings)
    assert any(text.startswith(NOTHING_LEFT) for text in said.warnings)
    assert kept_in(tmp_path / "run") == before
    tiny_run(tmp_path / "run", overwrite=True)
    assert kept_in(tmp_path / "run") == []


def test_a_warning_is_known_by_its_code_or_by_its_text():
    kept, written = [], []
    reporter = KeepingReporter(said := Notes(), kept, lambda: written.append(len(kept)))
    reporter.warn("data: 3 rows are odd")
    reporter.start(0, 5000, "env step")
    reporter.advance(1200, {})
    for text in ("far-from-data: 60 %", "far-from-data: 70 %", "data: 3 rows are odd", "seed 1: odd", "seed 2: odd"):
        reporter.warn(text)
    assert [one["text"] for one in kept] == ["data: 3 rows are odd", "far-from-data: 60 %", "seed 1: odd", "seed 2: odd"]
    assert [one["at"] for one in kept] == [None, *["env step 1,200"] * 3]
    assert written == [1, 2, 3, 4]
    assert len(said.warnings) == 6  # all of them are shown


@pytest.mark.parametrize("record", [{}, {"warnings": None}, {"warnings": 3}, {"warnings": ["x", {"text": 3}, {}]}])
def test_records_without_warnings_have_none(record):
    assert warnings_of(record) == []
