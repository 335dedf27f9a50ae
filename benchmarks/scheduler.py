"""`python -m benchmarks.scheduler`: how long a study takes on many GPUs, and what it waits for, by simulating its events.

A study asks for a batch of trials, cuts it into populations and gives each to a free GPU. One process asks and tells, one
trial after another, and asks for the next batch when the last one is told, as `rl-training tune` does. Nodes fail at random,
and what they did since the last checkpoint is done again elsewhere. The rates are those of `benchmarks/README.md`; every
number of a scenario can be set: `--trials 10000 --gpus 64 --batch 4096`.
"""

import argparse
import heapq
import math
import random
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise

HOUR = 3600.0


@dataclass(frozen=True)
class Scenario:
    """A study and the cluster it runs on; times are in seconds."""

    trials: int = 10_000
    gpus: int = 64
    batch: int = 10_000  # trials that are asked for at once
    population: int = 64  # trials that one GPU trains side by side
    updates: int = 1_000_000  # gradient steps of a trial
    rate: float = 100_000.0  # member-updates per second of a GPU
    episodes: int = 2_000  # of evaluation, in a whole run of a trial
    length: int = 1_000  # steps of an episode
    cores: int = 16  # for each GPU
    step: float = 157e-6  # one step of evaluation on one core
    start: float = 15.0  # from the start of a process to its first gradient step
    spread: float = 0.05  # of the time of a population, as a share of it
    ask: float = 0.08  # of the one process, for each trial
    ask_more: float = 3.5e-5  # and for each trial that there is already: the search reads them all
    tell: float = 0.008
    node: int = 8  # GPUs of a node
    failures: float = 1 / (1000 * HOUR)  # of a node, per second
    noticed: float = 30.0  # until a lost node is known to be lost
    repair: float = 600.0
    checkpoint: float = 60.0  # between two checkpoints

    @property
    def training(self) -> float:
        """Seconds of gradient steps of a population."""
        return self.population * self.updates / self.rate

    @property
    def evaluating(self) -> float:
        """Seconds of evaluation of a population on the cores of its GPU."""
        return self.population * self.episodes * self.length * self.step / self.cores

    @property
    def work(self) -> float:
        """Seconds of a population: evaluation runs beside training, and the slower of the two decides."""
        return max(self.training, self.evaluating)


@dataclass
class Outcome:
    """What a simulated study took; shares are of all GPUs over all the time."""

    seconds: float = 0.0
    busy: float = 0.0
    lost: float = 0.0  # done twice, because a node was lost
    waiting_for_asks: float = 0.0  # seconds in which the study waits for its one process alone
    failures: int = 0
    finished: int = 0


@dataclass(eq=False)
class _Population:
    """One attempt at a population."""

    left: float  # seconds of work that no checkpoint has


@dataclass
class _Study:
    scenario: Scenario
    random: random.Random
    now: float = 0.0
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        nodes = math.ceil(self.scenario.gpus / self.scenario.node)
        self.queue: deque[_Population] = deque()
        self.free = list(range(self.scenario.gpus))
        self.running: dict[int, tuple[_Population, float]] = {}  # by GPU: what it works on, and since when
        self.events: list[tuple[float, int, str, int, _Population | None]] = []
        self.count = 0
        for node in range(nodes):
            self._at(self._lifetime(), "fail", node)

    def _lifetime(self) -> float:
        return self.random.expovariate(self.scenario.failures) if self.scenario.failures else math.inf

    def _at(self, after: float, kind: str, place: int, population: _Population | None = None) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + after, self.count, kind, place, population))

    def run(self) -> Outcome:
        done = 0
        while done < self.scenario.trials:
            batch = min(self.scenario.batch, self.scenario.trials - done)
            self._batch(batch, done)
            done += batch
        self.outcome.seconds = self.now
        return self.outcome

    def _batch(self, trials: int, before: int) -> None:
        """Ask for a batch, train its populations, and tell them as they end."""
        self._think(trials * (self.scenario.ask + self.scenario.ask_more * (before + trials / 2)))
        sizes = [min(self.scenario.population, trials - first) for first in range(0, trials, self.scenario.population)]
        for size in sizes:
            chance = max(0.5, self.random.gauss(1.0, self.scenario.spread))
            self.queue.append(_Population(self.scenario.work * chance * size / self.scenario.population))
        told_until = self.now
        target = self.outcome.finished + len(sizes)
        self._dispatch()
        while self.outcome.finished < target:
            finished = self.outcome.finished
            self._next_event()
            if self.outcome.finished > finished:
                told_until = max(told_until, self.now) + self.scenario.tell * self.scenario.population
        self._think(max(0.0, told_until - self.now))

    def _think(self, seconds: float) -> None:
        """Let time pass in which only the one process works; nodes fail all the same."""
        end = self.now + seconds
        while self.events and self.events[0][0] <= end:
            self._next_event()
        self.now = end
        self.outcome.waiting_for_asks += seconds

    def _dispatch(self) -> None:
        while self.queue and self.free:
            gpu, population = self.free.pop(), self.queue.popleft()
            self.running[gpu] = population, self.now
            self._at(self.scenario.start + population.left, "finish", gpu, population)

    def _next_event(self) -> None:
        self.now, _, kind, place, population = heapq.heappop(self.events)
        if kind == "finish" and self.running.get(place, (None, 0.0))[0] is population:  # else its node was lost meanwhile
            _, since = self.running.pop(place)
            self.outcome.busy += self.now - since
            self.outcome.finished += 1
            self.free.append(place)
        elif kind == "fail":
            self._fail(place)
        elif kind == "repaired":
            self.free += self._gpus(place)
            self._at(self._lifetime(), "fail", place)
        elif kind == "again" and population is not None:
            self.queue.appendleft(population)
        self._dispatch()

    def _gpus(self, node: int) -> range:
        return range(node * self.scenario.node, min((node + 1) * self.scenario.node, self.scenario.gpus))

    def _fail(self, node: int) -> None:
        """Lose a node: its populations go on from their last checkpoints once the loss is noticed."""
        self.outcome.failures += 1
        for gpu in self._gpus(node):
            if gpu in self.free:
                self.free.remove(gpu)
            if gpu not in self.running:
                continue
            population, since = self.running.pop(gpu)
            worked = max(0.0, self.now - since - self.scenario.start)
            saved = worked // self.scenario.checkpoint * self.scenario.checkpoint
            self.outcome.busy += self.now - since
            self.outcome.lost += self.now - since - saved
            self._at(self.scenario.noticed, "again", 0, _Population(population.left - saved))
        self._at(self.scenario.repair, "repaired", node)


