"""What a backend is told of a run: its names, its members with their hyper-parameters, and its rows."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rl_training.config.base import flat
from rl_training.config.run import RunConfig

COUNTERS = ("step", "env_step", "member", "seed")
Values = dict[str, float]
Hyperparameters = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class Row:
    """One line of metrics.jsonl."""

    member: int
    index: int  # among the rows of its member, from 0
    position: int  # gradient steps of an offline phase, then environment steps
    values: Values


@dataclass(frozen=True)
class Member:
    """One member: a run of its own in a backend."""

    number: int
    name: str  # `seed-3`; in a sweep `expectile-0.7_seed-3`
    hyperparameters: Hyperparameters


@dataclass(frozen=True)
class Subject:
    """A run, as backends know it."""

    id: str  # changes when a run starts over: what a backend holds under another id belongs to an earlier run
    run_dir: Path
    project: str
    name: str
    members: tuple[Member, ...]

    def title(self, member: Member) -> str:
        """The name of a member's run in a backend; a solo run has that of the run itself."""
        return self.name if len(self.members) == 1 else f"{self.name}-{member.name}"


class Sink(Protocol):
    """An open backend: given every row of a run in order, after a resume from the first again, it adds what it lacks."""

    where: str
    """How to look at it: a command or an address."""

    def send(self, rows: list[Row]) -> None:
        """Add those rows that the backend does not hold yet."""

    def close(self, *, finished: bool) -> None:
        """Make all that was sent durable; the run has come to its end, or was stopped and may go on."""


def subject_of(config: RunConfig[Any], run_dir: Path, run_id: str) -> Subject:
    """Return the names and members of a run."""
    project = _slug(f"rl-training-{config.final_env_id or 'data'}")
    name = _slug(f"{config.algo}-{run_dir.resolve().name}")
    names = [_member_name(seed, own) for seed, own in zip(config.member_seeds, config.member_knobs, strict=True)]
    twice = {found for found, count in Counter(names).items() if count > 1}  # swept values that look alike when shortened
    members = [
        Member(number, f"{number}_{found}" if found in twice else found, _hyperparameters(config, number))
        for number, found in enumerate(names)
    ]
    return Subject(run_id, run_dir, project, name, tuple(members))


def _member_name(seed: int, knobs: Mapping[str, float]) -> str:
    return _slug("_".join([*(f"{knob}-{value:g}" for knob, value in knobs.items()), f"seed-{seed}"]))


def _slug(text: str) -> str:
    """Return a text in the letters that all backends and file systems accept in a name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-")[:120]


def _hyperparameters(config: RunConfig[Any], member: int) -> Hyperparameters:
    """Return the settings of a member as one flat map; those that are null or describe other members are left out."""
    record = config.record()
    record["seed"] = config.member_seeds[member]
    record["algo_kwargs"] |= config.member_knobs[member]
    for name in ("seeds", "sweep", "trials", "log", "run_name", "env_imports"):
        record.pop(name)
    settings = {name: value for name, value in flat(record).items() if value not in (None, {})}
    return {name: value if isinstance(value, str | int | float) else json.dumps(value) for name, value in settings.items()}
