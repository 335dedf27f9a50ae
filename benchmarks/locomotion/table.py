"""The tables and the picture of README.md from the results beside it: `python -m benchmarks.locomotion.table`.

A score is 100 (return - random) / (expert - random), with the mean returns of the `random` and `expert` sets of the task.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.locomotion.behaviour import TASKS
from benchmarks.locomotion.curves import draw
from benchmarks.locomotion.data import RECORDS, split
from benchmarks.locomotion.jobs import RESULTS
from benchmarks.locomotion.offline import ALGOS, SETS
from benchmarks.locomotion.online import ALGOS as ONLINE_ALGOS
from benchmarks.locomotion.online import SETS as ONLINE_SETS
from rl_training.analysis.bootstrap import interval

README = Path(__file__).parent / "README.md"
PEERS = {"corl": "CORL", "d3rlpy": "d3rlpy"}
PEER_ALGOS = ("iql", "td3_bc", "cql", "rebrac")
Scores = Mapping[tuple[str, str], list[float]]
"""Normalised scores of the seeds by algorithm and set."""


def references() -> dict[str, tuple[float, float]]:
    """Return the returns of random actions and of the expert in each task."""
    records = json.loads(RECORDS.read_text())
    return {task: tuple(records[f"{task}-{kind}"]["return_mean"] for kind in ("random", "expert")) for task in TASKS}


def normalised(name: str, returns: Iterable[float | None]) -> list[float]:
    """Return the scores of returns in the task of a set; a seed that diverged (None) has that of random actions."""
    low, high = references()[split(name)[0]]
    return [0.0 if value is None else 100.0 * (value - low) / (high - low) for value in returns]


def own_results() -> list[dict[str, Any]]:
    """Return our results, one for each algorithm and set."""
    return [json.loads(path.read_text()) for path in sorted((RESULTS / "offline").glob("*.json"))]


def peer_scores(peer: str) -> dict[tuple[str, str], list[float]]:
    """Return the scores of another library, whose results have a file for each seed."""
    found: dict[tuple[str, str], list[float]] = {}
    for path in sorted((RESULTS / peer).glob("*.json")):
        result = json.loads(path.read_text())
        found.setdefault((result["algo"], result["set"]), []).extend(normalised(result["set"], [result["return"]]))
    return found


def cell(tasks: list[list[float]]) -> str:
    """Return the interquartile mean of some tasks with its 95 % interval."""
    if not tasks:
        return "-"
    estimate, low, high = interval(np.array(tasks))
    return f"{estimate:.1f} [{low:.1f}, {high:.1f}]"


def rows_of(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def data_table() -> str:
    """Return the sets, with their returns and fingerprints."""
    records = json.loads(RECORDS.read_text())
    rows = []
    for name, found in records.items():
        returns = (
            f"{found['return_mean']:.0f} +- {found['return_std']:.0f}, {found['return_min']:.0f} to {found['return_max']:.0f}"
        )
        rows.append([f"`{name}`", f"{found['rows']:,}", f"{found['episodes']:,}", returns, f"`{found['fingerprint'][:16]}`"])
    return rows_of(["set", "rows", "episodes", "return", "fingerprint"], rows)


def offline_table() -> str:
    """Return our scores, by algorithm and set."""
    results = own_results()
    scores = {(one["algo"], one["set"]): normalised(one["set"], one["returns"]) for one in results}
    seconds = {(one["algo"], one["set"]): one["seconds"] for one in results}
    rows = []
    for algo in ALGOS:
        own = [scores[algo, name] for name in SETS if (algo, name) in scores]
        if own:
            times = [seconds[algo, name] for name in SETS if (algo, name) in seconds]
            cells = [cell([scores[algo, name]]) if (algo, name) in scores else "-" for name in SETS]
            taken = f"{min(times):.0f}" if len(times) == 1 else f"{min(times):.0f} to {max(times):.0f}"
            rows.append([f"`{algo}`", *cells, cell(own) if len(own) == len(SETS) else "-", taken])
    return rows_of(["", *(f"`{name}`" for name in SETS), "all nine", "seconds of a population"], rows)


def online_results() -> list[dict[str, Any]]:
    """Return the results of going online, one for each algorithm and set."""
    found = [json.loads(path.read_text()) for path in sorted((RESULTS / "online").glob("*.json"))]
    return sorted(found, key=lambda one: (ONLINE_SETS.index(one["set"]), ONLINE_ALGOS.index(one["algo"])))


def online_table() -> str:
    """Return the scores at the switch, how far they fell after it, and the last ones."""
    rows = []
    for one in online_results():
        scores = {key: normalised(one["set"], one[key]) for key in ("before", "lowest", "last") if key in one}
        fallen = [before - low for before, low in zip(scores.get("before", []), scores.get("lowest", []), strict=True)]
        cells = [cell([values]) if values else "-" for values in (scores.get("before"), fallen, scores["last"])]
        rows.append([f"`{one['set']}`", f"`{one['algo']}`", *cells, f"{one['seconds']:.0f}"])
    return rows_of(["", "", "at the switch", "dip", "after 100,000 environment steps", "seconds"], rows)


def peer_table() -> str:
    """Return our scores beside those of other libraries, on the sets that they were run on."""
    ours = {(one["algo"], one["set"]): normalised(one["set"], one["returns"]) for one in own_results()}
    others = {title: peer_scores(peer) for peer, title in PEERS.items()}
    names = [name for name in SETS if any((algo, name) in scores for scores in others.values() for algo in PEER_ALGOS)]
    rows = []
    for algo in PEER_ALGOS:
        for title, scores in {"ours": ours, **others}.items():
            cells = [_counted(scores.get((algo, name))) for name in names]
            if set(cells) != {"-"}:
                rows.append([f"`{algo}`", title, *cells])
    return rows_of(["", "", *(f"`{name}`" for name in names)], rows) if names else "No results yet."


def _counted(scores: list[float] | None) -> str:
    if not scores:
        return "-"
    return f"{scores[0]:.1f}, 1 seed" if len(scores) == 1 else f"{cell([scores])}, {len(scores)} seeds"


TABLES = {"data": data_table, "offline": offline_table, "peers": peer_table, "online": online_table}


def write_tables(page: Path, tables: Mapping[str, Callable[[], str]]) -> None:
    """Write tables into a page, each between its marks."""
    text = page.read_text()
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        text = re.sub(f"{begin}.*?{end}", lambda _: f"{begin}{table()}\n{end}", text, flags=re.S)  # noqa: B023
    page.write_text(text)


def main() -> None:
    """Write the tables and the picture."""
    write_tables(README, TABLES)
    draw(online_results(), normalised, README.with_name("online.png"))


if __name__ == "__main__":
    main()
