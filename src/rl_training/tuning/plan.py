"""Trials as populations: those that differ in numbers alone are members of one, those that change a shape have their own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config.loading import make_config
from rl_training.config.parts import learner_knobs
from rl_training.errors import ConfigError
from rl_training.tuning.job import PopulationJob
from rl_training.tuning.space import changed, path_of

Settings = Mapping[str, Any]
"""Values by the names that a space file has for knobs."""
_Trial = tuple[Settings, dict[str, float]]  # what a population shares, and what is the trial's own


@dataclass(frozen=True)
class Population:
    """A job, and which of its members belong to each trial."""

    job: PopulationJob
    members: Mapping[int, Sequence[int]]  # by the number of the trial


@dataclass(frozen=True)
class Plan:
    """The populations of some trials, and why others cannot be trained."""

    populations: list[Population]
    refused: Mapping[int, str]


def plan(
    name: str,
    trials: Mapping[int, Settings],
    record: Settings,
    folder: Path,
    pruning: Settings | None,
    most: int | None = None,
) -> Plan:
    """Return how trials are trained: a function of its arguments alone, so that a resumed study finds its populations again.

    Trials with the same settings are the same members. A combination that the config refuses is left out. `pruning` is the
    block of that name for populations of several combinations, `most` the number of trials that a population may have.
    """
    record = _scored_alike(record)
    groups: dict[str, dict[int, _Trial]] = {}
    refused: dict[int, str] = {}
    for number, settings in trials.items():
        try:
            shared, own = _parts(record, settings)
        except ConfigError as error:
            refused[number] = str(error)
            continue
        key = json.dumps([shared, sorted(own)], sort_keys=True)
        groups.setdefault(key, {})[number] = (shared, own)
    parts = [part for group in groups.values() for part in _parts_of(group, most or len(group))]
    several = len(parts) > 1
    populations = [
        _population(f"{name}-{place}" if several else name, part, record, folder, pruning) for place, part in enumerate(parts)
    ]
    return Plan(populations, refused)


def _scored_alike(record: Settings) -> Settings:
    """The record, with its own discount for the scores of all trials: where a trial has another, it earns other sums."""
    if record["select_by"] != "fqe" or record["select_gamma"] is not None:
        return record
    return {**record, "select_gamma": record["algo_kwargs"].get("gamma")}


def _parts_of(group: Mapping[int, _Trial], most: int) -> list[dict[int, _Trial]]:
    """A group in parts of `most` trials, in order."""
    trials = list(group.items())
    return [dict(trials[first : first + most]) for first in range(0, len(trials), most)]


def _parts(record: Mapping[str, Any], settings: Settings) -> tuple[dict[str, Any], dict[str, float]]:
    """The settings that all members of a population share, and those that are a member's own."""
    config = make_config(changed(record, settings), "trial")
    can_differ = learner_knobs(config.algo_kwargs).sweepable()
    own = {
        path_of(name)[1]: float(value)
        for name, value in settings.items()
        if len(path_of(name)) == 2 and path_of(name)[1] in can_differ and type(value) in (int, float)
    }
    shared = {name: value for name, value in settings.items() if path_of(name)[1:] not in {(knob,) for knob in own}}
    if own:
        make_config({**changed(record, shared), "trials": [own]}, "trial")  # a knob that would do nothing is refused here
    return shared, own


def _population(
    name: str,
    group: Mapping[int, _Trial],
    record: Mapping[str, Any],
    folder: Path,
    pruning: Settings | None,
) -> Population:
    """The job of trials with the same shared settings."""
    shared, own = next(iter(group.values()))
    combined: list[dict[str, float]] = []
    place: dict[int, int] = {}
    for number, (_, knobs) in group.items():
        if knobs not in combined:
            combined.append(knobs)
        place[number] = combined.index(knobs)
    values = {**changed(record, shared), "trials": combined if own else None}
    if len(combined) > 1:  # otherwise there is nothing to compare with
        values["pruning"] = pruning
    config = make_config(values, name)
    seeds = len(config.seeds or (0,))
    members = {number: range(at * seeds, (at + 1) * seeds) for number, at in place.items()}
    gpus = 1.0 if config.device.startswith("cuda") else 0.0
    return Population(PopulationJob(name, str(folder / name), config.record(), gpus=gpus), members)
