"""What training warned of: the doctor's findings about the data, and doubts about the policy."""

from collections.abc import Sequence
from html import escape

from rl_training.analysis.logged_run import LoggedRun
from rl_training.experiment.kept_warnings import warnings_of


def cautions_of(run: LoggedRun) -> list[str]:
    """Return the warnings of a run as sentences, each with where it was given."""
    return [f"{one['text']} (at {one['at']})" if one.get("at") else str(one["text"]) for one in warnings_of(run.record)]


def cautions(runs: Sequence[LoggedRun], names: Sequence[str]) -> list[str]:
    """Return the warnings of some runs; with the name of its run before each where there are several."""
    return [
        f"{name}: {text}" if len(runs) > 1 else text
        for run, name in zip(runs, names, strict=True)
        for text in cautions_of(run)
    ]


def section(runs: Sequence[LoggedRun], names: Sequence[str], more: Sequence[str] = ()) -> str:
    """Return the warnings of some runs, and more, as a section of a page; nothing if there are none."""
    listed = "".join(f"<li>{escape(text)}</li>" for text in [*cautions(runs, names), *more])
    return f'<section><h2>Warnings</h2><ul class="warnings">{listed}</ul></section>' if listed else ""
