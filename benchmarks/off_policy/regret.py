"""What `rl-training select` loses by its choice, with ten real episodes: many replays from the recorded returns.

python -m benchmarks.off_policy.regret pendulum

In each replay ten results come in, one after the other, each of the policy that the selection wants next and drawn from
that policy's recorded episodes; then the first candidate is taken. The regret is how much less that policy earns than the
best, as a share of the range between the best and the worst. Beside it: the highest joint value without any episode, the
highest of ten episodes of policies that are tried in a random order without estimates, and a random choice.
"""

from typing import Any

import numpy as np

from benchmarks.off_policy.tasks import arguments, read, write

BUDGET, REPLAYS = 10, 200


def replay(report: dict[str, Any], episodes: dict[str, list[float]], draw: np.random.Generator) -> tuple[str, str, bool]:
    """Return the policy that the estimates alone choose, the one that is chosen after ten results, and if that was sure."""
    from rl_training.api.selecting import choose  # noqa: PLC0415

    results: dict[str, list[float]] = {}
    found = choose(report, results, BUDGET)
    before = found.chosen.name
    for left in range(BUDGET, 0, -1):
        name = found.plan[0]
        results.setdefault(name, []).append(float(draw.choice(episodes[name])))
        found = choose(report, results, max(1, left - 1))
    return before, found.chosen.name, found.sure


def without_estimates(episodes: dict[str, list[float]], draw: np.random.Generator) -> str:
    """Return the policy with the best of ten results, each of another policy."""
    tried = draw.permutation(list(episodes))[:BUDGET]
    return str(max(tried, key=lambda name: float(draw.choice(episodes[name]))))


def regrets(report: dict[str, Any], truth: dict[str, Any]) -> dict[str, Any]:
    """Return the regrets of all replays, and of what is beside them."""
    draw = np.random.default_rng(0)
    means = {name: one["return"] for name, one in truth["policies"].items()}
    episodes = {name: one["returns"] for name, one in truth["policies"].items()}
    best, span = max(means.values()), max(means.values()) - min(means.values())
    lost = {name: (best - mean) / span for name, mean in means.items()}
    replays = [replay(report, episodes, draw) for _ in range(REPLAYS)]
    each = np.array([lost[name] for _, name, _ in replays])
    sure = np.array([one for _, _, one in replays])
    known = {one["name"]: one["value"] for one in report["policies"] if one["value"] is not None}
    plain = [lost[without_estimates(episodes, draw)] for _ in range(10 * REPLAYS)]
    names, counts = np.unique([name for _, name, _ in replays], return_counts=True)
    return {
        "budget": BUDGET,
        "replays": REPLAYS,
        "mean": float(each.mean()),
        "largest": float(each.max()),
        "share within 5 %": float((each <= 0.05).mean()),
        "chosen": dict(zip(names.tolist(), counts.tolist(), strict=True)),
        "sure": int(sure.sum()),
        "sure and not best": int((sure & (each > 0)).sum()),
        "before any episode": lost[replays[0][0]],
        "highest joint value": lost[max(known, key=lambda name: known[name])],
        "ten episodes without estimates": float(np.mean(plain)),
        "random choice": float(np.mean(list(lost.values()))),
    }


def main() -> None:
    """Replay where there is no result yet; print all."""
    given = arguments(__doc__, runs=False).parse_args()
    for task in given.tasks:
        if given.again or read("regret", task) is None:
            write("regret", task, regrets(read("estimates", task)["report"], read("truth", task)))
        print(f"== {task}: {read('regret', task)}")


if __name__ == "__main__":
    main()
