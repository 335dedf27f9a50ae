"""Reports as PNG."""

import io
import sys

import pytest

from rl_training.analysis.logged_run import LoggedRun
from rl_training.errors import ConfigError
from rl_training.report.pictures import SOFTWARE, png
from tests.report.run_files import finetune, population, without_environment, write_run


def test_a_picture_of_every_kind_of_run(tmp_path):
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    kinds = {"a": population, "b": finetune, "c": without_environment}
    runs = [LoggedRun.load(make(tmp_path / f"${name}_")) for name, make in kinds.items()]
    for chosen in (runs, runs[2:], [LoggedRun.load(write_run(tmp_path / "new", []))]):
        data = png(chosen, members=chosen is runs)
        assert SOFTWARE.encode() in data[:400]
        with image.open(io.BytesIO(data)) as picture:
            assert picture.width == 1430


def test_a_picture_says_what_its_lines_and_bands_are(tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure").Figure
    notes = []
    monkeypatch.setattr(figure, "supxlabel", lambda _, text, **__: notes.append(text.replace("\n", " ")))
    png([LoggedRun.load(population(tmp_path / "run"))])
    assert notes == ["Line: mean of 3 members, band from the lowest to the highest. Steps are gradient steps."]


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r'a PNG needs matplotlib: pip install "rl-training\[plot\]"'):
        png([LoggedRun.load(population(tmp_path / "run"))])
