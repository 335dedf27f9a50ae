"""`python -m benchmarks.choosing`: what `rl-training select` loses by its choice, and how often a sure choice is right.

Twelve policies with true returns from 0 to 1, estimates whose rank correlation with them is 0.5, 0.8 or 0.95 on average, and
ten episodes, one after another, with a noise of 5 to 30 % of the range. The logged returns are spread one to 32 times as far
as the noise of an episode, as where many controllers were logged, which is all the rule knows of it, and the estimates have a
common error that it does not know.
The rule was chosen on `even`, `clear`, `cluster` and `groups`, from which chance a choice is sure on `cluster`, `groups` and
`normal`, partly with these seeds; `tail` had no part in either, and `--first-seed 1000` gives cases that had none.

The first table is the mean regret in percent of the range. The second is about sure choices: after every one of up to 30
episodes one looks, and stops at the first choice that is called sure.
"""

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Final

import numpy as np

from rl_training.ope.choosing import FEWEST_RESULTS, SURE, Evidence, Numbers, believe, next_policy

POLICIES, BUDGET, LOOKS = 12, 10, 30
CORRELATIONS, NOISES = (0.5, 0.8, 0.95), (0.05, 0.15, 0.3)
Shape = Callable[[np.random.Generator], Numbers]
SHAPES: Final[dict[str, Shape]] = {
    "even": lambda _: np.linspace(0.0, 1.0, POLICIES),
    "cluster": lambda random: np.append(random.uniform(0.9, 1.0, 4), random.uniform(0.0, 0.8, POLICIES - 4)),
    "groups": lambda random: np.append(random.uniform(0.85, 1.0, 6), random.uniform(0.0, 0.15, POLICIES - 6)),
    "clear": lambda random: np.append(1.0, random.uniform(0.0, 0.7, POLICIES - 1)),
    "normal": lambda random: random.normal(size=POLICIES),
    "tail": lambda random: -random.exponential(size=POLICIES),
}


@dataclass(frozen=True, eq=False)
class World:
    """Policies with their true returns, the estimates of them, and the results of their episodes."""

    truth: Numbers
    evidence: Evidence
    episodes: Numbers  # (policies, LOOKS)

    def regret(self, chosen: int) -> float:
        """Return what a choice loses."""
        return float(self.truth.max() - self.truth[chosen])


def world(shape: str, correlation: float, noise: float, claimed: float, seed: int) -> World:
    """Return one case, the same for every rule; `claimed` is what the estimates say of their error, as a share of it."""
    random = np.random.Generator(np.random.Philox(seed))
    truth, error = _truth(shape, random), _error(shape, correlation)
    values = truth + error * random.normal(size=POLICIES) + 0.3 * random.normal()
    evidence = Evidence(values, np.full(POLICIES, claimed * error), noise * 2.0 ** random.uniform(0.0, 5.0))
    return World(truth, evidence, truth[:, None] + noise * random.normal(size=(POLICIES, LOOKS)))


def _truth(shape: str, random: np.random.Generator) -> Numbers:
    values = SHAPES[shape](random)
    return random.permutation((values - values.min()) / (values.max() - values.min()))


@cache
def _error(shape: str, correlation: float) -> float:
    """The error of the estimates that gives a rank correlation, by bisection."""
    random = np.random.Generator(np.random.Philox(1))
    cases = [(_truth(shape, random), random.normal(size=POLICIES)) for _ in range(400)]
    low, high = 1e-3, 5.0
    for _ in range(14):
        middle = (low * high) ** 0.5
        found = np.mean([_rank_correlation(truth, truth + middle * error) for truth, error in cases])
        low, high = (middle, high) if found > correlation else (low, middle)
    return float(middle)


def _rank_correlation(first: Numbers, second: Numbers) -> float:
    return float(np.corrcoef(first.argsort().argsort(), second.argsort().argsort())[0, 1])


def by_estimate(case: World) -> int:
    """The highest estimate, without any episode."""
    return int(case.evidence.values.argmax())


