"""A browser for the tests of pages, and the page of each kind of run."""

import pytest

from rl_training.analysis.logged_run import LoggedRun
from rl_training.report.page.document import render_page
from tests.report.browser import PROGRAM, Browser
from tests.report.run_files import finetune, population, without_environment


@pytest.fixture(scope="module")
def _started():
    if PROGRAM is None:
        pytest.skip("no Chromium is installed; apt-get install chromium")
    started = Browser()
    yield started
    started.close()


@pytest.fixture
def browser(_started):
    """A browser that must not have complained when the test is over."""
    yield _started
    found, _started.problems = _started.problems, []
    assert found == []


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of each kind of run."""
    folder = tmp_path_factory.mktemp("pages")
    runs = {"population": [population], "finetune": [finetune], "two": [population, finetune], "data": [without_environment]}
    paths = {}
    for name, makers in runs.items():
        found = [LoggedRun.load(make(folder / name / make.__name__)) for make in makers]
        paths[name] = folder / f"{name}.html"
        paths[name].write_text(render_page(found))
    return paths
