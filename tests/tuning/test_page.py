"""A study on the report page."""

from html.parser import HTMLParser

from rl_training.api.reporting import write_report
from rl_training.report.facts import NOTHING, number
from rl_training.runtime.checkpoints.lock import RunLock
from rl_training.tuning.folder import StudyFolder
from rl_training.tuning.page import section
from rl_training.tuning.showing import summary
from tests.tuning.fake import KNOBS, FakeBackend, run_study, task


class Drawn(HTMLParser):
    """The trials of a page, as a reader of the screen is told of them."""

    def __init__(self, text):
        super().__init__()
        self.told, self.stops, self.paths, self.headings, self._heading = [], [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "g" and "trial" in (found.get("class") or ""):
            self.stops += [found["aria-label"]] * (found["tabindex"] == "0")
            self.told.append(found["aria-label"])
        if tag == "path" and found.get("class") == "line":
            self.paths.append(found["d"])
        self._heading = tag in ("h1", "h2", "h3")

    def handle_data(self, data):
        self.headings += [data] if self._heading else []
        self._heading = False


def test_every_trial_is_a_line_that_keyboard_and_screen_reader_reach(tmp_path):
    given = task({**KNOBS, "hidden_sizes": {"choices": [[8], [16, 16]]}}, batch=6, pruning={"kind": "median"})
    run_study(tmp_path / "study", given, trials=12)
    with RunLock(tmp_path / "study"):  # as while it goes on
        path = write_report([tmp_path / "study"], tmp_path / "page.html")
    drawn = Drawn(path.read_text())
    assert drawn.headings[:2] == ["study", "Study of iql/small"]
    assert len(drawn.told) == len(drawn.paths) == 12
    assert len(set(drawn.told)) == 12
    assert drawn.stops == drawn.told[-1:], "Tab stops once, at the best; arrows lead to the others"
    assert "trial 0 (complete): expectile 0.7, beta 3, hidden_sizes [16, 16], return iqm" in " ".join(drawn.told)
    heights = [float(point.split()[1]) for line in drawn.paths for point in line[1:].split("L")]
    assert min(heights) >= 30.0
    assert max(heights) <= 266.0
    assert "http" not in section(summary(StudyFolder(tmp_path / "study"), given))


def test_what_was_confirmed_is_on_the_page_and_in_the_tables(tmp_path):
    run_study(tmp_path / "study", confirm=2)
    found = summary(StudyFolder(tmp_path / "study"), task())
    page = write_report([tmp_path / "study"], tmp_path / "page.html").read_text()
    assert "<h3>With new seeds</h3>" in page
    best = found.confirmed[0]
    assert f"Best with new seeds: trial {best.number}" in page
    assert page.count(number(best.result.values[0])) >= 2  # the card and the table
    assert all(number(score) in page for score in best.result.seeds)
    assert "complete, the config's own values" in page.replace("&#x27;", "'")
    tables = write_report([tmp_path / "study"], tmp_path / "page.md").read_text()
    assert f"    trial {best.number} with new seeds: return iqm {best.result.values[0]:.4g}" in tables


def test_trials_without_a_score_are_sorted_as_such(tmp_path):
    run_study(tmp_path / "study", backend=FakeBackend(diverged=[0]), trials=8)
    trials = section(summary(StudyFolder(tmp_path / "study"), task())).partition("<h3>Trials</h3>")[2]
    assert trials.count(f'<td class="number" data-value="">{NOTHING}</td>') == 2


def test_names_are_escaped_and_few_trials_have_no_lines(tmp_path):
    given = task()
    run_study(tmp_path / "study", given, trials=1)
    found = summary(StudyFolder(tmp_path / "study"), given)
    object.__setattr__(found.task, "name", "<b>x")
    text = section(found)
    assert "<b>x" not in text
    assert "&lt;b&gt;x" in text
    assert not Drawn(text).told
