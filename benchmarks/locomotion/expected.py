"""Record the results of `benchmarks.locomotion.offline` as what the packaged configs should reach.

python -m benchmarks.locomotion.expected

Each result becomes that of its set in `<algo>/d4rl-locomotion.expected.json`, with which `rl-training reproduce
<algo>/d4rl-locomotion --dataset data/hopper-medium` compares new seeds. Device and precision are left to whoever does so.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.locomotion.behaviour import TASKS
from benchmarks.locomotion.data import split
from benchmarks.locomotion.jobs import RESULTS
from benchmarks.locomotion.table import references
from rl_training.analysis.reproduction import Verdict, new_seeds
from rl_training.api.reproducing import expectation_of
from rl_training.config.expectation import Expectation, write_expectation


def record(result: dict[str, Any]) -> Path:
    """Keep one result beside its config; return the file."""
    name, steps = f"{result['algo']}/d4rl-locomotion", result["steps"]
    budget = [f"total_timesteps={steps}", f"eval_interval={steps // 5}", f"checkpoint_interval={steps}"]
    expectation = expectation_of(
        name,
        [float("-inf") if value is None else value for value in result["returns"]],
        settings=[f"env_id={TASKS[split(result['set'])[0]]}", *budget, *result["per_set"]],
        episodes=result["episodes"],
        episode_seed=None,  # the last evaluation of training: every seed has episodes of its own
        seeds=result["seeds"],
        step=steps,
        minutes=float(f"{result['seconds'] / 60:.2g}"),
        device=result["execution"]["cuda"] or "cpu",
        versions=result["versions"],
        dataset=result["fingerprint"],
        command=result["command"],
    )
    return write_expectation(
        name, result["set"], expectation.model_copy(update={"weak": _weakness(expectation, result["set"])})
    )


def _weakness(known: Expectation, name: str) -> str | None:
    """Why passing proves little where random actions would pass: what was measured is hardly above them."""
    chance = references()[split(name)[0]][0]
    seeds = new_seeds(known.seeds)
    if not Verdict(known, tuple(seeds), (chance,) * len(seeds)).passed:
        return None
    return f"random actions, which return {chance:.1f} here, would pass too"


def main() -> None:
    """Record every result."""
    files = sorted((RESULTS / "offline").glob("*.json"))
    for path in sorted({record(json.loads(file.read_text())) for file in files}):
        print(path)


if __name__ == "__main__":
    main()
