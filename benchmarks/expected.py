"""Record what configs should reach: `python -m benchmarks.expected NAME... [--seeds 100..107] [--run-dir DIR]`.

Trains the seeds of each config as one population, scores the last checkpoint, and writes `<name>.expected.json` beside the
YAML file, which `rl-training reproduce` and `rl-training list NAME` read. `pendulum` stands for every packaged config of that
task. Runs are below DIR; a finished one is scored without training it again, and an interrupted one continues. The result of
a config that leaves its data open has the name of the file: `--dataset hopper-medium.h5 --set env_id=Hopper-v5`. An
environment of one's own needs `--import MODULE`, here and in `reproduce`.
"""

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rl_training.api.reproducing import EPISODES, measure, recipe_config, result_name, run_name
from rl_training.cli.main import exit_code_of
from rl_training.cli.training import parse_seeds
from rl_training.config.expectation import Expectation, expectation_path, read_expectations
from rl_training.config.loading import packaged_configs
from rl_training.envs.imports import import_flags, import_requested
from rl_training.output import return_text
from rl_training.runtime.progress import default_reporter


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what configs should reach.")
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--seeds", default="100..107")
    parser.add_argument("--run-dir", type=Path, default=Path("runs/expected"))
    parser.add_argument("--missing", action="store_true", help="leave out configs of which this result is recorded")
    parser.add_argument("--dataset", action="append", default=[], help="the data of a config that leaves it open")
    parser.add_argument("--set", action="append", default=[], dest="settings", help="key=value; `reproduce` sets it too")
    parser.add_argument("--import", action="append", default=[], dest="imports", help="module that registers the environment")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    for module in given.imports:
        import_requested(module)
    seeds = parse_seeds(given.seeds)
    for name in wanted(given.names):
        config = recipe_config(name, given.settings, seeds, dataset=given.dataset, imports=given.imports)
        case, known = result_name(config, given.dataset), read_expectations(name)
        if given.missing and known is not None and case in known.results:
            continue
        found = measure(
            name,
            seeds=seeds,
            settings=given.settings,
            dataset=given.dataset,
            episodes=given.episodes,
            device=given.device,
            imports=given.imports,
            run_dir=given.run_dir / run_name(name) / (case if given.dataset else ""),
            replace=True,
            reporter=default_reporter(),
            command=command_line(name, given.seeds, given.dataset, given.settings) + import_flags(given.imports),
        )
        print(f"{expectation_path(name)}: {summary(found)}", flush=True)


def wanted(names: Sequence[str]) -> Iterator[str]:
    """Yield the configs that the names stand for."""
    for name in names:
        if name == "pendulum":
            yield from (config for config in packaged_configs() if "/pendulum" in config)
        else:
            yield name


def command_line(name: str, seeds: str, dataset: Sequence[str], settings: Sequence[str]) -> str:
    """Return the command that measures this again; data are named by their file, wherever that is."""
    words = ["python", "-m", "benchmarks.expected", name, "--seeds", seeds]
    words += [word for path in dataset for word in ("--dataset", Path(path).name)]
    return shlex.join([*words, *(word for setting in settings for word in ("--set", setting))])


def summary(found: Expectation) -> str:
    """Return the result in a few words."""
    scores = ", ".join("diverged" if score is None else return_text(score) for score in found.scores)
    return f"IQM {return_text(found.iqm)} of {scores}"


if __name__ == "__main__":
    sys.exit(exit_code_of(main, sys.argv[1:]))
