"""What a report says of the data that runs learned from."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.analysis.logged_run import LoggedRun
from rl_training.report.bands import few_names
from rl_training.report.facts import number
from rl_training.storage import natural_order

DATASET_NOTE = "Returns are those of logged episodes as read, not discounted; a part between gaps counts as one."
_MOST_BOUNDS = 12


def data_note(runs: Sequence[LoggedRun], names: Sequence[str]) -> str:
    """Return which runs learned from which data, and what that forbids; empty where all learned from the same."""
    learners: dict[str, list[str]] = {}
    labels: dict[str, str] = {}
    for run, name in zip(runs, names, strict=True):
        if run.fingerprint is not None:
            learners.setdefault(run.fingerprint, []).append(name)
            labels.setdefault(run.fingerprint, run.data)
    if len(learners) < 2:
        return ""
    texts = [f"{_distinct(labels, data)} ({few_names(own)})" for data, own in learners.items()]
    return (
        f"The runs learned from different data: {'; '.join(texts)}. Charts show them on one axis, but losses, values and "
        "figures on held-out rows can only be compared between runs on the same data."
    )


def environments_note(runs: Sequence[LoggedRun], names: Sequence[str]) -> str:
    """Return which runs were evaluated in which environments, and what that forbids; empty where all were in the same."""
    found: dict[str, list[str]] = {}
    for run, name in zip(runs, names, strict=True):
        if run.config.final_env_id is not None:
            found.setdefault(run.config.final_env_id, []).append(name)
    if len(found) < 2:
        return ""
    texts = [f"{env} ({few_names(own)})" for env, own in found.items()]
    return f"Returns and values of different environments cannot be compared: {'; '.join(texts)}."


def notes(runs: Sequence[LoggedRun], names: Sequence[str]) -> list[str]:
    """Return what cannot be compared between some runs, and why, in sentences."""
    return [note for note in (environments_note(runs, names), data_note(runs, names)) if note]


def _distinct(labels: Mapping[str, str], data: str) -> str:
    """What people call a dataset, with its fingerprint where another is called so too."""
    return f"{labels[data]}, {data[:6]}" if list(labels.values()).count(labels[data]) > 1 else labels[data]


def dataset_facts(run: LoggedRun) -> dict[str, str]:
    """Return what is known of a run's dataset, for people; empty without one."""
    found = run.record.get("dataset") or {}
    whose = " of the parts" if parts_of(run) is not None else ""
    names = {
        **{"rows": "transitions", "episodes": "parts of episodes" if whose else "episodes"},
        **{"parts_of": "whole episodes", "true_ends": "true ends"},
        **{"length_mean": f"mean length{whose}", "return_mean": f"mean return{whose}"},
        **{"return_std": f"deviation of returns{whose}", "return_min": f"lowest return{whose}"},
        **{"return_max": f"highest return{whose}", "reward_mean": "mean reward"},
    }
    names["held_out_rows"] = "held-out rows scored"
    facts = {text: _plain(found[name]) for name, text in names.items() if name in found}
    bounds = sorted((found.get("action_bounds") or {}).items(), key=lambda one: natural_order(one[0]))
    facts |= {f"bounds of {name}": bounds_text(ends) for name, ends in bounds[:_MOST_BOUNDS]}
    return {**facts, **({"fingerprint": str(found["fingerprint"])[:16]} if "fingerprint" in found else {})}


def return_mean(run: LoggedRun) -> float | None:
    """Return the mean return of the logged episodes; None where evaluations cannot be compared with it, or without data."""
    found = run.record.get("dataset") or {}
    return float(found["return_mean"]) if "return_mean" in found and parts_of(run) is None else None


def parts_of(run: LoggedRun) -> int | None:
    """Return of how many episodes those of the data are parts, cut by gaps or bad rows; None if they are whole."""
    found = (run.record.get("dataset") or {}).get("parts_of")
    return None if found is None else int(found)


def action_text(column: str) -> str:
    """Return what people call an action: its name, or `action 0` where metrics have its number alone."""
    return f"action {column}" if column.isdecimal() else column


def bounds_text(ends: Sequence[float]) -> str:
    """Return the range of an action, such as `0 to 97.9`: settings, so without zeros that say nothing."""
    return " to ".join(f"{end + 0.0:,.6g}" for end in ends)


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else number(value) if isinstance(value, float) else str(value)