def simulate(scenario: Scenario, seed: int = 0) -> Outcome:
    """Return what a study takes: a function of its arguments alone."""
    return _Study(scenario, random.Random(seed)).run()  # noqa: S311 - not for secrets


def line(name: str, scenario: Scenario, outcome: Outcome) -> str:
    """Return one row of the table."""
    all_time = outcome.seconds * scenario.gpus
    cells = [
        *(f"{scenario.trials:,}", f"{scenario.gpus:,}", f"{scenario.batch:,}", f"{outcome.seconds / HOUR:.2f}"),
        *(f"{outcome.busy / all_time:.1%}", f"{outcome.waiting_for_asks / outcome.seconds:.1%}"),
        *(f"{outcome.failures:,}", f"{outcome.lost / max(outcome.busy, 1e-9):.2%}"),
    ]
    return f"| {name} | {' | '.join(cells)} |"


HEAD = "| | trials | GPUs | batch | hours | GPUs busy | waiting for asks | lost nodes | done twice |"
SPARSE = Scenario(episodes=200)  # evaluated every 50,000 steps
RANDOM = replace(SPARSE, ask=0.001, ask_more=0.0)  # random search: nothing is computed from the trials before
TABLE: Sequence[tuple[str, Scenario]] = [
    *(("evaluated every 5,000 steps", replace(RANDOM, episodes=2_000, gpus=gpus)) for gpus in (1, 8, 64)),
    *(("every 50,000 steps", replace(RANDOM, gpus=gpus)) for gpus in (1, 8, 64)),
    *(("the same, TPE", replace(SPARSE, batch=batch)) for batch in (64, 512, 4_096)),
    ("a hundred times that, random", replace(RANDOM, trials=1_000_000, gpus=6_400, batch=1_000_000)),
    ("the same, TPE", replace(SPARSE, trials=1_000_000, gpus=6_400, batch=409_600)),
]


def measure(counts: Sequence[int] = (100, 1_000, 3_000, 10_000), asked: int = 20) -> None:
    """Print what Optuna's TPE takes for a trial of four knobs in a journal file, by the number of trials in it."""
    import optuna  # noqa: PLC0415 - only this needs it
    from optuna.storages.journal import JournalFileBackend  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    knobs: dict[str, optuna.distributions.BaseDistribution]
    knobs = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in "abcd"}
    draw = random.Random(0)  # noqa: S311 - not for secrets
    with tempfile.TemporaryDirectory() as folder:
        journal = JournalFileBackend(f"{folder}/journal")
        sampler = optuna.samplers.TPESampler(seed=0, constant_liar=True)
        study = optuna.create_study(storage=optuna.storages.JournalStorage(journal), sampler=sampler)
        for count in counts:
            while len(study.get_trials(deepcopy=False)) < count - asked:
                values = {name: draw.random() for name in knobs}
                study.add_trial(optuna.trial.create_trial(params=values, distributions=knobs, value=draw.random()))
            times = [time.perf_counter()]
            trials = [study.ask(knobs) for _ in range(asked)]
            times.append(time.perf_counter())
            for trial in trials:
                study.tell(trial, draw.random())
            times.append(time.perf_counter())
            ask, tell = ((after - before) / asked * 1e3 for before, after in pairwise(times))
            print(f"{count:,} trials: ask {ask:.0f} ms, tell {tell:.0f} ms")


def main() -> None:
    """Print the table, or one scenario of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for one in fields(Scenario):
        parser.add_argument(f"--{one.name}", type=type(one.default))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measure", action="store_true", help="measure what asking for a trial takes (needs optuna)")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    seed = given.pop("seed")
    if given.pop("measure"):
        measure()
        return
    print(HEAD, "|---" * HEAD.count(" | ") + "|---|", sep="\n")
    for name, scenario in [("as given", Scenario(**given))] if given else TABLE:
        print(line(name, scenario, simulate(scenario, seed)))


if __name__ == "__main__":
    main()
