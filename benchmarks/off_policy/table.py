"""The tables of README.md from the results beside it: `python -m benchmarks.off_policy.table`."""

import json
from pathlib import Path
from typing import Any

from benchmarks.locomotion.table import rows_of, write_tables
from benchmarks.off_policy.measures import ESTIMATORS, SCORES, correlation, coverage, opinion, summary
from benchmarks.off_policy.seeds import figures
from benchmarks.off_policy.tasks import RESULTS, TASKS, read

README = Path(__file__).parent / "README.md"
BARS = {task: 0.8 if task == "pendulum" else 0.7 for task in TASKS}  # for the rank correlation of fitted Q evaluation


def known(*kinds: str) -> list[str]:
    """Return the tasks that have these results."""
    return [task for task in TASKS if all(read(kind, task) is not None for kind in kinds)]


def order_table() -> str:
    """Return the rank correlations of every estimator and score, with the discounted value and with the return."""
    tasks = known("truth", "estimates")
    found = {task: summary(read("estimates", task)["report"], read("truth", task)) for task in tasks}
    rows = []
    for name in (*ESTIMATORS, *SCORES):
        cells = [f"`{name}`" if name in ESTIMATORS else f"`{name}`{', negative' if SCORES[name] < 0 else ''}"]
        for task in tasks:
            one = found[task][name]
            fewer = "" if one["policies"] == 12 else f" ({one['policies']} policies)"
            cells.append(f"{one['value']:.2f} / {one['return']:.2f}{fewer}" if one["policies"] else "not known")
        rows.append(cells)
    rows.append(["bar for `fqe`", *(f"{BARS[task]}" for task in tasks)])
    return rows_of(["value / return", *tasks], rows)


def interval_table() -> str:
    """Return how often 90 % intervals held the discounted value; on Pendulum also the one from many starts."""
    rows = []
    truths = [(task, task, read("truth", task)) for task in known("truth", "estimates")]
    truths += [(task, f"{task}, 5,000 starts", read("starts", task)) for task in known("starts", "estimates")]
    for task, title, truth in sorted(truths, key=lambda one: list(TASKS).index(one[0])):
        report = read("estimates", task)["report"]
        for name in ESTIMATORS:
            one = coverage(report, truth, name)
            if one["verdicts"] != {"cannot tell": len(report["policies"])} or title == task:
                fair = one["held"] + one["cannot tell"]
                counts = [str(one[kind]) for kind in ("held", "cannot tell", "missed", "trusted and missed")]
                verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(one["verdicts"].items()))
                rows.append([title, f"`{name}`", *counts, f"{fair / len(report['policies']):.0%}", verdicts])
    header = ["", "", "held", "cannot tell", "missed", "of these trusted", "held or cannot tell", "verdicts"]
    return rows_of(header, rows)


def policy_table() -> str:
    """Return every policy: truth, estimates and verdict."""
    rows = []
    for task in known("truth", "estimates"):
        truth = read("truth", task)["policies"]
        for policy in read("estimates", task)["report"]["policies"]:
            true = truth[policy["name"]]
            cells = [
                task,
                f"`{policy['name']}`",
                f"{true['return']:.0f}",
                f"{true['value']:.1f} +- {true['value_error']:.1f}",
            ]
            for name in ("fqe", "model", "joint"):
                cells.append(_said(opinion(policy, name), true["value"]))
            rows.append([*cells, policy["verdict"]])
    return rows_of(["", "policy", "return", "value", "`fqe`", "`model`", "joint", "verdict"], rows)


def _said(said: dict[str, Any], value: float) -> str:
    if said["value"] is None:
        return "none"
    low, high = said["interval"]
    inside = "" if low <= value <= high else ", outside"
    digits = 0 if max(abs(low), abs(high)) >= 100.0 else 1
    return f"{said['value']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]{inside}"


