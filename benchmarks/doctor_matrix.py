"""What the doctor finds, misses and imagines: `python -m benchmarks.doctor_matrix [FOLDER of third-party data]`.

Every fault is planted in every kind of clean log, several seeds each, and the finding must be named, unless the log cannot
show the fault for a stated reason. The last table is what the doctor says about the clean logs.
"""

import argparse
import copy
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.doctor_faults import FAULTS, Fault, Hidden, bare_rows
from benchmarks.doctor_kinds import KINDS, Log, file_kinds
from rl_training.data.dataset_loaders import read_dataset
from rl_training.data.reading.source_rows import SourceRows
from rl_training.doctor.doctor import examine
from rl_training.doctor.findings import Finding


def findings(log: Log) -> list[Finding]:
    """Return what the doctor finds on a log."""
    bounds = {} if log.bounds is None else dict(zip(("action_low", "action_high"), log.bounds, strict=True))
    reading = read_dataset({**log.arrays, **bounds})
    reading.observation_names, reading.action_names = log.names.get("observation_names"), log.names.get("action_names")
    if log.files is not None:
        names = tuple(f"week{number}.csv" for number in range(int(log.files.max()) + 1))
        reading.source_rows = SourceRows(np.arange(len(log.files)), files=log.files, names=names)
    return examine(reading, log.env_id)


@dataclass
class Cell:
    """One fault in the logs of one kind."""

    found: int = 0
    missed: int = 0
    hidden: Counter[str] = field(default_factory=Counter)  # reasons

    def __str__(self) -> str:
        seen = self.found + self.missed
        return "·" if not seen else "✓" if not self.missed else f"{self.found}/{seen}"


def plant(code: str, fault: Fault, log: Log, seed: int, cell: Cell) -> None:
    """Plant a fault in a copy of a clean log and count whether it is found."""
    faulty = copy.deepcopy(log)
    try:
        fault(faulty, np.random.Generator(np.random.Philox(seed)))
    except Hidden as reason:
        cell.hidden[str(reason)] += 1
        return
    word = "jump" if fault is bare_rows else ""  # not only what was assumed
    found = any(finding.code == code and word in finding.evidence for finding in findings(faulty))
    cell.found, cell.missed = cell.found + found, cell.missed + (not found)


def main() -> None:
    """Print the matrix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="third-party data, as in the README of benchmarks")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", help="only these")
    parser.add_argument("--faults", nargs="*", help="only these")
    options = parser.parse_args()
    kinds = {**KINDS, **({} if options.folder is None else file_kinds(options.folder))}
    kinds = {name: make for name, make in kinds.items() if not options.kinds or name in options.kinds}
    faults = [(code, fault) for code, fault in FAULTS if not options.faults or fault.__name__ in options.faults]
    cells = {(fault, name): Cell() for _, fault in faults for name in kinds}
    clean: dict[str, list[Finding]] = {}
    for name, make in kinds.items():
        clean[name] = []
        for seed in range(options.seeds):
            log = make(seed)
            clean[name] += findings(copy.deepcopy(log))
            for code, fault in faults:
                plant(code, fault, log, seed, cells[fault, name])
    print_matrix(faults, list(kinds), cells, options.seeds)
    print_clean(clean)


def print_matrix(faults: list[tuple[str, Fault]], kinds: list[str], cells: dict[tuple[Fault, str], Cell], seeds: int) -> None:
    """Print a row per fault: how often it was found where it can be seen, and why it cannot be seen elsewhere."""
    print(f"{seeds} logs of each kind. {'; '.join(f'{i} {name}' for i, name in enumerate(kinds, 1))}.\n")
    print(f"| finding | fault | found | {' | '.join(str(i) for i in range(1, len(kinds) + 1))} |")
    print(f"|---|---|---|{'---|' * len(kinds)}")
    reasons: dict[str, dict[str, list[int]]] = {}
    for code, fault in faults:
        row = [cells[fault, name] for name in kinds]
        found, seen = sum(cell.found for cell in row), sum(cell.found + cell.missed for cell in row)
        text = (fault.__doc__ or "").strip().rstrip(".").replace("\n", " ")
        print(f"| `{code}` | {text} | {found} of {seen} | {' | '.join(map(str, row))} |")
        for number, cell in enumerate(row, 1):
            for reason in cell.hidden:
                reasons.setdefault(reason, {}).setdefault(fault.__name__.replace("_", " "), []).append(number)
    print("\nNot visible (·, and left out of the count):\n")
    for reason, hidden in reasons.items():
        by_kinds: dict[tuple[int, ...], list[str]] = {}
        for fault_name, numbers in hidden.items():
            by_kinds.setdefault(tuple(numbers), []).append(fault_name)
        listed = "; ".join(f"{', '.join(names)} ({', '.join(map(str, numbers))})" for numbers, names in by_kinds.items())
        print(f"* {reason}: {listed}")


def print_clean(clean: dict[str, list[Finding]]) -> None:
    """Print what the doctor says about logs without a fault."""
    print("\n| clean logs | errors | warnings |\n|---|---|---|")
    for name, found in clean.items():
        errors = Counter(finding.code for finding in found if finding.severity == "error")
        warnings = Counter(finding.code for finding in found if finding.severity == "warning")
        print(f"| {name} | {_counted(errors)} | {_counted(warnings)} |")


def _counted(codes: Counter[str]) -> str:
    return ", ".join(f"`{code}` {count}" for code, count in codes.items()) or "none"


if __name__ == "__main__":
    main()
