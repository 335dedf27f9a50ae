"""`rl-training reproduce`: parsing and printing only."""

import json
import shlex
import sys
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.options import DebugOption, DeviceOption, ImportOption, JsonOption
from rl_training.errors import ConfigError, NotReproducedError
from rl_training.output import duration, return_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_training.analysis.reproduction import Verdict
    from rl_training.api.reproducing import Replication
    from rl_training.runtime.progress import Reporter


def reproduce(
    config: Annotated[
        str, typer.Argument(help="A packaged config such as iql/pendulum, or a YAML file with an .expected.json beside it.")
    ],
    seeds: Annotated[
        str | None,
        typer.Option(
            help="5..9 or 5,6,7; by default five that were not recorded, since those would only repeat; to record, 0..7."
        ),
    ] = None,
    run_dir: Annotated[
        str | None, typer.Option(help="Directory of the run, continued if it was interrupted; runs/reproduce/... by default.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Train again in a used run directory.")] = False,
    dataset: Annotated[
        list[str] | None, typer.Option(help="The data of a config that leaves it open, such as iql/d4rl-locomotion.")
    ] = None,
    env: Annotated[str | None, typer.Option("--env", help="The environment of a config that leaves it open.")] = None,
    expect: Annotated[
        str | None, typer.Option(help="The name of the recorded result, if it is not that of the dataset's file.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Measure what a YAML file of yours reaches, and keep it beside the file.")
    ] = False,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="With --record: episodes of each seed, the same for all. [default: 50]")
    ] = None,
    imports: ImportOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Train a config with new seeds and test whether they are worse than its recorded ones: PASS, or FAIL (exit code 8).

    --record writes down first what a YAML file of yours reaches.
    """
    del debug
    from rl_training.cli.training import parse_seeds
    from rl_training.runtime.progress import QuietReporter, default_reporter

    options: dict[str, str | list[str] | None] = {
        "dataset": dataset,
        "env": env,
        "expect": expect,
        "seeds": seeds,
        "import": imports,
        "device": device,
    }
    if record:
        options |= {"episodes": None if episodes is None else str(episodes)}
    elif episodes is not None:
        raise ConfigError("--episodes: is recorded with what is compared; leave it out, or measure anew with --record")
    command = _Command(config, record, options, run_dir, as_json)
    where: dict[str, Any] = {"dataset": dataset or (), "env": env, "imports": imports or (), "device": device}
    where |= {"run_dir": run_dir, "overwrite": overwrite}
    chosen = None if seeds is None else parse_seeds(seeds)
    reporter = QuietReporter() if as_json else default_reporter()
    if record:
        _record(config, command, reporter, seeds=chosen, episodes=episodes, case=expect, **where)
    else:
        _replicate(config, command, reporter, seeds=chosen, expect=expect, **where)


@dataclass(frozen=True)
class _Command:
    """The command line as it was given, but for --overwrite, with which nothing would go on."""

    config: str
    record: bool
    options: "Mapping[str, str | list[str] | None]"
    run_dir: str | None
    as_json: bool

    def text(self, *, bare: bool = False) -> str:
        """The command that goes on with what was interrupted; a bare one, which is kept, has names of files for paths."""
        words = [
            "rl-training",
            "reproduce",
            Path(self.config).name if bare else self.config,
            *(["--record"] if self.record else []),
        ]
        for name, given in self.options.items():
            for value in [given] if isinstance(given, str) else given or ():
                words += [f"--{name}", Path(value).name if bare and name in ("dataset", "import") else value]
        if not bare:
            words += [*(["--run-dir", self.run_dir] if self.run_dir else []), *(["--json"] if self.as_json else [])]
        return shlex.join(words)


def _record(config: str, command: _Command, reporter: "Reporter", **given: Any) -> None:
    """Measure what a config reaches, and say where that is kept."""
    from rl_training.api.reproducing import measure
    from rl_training.config.expectation import expectation_path
    from rl_training.config.loading import packaged_configs
    from rl_training.data.reading.notes import Count

    if config in packaged_configs():
        own = f"`rl-training list {config} > own.yaml` makes it a file of yours"
        raise ConfigError(f"{config}: is packaged, with a record of its own; {own}")
    again, kept = command.text(), command.text(bare=True)
    found = measure(config, reporter=reporter, replace=given["overwrite"], go_on=again, command=kept, **given)
    beside = expectation_path(config)
    if command.as_json:
        print(json.dumps({"name": config, "file": str(beside), **found.model_dump(mode="json")}))
        return
    bounds = f" [{return_text(found.interval[0])}, {return_text(found.interval[1])}]" if found.interval else ""
    each, episodes = ", ".join(map(_shown, found.scores)), Count(found.episodes, "episode", "episodes")
    print(f"{beside}: IQM {_shown(found.iqm)}{bounds} of seeds {_span(found.seeds)}, {episodes} each: {each}")
    check = _Command(config, False, {**command.options, "seeds": None, "episodes": None}, None, False)
    print(f"check it with other seeds: {check.text()}")


def _replicate(config: str, command: _Command, reporter: "Reporter", **given: Any) -> None:
    """Train new seeds, compare them with the recorded ones and print the verdict; a NotReproducedError if they are worse."""
    from rl_training.api.reproducing import plan_replication

    replication = plan_replication(config, **given)
    if not command.as_json:
        _announce(replication)
    verdict = replication.judge(reporter, go_on=command.text())
    remarks = [*verdict.remarks(), *replication.remarks()]
    if command.as_json:
        known: dict[str, Any] = {"name": config, "result": replication.case, "run_dir": str(replication.run_dir)}
        known |= {"trained": replication.finished is None}
        known |= {"metric": "return_mean", "episodes": replication.expectation.episodes}
        print(json.dumps({**known, **verdict.record(), "remarks": remarks}))
    else:
        _print_verdict(replication, verdict, remarks)
    if not verdict.passed:
        raise NotReproducedError(f"{config} was not reproduced; the run is {replication.run_dir}")


def _announce(replication: "Replication") -> None:
    """Say what is trained where, and how long that took when it was recorded; or that it is trained already."""
    known, seeds = replication.expectation, replication.config.member_seeds
    time = f"its {len(known.seeds)} recorded seeds took about {duration(60.0 * known.minutes)} on {known.device}"
    if replication.finished is not None:
        time = "they are trained already"
    print(f"{replication.name}: seeds {_span(seeds)} in {replication.run_dir}; {time}", file=sys.stderr)


def _print_verdict(replication: "Replication", verdict: "Verdict", remarks: "Sequence[str]") -> None:
    from rl_training.analysis.reproduction import LEVEL, TOLERANCE
    from rl_training.data.reading.notes import Count

    known = verdict.expectation
    bounds = f" [{return_text(known.interval[0])}, {return_text(known.interval[1])}]" if known.interval else ""
    episodes = Count(known.episodes, "episode", "episodes")
    print(f"{replication.name} on {replication.case}: return of the last checkpoint, {episodes} per seed")
    print(f"recorded: IQM {_shown(known.iqm)}{bounds} of {len(known.seeds)} seeds, {_span(known.seeds)}")
    each = ", ".join(_shown(score) for score in verdict.scores)
    print(f"found:    IQM {_shown(verdict.iqm)} of {len(verdict.seeds)} seeds, {_span(verdict.seeds)}: {each}")
    loss = f"{100 * TOLERANCE:g} % of the recorded IQM ({return_text(verdict.tolerated)})"
    test = "exact rank test" if verdict.exact else "rank test by the normal distribution"
    print(f"p = {verdict.p:.2g}: how likely ranks this low are, if no more than {loss} is lost ({test})")
    for remark in remarks:
        print(f"remark: {remark}")
    if not verdict.passed:
        print(f"FAIL: the new seeds are worse than the recorded ones by more than that, beyond chance (p <= {LEVEL:g})")
        return
    print(f"PASS: the new seeds are not worse than the recorded ones by more than that, beyond chance (p > {LEVEL:g})")
    if verdict.largest_loss > 0:
        print(f"this does not prove them equal: {_excluded(verdict.largest_loss)}")


def _excluded(loss: float) -> str:
    """What the test says of a loss, with the confidence of its level."""
    if not isfinite(loss):
        return "so few seeds exclude no loss"
    return f"a loss of {return_text(loss)} or more is excluded with 99 % confidence, a smaller one is not"


def _shown(score: float | None) -> str:
    return return_text(score) if score is not None and isfinite(score) else "diverged"


def _span(seeds: "Sequence[int]") -> str:
    """`5..9` for consecutive seeds, as --seeds takes them."""
    first, last = seeds[0], seeds[-1]
    return f"{first}..{last}" if list(seeds) == list(range(first, last + 1)) else ",".join(map(str, seeds))
