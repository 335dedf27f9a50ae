"""Column selection by name, by pattern, or by guessing."""

import fnmatch
import re
from collections.abc import Collection, Sequence
from typing import Any

from rl_training.config.columns import ColumnMap
from rl_training.errors import DatasetError, did_you_mean

_NUMBERED = r"([_.\[ ]?\d+\]?|[_.].+)"
_GUESSES: dict[str, str] = {
    "observations": rf"(?i:obs|observation|observations|state){_NUMBERED}|s_?\d+",
    "actions": rf"(?i:act|action|actions|control){_NUMBERED}|[ua]_?\d+|(?i:action)",
    "next_observations": rf"(?i:next_(obs|observation|observations|state)){_NUMBERED}",
    "next_actions": rf"(?i:next_(act|action|actions)){_NUMBERED}",
    "reward": r"r|(?i:rew|reward|rewards)",
    "episode": r"ep|(?i:episode|episode_id|episode_index|trajectory|traj|trajectory_id|run_id)",
    "time": r"t|(?i:time|timestamp|datetime|frame_index|time_step|timestep)",
    "terminal": r"(?i:terminal|terminals|terminated)",
    "done": r"(?i:done|dones)",
    "timeout": r"(?i:timeout|timeouts|truncated|truncation)",
}
"""Common column names; single letters only in the case written here, since `T` may be a temperature."""


def guess_columns(found: Sequence[str], source: str) -> ColumnMap:
    """Return the column map that the names of a table suggest, or a DatasetError that shows how to write one."""
    guess: dict[str, Any] = {}
    for role, pattern in _GUESSES.items():
        names = [name for name in found if re.fullmatch(pattern, name)]
        if role in ("observations", "actions", "next_observations", "next_actions"):
            guess[role] = _in_number_order(names)
        elif names:
            guess[role] = names[0]
    if not guess["observations"] or not guess["actions"] or "reward" not in guess:
        shown = ", ".join(found[:20]) + (", ..." if len(found) > 20 else "")
        raise DatasetError(
            f"{source}: cannot infer the roles of its columns; name them, such as "
            f"`columns: {{observations: 'obs_*', actions: [u], reward: r, episode: run}}`. Found: {shown or 'none'}"
        )
    return ColumnMap(**guess)


def matching(patterns: Sequence[str], found: Sequence[str], source: str, taken: Collection[str] = ()) -> list[str]:
    """Return the columns that names or patterns select, each once, in order; patterns skip those in `taken`."""
    chosen: list[str] = []
    free = [name for name in found if name not in taken]
    for pattern in patterns:
        names = [pattern] if pattern in found else _in_number_order([n for n in free if fnmatch.fnmatchcase(n, pattern)])
        if not names:
            raise DatasetError(f"{source}: there is no column `{pattern}`.{did_you_mean(pattern, found)}")
        chosen += [name for name in names if name not in chosen]
    return chosen


def _in_number_order(names: Sequence[str]) -> list[str]:
    """Sort names that differ only in numbers by number; keep the order of others."""
    numbers = [re.findall(r"\d+", name) for name in names]
    if all(numbers) and len({re.sub(r"\d+", "#", name) for name in names}) == 1:
        return sorted(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
    return list(names)