def peer_table() -> str:
    """Return fitted Q evaluation of both libraries."""
    rows = []
    for task in known("truth", "d3rlpy"):
        found, truth = read("d3rlpy", task), read("truth", task)
        for one in found["fits"]:
            guess = dict(zip(found["policies"], one["values"], strict=True))
            ranks = " / ".join(f"{correlation(guess, truth, key):.2f}" for key in ("value", "return"))
            apart = [abs(guess[name] - truth["policies"][name]["value"]) for name in guess]
            error = sum(apart) / len(apart)
            who = one["library"] if one["budget"] == "ours" else f"{one['library']}, {one['budget']}"
            rows.append([task, who, f"{one['steps']:,}", ranks, f"{error:.0f}", f"{one['cpu_seconds']:.0f}"])
        for title, name in {
            "d3rlpy's time / ours, round by round": "d3rlpy time / ours",
            "the same from arrays": "the same from arrays",
        }.items():
            rows.append([task, title, "", "", "", ", ".join(f"{ratio:.2f}" for ratio in found[name])])
    return rows_of(["", "", "steps", "value / return", "mean error of the value", "seconds"], rows)


def seed_table() -> str:
    """Return how fitted Q evaluation alone does with other networks."""
    rows, names = [], ("correlation", "error", "seconds")
    for task in known("truth", "seeds"):
        found = read("seeds", task)
        each = figures(found, read("truth", task))
        seeds = ", ".join(str(one["seed"]) for one in found["fits"])
        cells = [f"{sum(each[name]) / len(each[name]):.{digits}f}" for name, digits in zip(names, (2, 0, 0), strict=True)]
        cells.insert(1, ", ".join(f"{one:.2f}" for one in each["correlation"]))
        rows.append([f"`{found['commit']}`", task, seeds, *cells])
    return rows_of(
        ["estimators of", "", "seeds", "rank correlation, mean", "each", "mean error of the value", "seconds"], rows
    )


def regret_table() -> str:
    """Return what choices lose, in percent of the range of returns."""
    columns = ("mean", "largest", "highest joint value", "ten episodes without estimates", "random choice")
    rows = []
    for task in known("regret"):
        found = read("regret", task)
        cells = [f"{100 * found[name]:.1f}" for name in columns]
        chosen = ", ".join(f"`{name}` {count}" for name, count in sorted(found["chosen"].items(), key=lambda pair: -pair[1]))
        rows.append([task, *cells, f"{found['sure']}, {found['sure and not best']}", chosen])
    header = ["", "`select`, mean", "largest", *columns[2:], "sure, of these not the best", "chosen"]
    return rows_of(header, rows)


def round_table() -> str:
    """Return the figures of every run of the estimates, in order."""
    rows = []
    for one in json.loads((RESULTS / "rounds.json").read_text()):
        cells = [f"`{one['commit']}`", one["task"]]
        for name in ("fqe", "model", "joint"):
            found = one[name]
            counts = [found[kind] for kind in ("held", "cannot tell", "missed", "trusted and missed")]
            cells += [f"{found['value']:.2f}", "{}, {}, {} ({})".format(*counts)]
        rows.append(cells)
    counted = "held, cannot tell, missed (trusted)"
    return rows_of(["estimators of", "", "`fqe`", counted, "`model`", counted, "joint", counted], rows)


def plant_table() -> str:
    """Return every policy of every plant that was measured: truth, estimates and verdict."""
    rows = []
    for path in sorted(RESULTS.glob("plants-*.json")):
        for name, one in json.loads(path.read_text())["policies"].items():
            value, said = one["value"], one["said"]
            cells = [path.stem.removeprefix("plants-"), f"`{name}`", f"{value:.4g} +- {one['value_error']:.2g}"]
            rows.append([*cells, *(_said(said[key], value) for key in ("fqe", "model", "joint")), said["joint"]["verdict"]])
    return rows_of(["", "policy", "value", "`fqe`", "`model`", "joint", "verdict"], rows)


TABLES = {
    "plants": plant_table,
    "rounds": round_table,
    "order": order_table,
    "intervals": interval_table,
    "policies": policy_table,
    "peers": peer_table,
    "seeds": seed_table,
    "regret": regret_table,
}


def main() -> None:
    """Write the tables between their marks."""
    write_tables(README, TABLES)


if __name__ == "__main__":
    main()
