"""Counts what the fault tests try and what held, prints them as a table, and writes the table of `docs/reliability.md`.

A test takes the fixture `fault_count` and calls `fault_count("flips", passed, tried)`; counts of one name are added up.
`pytest -m faults --faults-page new` keeps the counts in `figures.json` and writes the table from it; `--faults-page add`
replaces those of the tests that ran, so that the tests may run in pieces.
"""

import json
import platform
from pathlib import Path

import pytest

HOME = Path(__file__).parent
FIGURES = HOME / "figures.json"
PAGE = HOME.parent.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: written by `make test-faults` -->\n", "<!-- end of figures -->\n"
ROWS = {
    "kills": "`kill -9` at random moments, ten in a row, ten kinds of runs: resumed, they end as undisturbed, bit for bit",
    "kills at calls": "`kill -9` before single file-system calls and halfway through a file: resumed, the same",
    "signals": "SIGINT, SIGTERM, SIGHUP and SIGUSR1 in every stage of a run: saved, right exit code, resumed the same",
    "flips": "a flipped bit in any file of a run or its data: named by `verify`, or without effect on the resumed run",
    "truncations": "a file of a run or its data cut short: the same",
    "sealed edits": "edited checkpoints with right hashes: refused in one line, or they work; no traceback, no hang",
    "hostile data files": "data files made to exhaust memory, hang or read other files: refused within the stated memory",
    "payloads": "files with code to run if they were trusted (pickle, YAML, npz, HDF5, ...): none ran",
    "races": "eight processes start at once in one run directory: one trains, seven are refused",
    "soak": "200,000 steps with 50 resumes in one process: memory grows by less than 5 %, open files not at all",
    "verify": "`rl-training verify CONFIG` of each kind of run: exact",
}
_COUNT = "fault_count"


@pytest.fixture
def fault_count(record_property):
    """Record how many of the faults tried were survived, under the name of a row; the test fails unless all were."""

    def count(name, passed, tried, note=""):
        assert name in ROWS, f"{name!r} is no row of the table: {sorted(ROWS)}"
        record_property(_COUNT, [name, passed, tried, note])
        assert passed == tried, f"{name}: {passed} of {tried}"

    return count


def pytest_addoption(parser):
    parser.addoption("--faults-page", choices=("new", "add"), help="keep the counts of fault tests in docs/reliability.md")


def pytest_terminal_summary(terminalreporter, config):
    counts = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            found = [value for name, value in getattr(report, "user_properties", ()) if name == _COUNT]
            if found and report.when == "call":
                counts[report.nodeid] = found
    if not counts:
        return
    terminalreporter.section("faults")
    for line in table(counts):
        terminalreporter.write_line(line)
    if mode := config.getoption("--faults-page"):
        keep(counts, add=mode == "add")


def table(counts):
    """The lines of the table, in the order of `ROWS`, from the counts of every test."""
    lines = ["| what is done to a run | held |", "|---|---|"]
    for name, text in ROWS.items():
        found = [count for test in counts.values() for count in test if count[0] == name]
        passed, tried = (sum(count[place] for count in found) for place in (1, 2))
        notes = "; ".join(note for *_, note in found if note)
        if found:
            lines.append(f"| {text} | {passed:,} of {tried:,}{f' ({notes})' if notes else ''} |")
    return lines


def keep(counts, *, add):
    """Store the counts, and write the page's table from all that are stored."""
    import torch

    known = json.loads(FIGURES.read_text())["tests"] if add and FIGURES.exists() else {}
    made_on = {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}
    figures = {"made_on": made_on, "tests": {**known, **counts}}
    FIGURES.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), figures))


def with_table(text, figures):
    """The text of the page with the table of these figures between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    where = figures["made_on"]
    made = f"Python {where['python']}, torch {where['torch']}, {where['machine']}"
    return f"{before}{BEGIN}\n" + "\n".join(table(figures["tests"])) + f"\n\nMade with {made}.\n\n{END}{after}"
