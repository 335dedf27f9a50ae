"""The page of a study that is kept fresh while the study goes on."""

import json
import shutil

import pytest

from rl_training.api.reporting import keep_report_fresh
from rl_training.errors import CheckpointError
from rl_training.runtime.checkpoints.lock import RunLock
from rl_training.tuning.folder import StudyFolder
from tests.api.test_live_report import Ticks, interrupt, is_live
from tests.helpers import Cut, contents
from tests.tuning.fake import FakeBackend, run_study


class Held:
    """The lock of a study that goes on; others take it for as long as they write."""

    def __init__(self, path):
        self.path, self.lock = path, RunLock(path)
        self.lock.__enter__()

    def release(self):
        self.lock.__exit__(None, None, None)

    def going_on(self, **more):
        """The next part of the study; afterwards it still goes on."""
        self.release()
        run_study(self.path, **more)
        self.lock.__enter__()


@pytest.fixture
def held(tmp_path):
    """A study that waits between its first batch and the next."""
    run_study(tmp_path / "study", trials=4)
    found = Held(tmp_path / "study")
    yield found
    found.release()


def follow(study, page, *steps, **more):
    ticks = Ticks(page, *steps)
    code = keep_report_fresh([study], page, sleep=ticks, told=lambda _: None, **more)
    assert ticks.steps == []
    return code, ticks.live


def test_the_page_follows_a_study_from_batch_to_batch(held, tmp_path):
    page, seen = tmp_path / "page.html", []

    def keep(and_then):
        def step():
            seen.append((page.read_text(), page.stat().st_ino))
            and_then()

        return step

    last = (lambda: held.going_on(trials=8, confirm=1), held.release)
    steps = (keep(lambda: held.going_on(trials=8)), keep(lambda: None), keep(last[0]), keep(last[1]))
    assert follow(held.path, page, *steps) == (0, [True] * 4)
    assert not is_live(page)
    texts, files = zip(*[*seen, (page.read_text(), page.stat().st_ino)], strict=True)
    assert all("<h2>Study of iql/small</h2>" in text and "<h1>study</h1>" in text for text in texts)
    assert ["trials-00004" in text for text in texts] == [False, True, True, True, True]
    assert ["<h3>With new seeds</h3>" in text for text in texts] == [False, False, False, True, True]
    assert files[1] == files[2] != files[3]  # written again only with news


def test_a_study_that_is_only_followed_is_left_as_it_is(held, tmp_path):
    before = contents(held.path)
    assert follow(held.path, tmp_path / "page.html", lambda: None, interrupt) == (130, [True, True])
    assert contents(held.path) == before
    assert "<h2>Study of iql/small</h2>" in (tmp_path / "page.html").read_text()
    assert not is_live(tmp_path / "page.html")


def test_a_study_whose_first_run_is_still_to_begin_is_waited_for(tmp_path):
    study, page = tmp_path / "study", tmp_path / "page.html"
    with pytest.raises(Cut):
        run_study(study, backend=FakeBackend(die_at=0))
    with pytest.raises(CheckpointError, match="study: none of its runs has begun; report on it again"):
        follow(study, page)
    held = Held(study)
    try:
        assert follow(study, page, lambda: held.going_on(trials=4), held.release) == (0, [None, True])
    finally:
        held.release()


def test_a_run_of_a_study_that_cannot_be_read_is_left_out(held, tmp_path):
    warned = []

    def damaged():
        held.going_on(trials=8)
        (StudyFolder(held.path).populations / "trials-00004" / "run.json").write_text("{")

    assert follow(held.path, tmp_path / "page.html", damaged, held.release, warn=warned.append)[0] == 0
    assert len(warned) == 1
    assert "trials-00004: its run.json is damaged" in warned[0]
    assert "its run.json is damaged" in (tmp_path / "page.html").read_text()


def test_a_study_that_is_removed_leaves_the_page(held, tmp_path):
    with pytest.raises(CheckpointError, match="was removed"):
        follow(held.path, tmp_path / "page.html", lambda: shutil.rmtree(held.path))
    assert "<h2>Study of iql/small</h2>" in (tmp_path / "page.html").read_text()
    assert not is_live(tmp_path / "page.html")


def test_a_study_on_another_machine_has_ended_after_five_silent_minutes(held, tmp_path):
    held.release()
    lock = {"host": "another", "pid": 1, "since": "2026-01-01T00:00:00+00:00"}
    (held.path / "run.lock").write_text(json.dumps(lock))
    now = [max(file.stat().st_mtime for file in held.path.rglob("*") if file.is_file())]
    steps = (lambda: now.append(now[0] + 299.0), lambda: now.append(now[0] + 301.0))
    assert follow(held.path, tmp_path / "page.html", *steps, clock=lambda: now[-1]) == (0, [True, True])
