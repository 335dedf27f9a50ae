"""Files of scores: tables, JSON by group and task, and what `evaluate --json` prints."""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.analysis.aggregates import Values
from rl_training.analysis.scores.groups import (
    LAST_GOOD,
    TASK,
    Evaluated,
    Groups,
    Scored,
    all_diverged,
    combination_name,
    scored,
)
from rl_training.analysis.scores.tasks import OFFLINE, ONLINE, Source
from rl_training.errors import ConfigError, DatasetError
from rl_training.output import printable
from rl_training.registry import REGISTRY
from rl_training.storage import parse_json, read_regular_file

_LARGEST_FILE = 100_000_000
_MOST_SEEDS = 5  # that are named
_COLUMNS = {
    "group": ("group", "algo", "algorithm", "method"),
    "task": ("task", "env", "dataset"),
    "score": ("score", "value"),
    "seed": ("seed",),
}


def read_score_file(path: Path) -> Groups:
    """Return the scores of a file: JSON `{group: {task: [scores]}}`, or CSV with the columns group, task and score.

    What `evaluate --json` prints is a file too: a group with the name of the file, and a score for each member; of a sweep a
    group for each combination.
    """
    data = read_regular_file(path.resolve(), _LARGEST_FILE, DatasetError)
    try:
        groups = _groups_in(data, path)
        return replace(groups, origins=dict.fromkeys(groups.scores, path.resolve()))
    except ConfigError as error:
        raise DatasetError(str(error)) from None
    except UnicodeDecodeError:
        raise DatasetError(f"{path}: is not text") from None
    except csv.Error as error:
        raise DatasetError(f"{path}: is no table of scores: {error}") from None


def _groups_in(data: bytes, path: Path) -> Groups:
    """The groups in the bytes of a file."""
    if path.suffix.lower() != ".json":
        found, told = _table(data.decode("utf-8-sig"), path)
        return _given(scored(found, str(path)), told)
    content = parse_json(data, str(path), DatasetError)
    return _evaluation(content, path) or _given(scored(content, str(path)), [])


def _given(scores: Scored, warnings: list[str]) -> Groups:
    return Groups(scores, warnings, given=frozenset(map(printable, scores)))


def _evaluation(found: Any, path: Path) -> Groups | None:
    """The scores of the members in what `evaluate --json` prints; None for any other content."""
    rows = found.get("members") if isinstance(found, Mapping) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        return None
    if "env_id" not in found or not all("return_mean" in row for row in rows):  # of `train`, or of `evaluate --data`
        raise ConfigError(f"{path}: has no returns of an evaluation; name the runs, or what `evaluate --json` prints of them")
    by_group: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_group.setdefault(combination_name(path.stem, row.get("knobs")), []).append(row)
    task = str(found["env_id"])
    scores = scored({name: {task: [row["return_mean"] for row in own]} for name, own in by_group.items()}, str(path))
    warnings, reservations = [], []
    for name, own in by_group.items():
        if lost := sum(row.get("diverged_at") is not None for row in own):
            warnings.append(f"{name}: {lost} of {len(own)} members in {path} diverged; {LAST_GOOD}")
            reservations += [all_diverged(printable(name))] if lost == len(own) else []
        if stopped := sum(row.get("stopped_at") is not None for row in own):
            warnings.append(f"{name}: {stopped} of {len(own)} members in {path} stopped early; their last policies count")
    how = printable(task), found.get("episodes"), found.get("seed", "not told"), found.get("environment")
    return Groups(
        scores,
        warnings,
        reservations=reservations,
        sources=[_source(name, found) for name in scores],
        tasks=[task] * len(scores),
        evaluated=[
            Evaluated(name, *how, scores[name][task], _noise(own, found.get("episodes"))) for name, own in by_group.items()
        ],
    )


def _noise(rows: Sequence[Mapping[str, Any]], episodes: Any) -> Values:
    """The variance of each member's mean return over its episodes; NaN where the file does not tell."""
    if type(episodes) is not int or episodes < 2:
        return np.full(len(rows), np.nan)
    spreads = np.array([std if isinstance(std := row.get("return_std"), float) else np.nan for row in rows])
    return spreads**2 / (episodes - 1)  # the deviation of all episodes divides by their number


def _source(name: str, found: Mapping[str, Any]) -> Source:
    """Where the policies of an evaluation come from; files of earlier versions do not tell on what they were trained."""
    data, env, steps = found.get("data"), printable(str(found["env_id"])), _steps(found)
    if not isinstance(data, Mapping):
        return Source(name, env, told="data" in found, steps=steps)
    label, fingerprint = data.get("name"), data.get("fingerprint")
    return Source(name, env, printable(str(label or "")), str(fingerprint) if fingerprint else None, steps=steps)


def _steps(found: Mapping[str, Any]) -> dict[str, int | None]:
    """The steps of an evaluated policy; files of earlier versions do not tell how many came before those online."""
    algo, env_step = REGISTRY.get(str(found.get("algo"))), found.get("env_step")
    offline = found.get("offline_steps", 0 if algo and algo.online else None)
    steps = {OFFLINE: found.get("step")} if env_step is None else {OFFLINE: offline, ONLINE: env_step}
    if not isinstance(found.get("step"), int) or not all(isinstance(count, int | None) for count in steps.values()):
        return {}
    return {kind: count for kind, count in steps.items() if count != 0}


def _table(text: str, path: Path) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
    """The rows of a CSV file by group and task, a table without tasks has one; and what is odd about its seeds."""
    rows = csv.DictReader(io.StringIO(text, newline=None), delimiter=_separator(text))
    header = {name.strip().lower(): name for name in rows.fieldnames or ()}
    columns = {what: next((header[name] for name in names if name in header), None) for what, names in _COLUMNS.items()}
    if columns["group"] is None or columns["score"] is None:
        raise ConfigError(
            f"{path}: needs the columns group and score (and task, where there are several); it has {[*header]}"
        )
    found: dict[str, dict[str, list[str]]] = {}
    seeds: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        number = rows.line_num  # blank lines are no rows
        group, task, score, seed = (
            (row.get(columns[what] or "") or "").strip() for what in ("group", "task", "score", "seed")
        )
        if any(map(str.strip, row.get(None) or ())):  # more fields than the header has: a decimal comma would be cut off
            raise ConfigError(f"{path}: line {number} has more fields than the header; write decimals with a point")
        if not (group and score) or (columns["task"] and not task):
            raise ConfigError(f"{path}: line {number} has an empty field")
        if not _is_number(score):
            raise ConfigError(f"{path}: line {number}: {score!r} is no score, which must be a finite number")
        found.setdefault(group, {}).setdefault(task or TASK, []).append(score)
        seeds[group, task or TASK, seed] += bool(seed)
    if not found:
        raise ConfigError(f"{path}: has no rows")
    return found, list(_repeated(seeds, path))


def _repeated(seeds: Mapping[tuple[str, str, str], int], path: Path) -> Iterator[str]:
    """Which groups have a seed more than once: a seed that was evaluated twice is one run, and rows are taken for runs."""
    for place in dict.fromkeys((group, task) for group, task, _ in seeds):
        if twice := [seed for (*where, seed), count in seeds.items() if count > 1 and tuple(where) == place]:
            group, task = place
            which = f"seed {twice[0]}" if len(twice) == 1 else f"seeds {', '.join(twice[:_MOST_SEEDS])}"
            yield f"{group}: {which} on {task} more than once in {path}, where each row counts as a run of its own"


def _separator(text: str) -> str:
    """What stands between the fields of the header most often."""
    header = text.splitlines()[0] if text else ""
    return max(",;\t", key=header.count)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