def uniform(case: World) -> int:
    """One episode of each of the ten best by estimate, and the best result."""
    tried = np.argsort(-case.evidence.values)[:BUDGET]
    return int(tried[case.episodes[tried, 0].argmax()])


def halving(case: World) -> int:
    """Successive halving in the order of the estimates: five with one episode, two with two more, one with the last."""
    alive = np.argsort(-case.evidence.values)[:5]
    alive = alive[np.argsort(-case.episodes[alive, 0])[:2]]
    return int(alive[case.episodes[alive, :3].mean(axis=1).argmax()])


def select(case: World) -> int:
    """The rule of `rl-training select`."""
    results: list[list[float]] = [[] for _ in case.truth]
    for _ in range(BUDGET):
        _try_next(case, results)
    return int(believe(case.evidence, results).mean.argmax())


def _try_next(case: World, results: list[list[float]]) -> None:
    belief = believe(case.evidence, results)
    chosen = int(next_policy(belief.mean, belief.covariance, belief.noise))
    results[chosen].append(float(case.episodes[chosen, len(results[chosen])]))


RULES = {"estimate alone": by_estimate, "uniform": uniform, "halving": halving, "select": select}


def first_sure(case: World, sure: float) -> bool | None:
    """Whether the first choice with such a chance to be the best is right; None if there is none within LOOKS episodes."""
    results: list[list[float]] = [[] for _ in case.truth]
    for _ in range(LOOKS):
        _try_next(case, results)
        belief = believe(case.evidence, results)
        chosen = int(belief.mean.argmax())
        if len(results[chosen]) >= FEWEST_RESULTS and (belief.draws().argmax(axis=1) == chosen).mean() >= sure:
            return case.regret(chosen) == 0.0
    return None


def measure(
    shape: str, correlation: float, noise: float, claimed: float, sure: float, seeds: range
) -> tuple[dict[str, float], list[bool | None]]:
    """Return the mean regret of every rule in percent of the range, and what the first sure choices were."""
    found = [world(shape, correlation, noise, claimed, seed) for seed in seeds]
    regrets = {name: 100 * float(np.mean([case.regret(rule(case)) for case in found])) for name, rule in RULES.items()}
    return regrets, [first_sure(case, sure) for case in found[: len(seeds) // 4]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200, help="of each cell; a quarter of them for sure choices")
    parser.add_argument(
        "--claimed", type=float, default=1.0, help="errors that the estimates claim, in units of the true ones"
    )
    parser.add_argument("--sure", type=float, default=SURE, help="chance to be the best from which a choice is sure")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    shapes = options.shapes.split(",")
    cells = list(product(shapes, CORRELATIONS, NOISES))
    seeds = range(options.first_seed, options.first_seed + options.cases)
    fixed = ([value] * len(cells) for value in (options.claimed, options.sure, seeds))
    with ProcessPoolExecutor(options.processes) as pool:
        found = dict(zip(cells, pool.map(measure, *zip(*cells, strict=True), *fixed), strict=True))
    print("| shape | correlation | noise | " + " | ".join(RULES) + " |\n" + "|---" * (3 + len(RULES)) + "|")
    for (shape, correlation, noise), (regrets, _) in found.items():
        print(f"| {shape} | {correlation:g} | {noise:.0%} | " + " | ".join(f"{r:.1f}" for r in regrets.values()) + " |")
    for correlation in CORRELATIONS:
        means = {name: np.mean([r[name] for (_, c, _), (r, _) in found.items() if c == correlation]) for name in RULES}
        print(f"| all | {correlation:g} | all | " + " | ".join(f"{mean:.1f}" for mean in means.values()) + " |")
    print("\n| shape | looked at | sure | right |\n|---|---|---|---|")
    for name, members in {**{shape: [shape] for shape in shapes}, "all": shapes}.items():
        said = [one for (shape, _, _), (_, sure) in found.items() if shape in members for one in sure]
        print(f"| {name} | {len(said)} | {sum(one is not None for one in said)} | {sum(one is True for one in said)} |")


if __name__ == "__main__":
    main()
