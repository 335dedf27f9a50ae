"""How far a run came and how it ended, as far as its files tell, and what is missing in them."""

import contextlib
import json
import os
import re
from collections.abc import Iterable

import numpy as np

from rl_training.analysis.logged_run import RETURN, LoggedRun

_MOST_SEEDS = 6  # or ranges of them, that are named


def ended_early(run: LoggedRun) -> dict[int, str]:
    """Return the members that diverged, or that stopped and were not trained on, with where that was."""
    if "event" not in run.history:
        return {}
    members, events = run.history["member"], run.history["event"]
    found = {}
    for row in np.flatnonzero(events != ""):
        member, position = int(members[row]), int(run.positions[row])
        if events[row] == "diverged" or position == run.positions[members == member].max():
            found[member] = f"{events[row]} at step {position:,}"
    return found


def furthest(run: LoggedRun, counter: str) -> int | None:
    """Return how far a run has counted its `step` or `env_step`: by its rows, its end, and its latest checkpoint."""
    rows = run.history.get(counter, np.zeros(0))
    known = [*rows[~np.isnan(rows)].tolist(), run.record.get(counter), _saved(run, counter)]
    return max((int(value) for value in known if value is not None), default=None)


def _saved(run: LoggedRun, counter: str) -> int | None:
    """The counter of the latest checkpoint, which a stopped run writes between two rows."""
    found = re.search({"step": r"step-(\d+)", "env_step": r"env-(\d+)"}[counter], _latest(run) or "")
    return int(found[1]) if found else None


def _latest(run: LoggedRun) -> str | None:
    """The name of the latest checkpoint; None if there is none."""
    try:
        return str(json.loads((run.path / "checkpoints" / "latest.json").read_bytes())["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def kept_bests(run: LoggedRun) -> dict[int, tuple[float, int]]:
    """Return the best return of each member and its position, as the latest checkpoint has them; empty without one.

    A run that began in another directory has no rows of what it did there, but its checkpoints know.
    """
    try:
        state = json.loads((run.path / "checkpoints" / str(_latest(run)) / "state.json").read_bytes())
        found = {}
        for member, record in enumerate(state["members"]):
            first = {"step": 0, "env step": run.switch or 0}.get(record["best_unit"])
            if first is not None:
                found[member] = float(record["best_return"]), int(record["best_step"]) + first
        return found
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def taken_elsewhere(run: LoggedRun) -> dict[str, int]:
    """Return the steps, by counter, that a run had taken when it began in this directory; empty where it began here."""
    if not run.history.rows:
        return {}
    start = (run.record.get("phases") or [{}])[-1]
    begun = {counter: start.get(f"from_{counter}") for counter in ("env_step", "step")}
    first = [run.history[counter][0] if counter in run.history else np.nan for counter in begun]
    if np.nan_to_num(first, nan=-1.0).tolist() > [-1 if value is None else value for value in begun.values()]:
        return {counter: value for counter, value in begun.items() if value}
    online = "env_step" in run.history and not np.isnan(run.history["env_step"]).any()
    return {"step": run.switch} if online and run.switch else {}  # it was resumed since, so its record tells of that


def position_text(run: LoggedRun, position: int) -> str:
    """Return a position with its unit, and of a run that went online after gradient steps with its phase."""
    if "env_step" not in run.history:
        return f"gradient step {position:,}"
    if not run.switch:
        return f"environment step {position:,}"
    if position <= run.switch:
        return f"gradient step {position:,}, offline"
    return f"environment step {position - run.switch:,}, online"


def missing_rows(run: LoggedRun) -> list[str]:
    """Return what is missing in the metrics of a run that no longer goes on, so that its numbers mislead."""
    if run.record["status"] == "running":
        return []
    if not run.history.rows:
        why = "is empty" if (run.path / "metrics.jsonl").exists() else "is missing"
        return [f"metrics.jsonl {why}, so there are no curves and no returns"]
    return [*_cut_line(run), *_uneven_evaluations(run)]


def _cut_line(run: LoggedRun) -> list[str]:
    with contextlib.suppress(OSError), (run.path / "metrics.jsonl").open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        if stream.read() != b"\n":
            return ["the last line of metrics.jsonl is incomplete and is left out"]
    return []


def _uneven_evaluations(run: LoggedRun) -> list[str]:
    """Members whose last evaluation is not that of the others, though they were trained to the end."""
    if RETURN not in run.history:
        return []
    curve, ended = run.curve(), ended_early(run)
    last: dict[str, list[int]] = {}
    for column, (member, seed) in enumerate(run.seeds.items()):
        known = curve.positions[~np.isnan(curve.values[:, column])]
        if member not in ended:
            last.setdefault(f"at step {known[-1]:,}" if len(known) else "never", []).append(seed)
    if len(last) < 2:
        return []
    texts = [f"{seeds_text(seeds)} {when}" for when, seeds in last.items()]
    return [f"members were last evaluated at different steps, which final returns mix: {'; '.join(texts)}"]


def seeds_text(seeds: Iterable[int]) -> str:
    """Return seeds for people, those in a row as a range, such as `seeds 3, 5 to 9`."""
    found: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if found and seed == found[-1][-1] + 1:
            found[-1].append(seed)
        else:
            found.append([seed])
    parts = [f"{one[0]} to {one[-1]}" if len(one) > 2 else ", ".join(map(str, one)) for one in found]
    shown = ", ".join(parts[:_MOST_SEEDS]) + (", ..." if len(parts) > _MOST_SEEDS else "")
    return f"seed{'s' if len(parts) > 1 or len(found[0]) > 1 else ''} {shown}"
