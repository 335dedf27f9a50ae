"""`rl-training reproduce`: parsing and printing only."""

import json
import shlex
import sys
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.options import DebugOption, DeviceOption, ImportOption, JsonOption
from rl_training.errors import NotReproducedError
from rl_training.output import return_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_training.analysis.reproduction import Verdict
    from rl_training.api.reproducing import Replication


def reproduce(
    config: Annotated[
        str, typer.Argument(help="A packaged config such as iql/pendulum, or a YAML file with an .expected.json beside it.")
    ],
    seeds: Annotated[
        str | None, typer.Option(help="5..9 or 5,6,7; by default five that were not recorded, since those would only repeat.")
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
        str | None, typer.Option(help="The recorded result to compare with, if its name is not that of the dataset's file.")
    ] = None,
    imports: ImportOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Train a config with new seeds and test whether they are worse than its recorded ones: PASS, or FAIL (exit code 8)."""
    del debug
    from rl_training.api.reproducing import plan_replication
    from rl_training.cli.training import parse_seeds
    from rl_training.runtime.progress import QuietReporter, default_reporter

    replication = plan_replication(
        config,
        dataset=dataset or (),
        env=env,
        expect=expect,
        seeds=None if seeds is None else parse_seeds(seeds),
        device=device,
        imports=imports or (),
        run_dir=run_dir,
        overwrite=overwrite,
    )
    if not as_json:
        _announce(replication)
    options = {"dataset": dataset, "env": env, "expect": expect, "seeds": seeds, "import": imports, "device": device}
    again = _command(config, {**options, "run-dir": run_dir}, as_json=as_json)
    verdict = replication.judge(QuietReporter() if as_json else default_reporter(), go_on=again)
    remarks = [*verdict.remarks(), *replication.remarks()]
    if as_json:
        known: dict[str, Any] = {"name": config, "result": replication.case, "run_dir": str(replication.run_dir)}
        known |= {"trained": replication.finished is None}
        known |= {"metric": "return_mean", "episodes": replication.expectation.episodes}
        print(json.dumps({**known, **verdict.record(), "remarks": remarks}))
    else:
        _print_verdict(replication, verdict, remarks)
    if not verdict.passed:
        raise NotReproducedError(f"{config} was not reproduced; the run is {replication.run_dir}")


def _command(config: str, options: "Mapping[str, str | list[str] | None]", *, as_json: bool) -> str:
    """The command that continues and judges what was interrupted; without --overwrite, which would start again."""
    words = ["rl-training", "reproduce", config]
    for name, given in options.items():
        for value in [given] if isinstance(given, str) else given or ():
            words += [f"--{name}", value]
    return shlex.join([*words, *(["--json"] if as_json else [])])


def _announce(replication: "Replication") -> None:
    """Say what is trained where, and how long that took when it was recorded; or that it is trained already."""
    known, seeds = replication.expectation, replication.config.member_seeds
    took = f"{known.minutes:.0f} minutes" if known.minutes >= 1.5 else "a minute"
    time = f"its {len(known.seeds)} recorded seeds took about {took} on {known.device}"
    if replication.finished is not None:
        time = "they are trained already"
    print(f"{replication.name}: seeds {_span(seeds)} in {replication.run_dir}; {time}", file=sys.stderr)


def _print_verdict(replication: "Replication", verdict: "Verdict", remarks: "Sequence[str]") -> None:
    from rl_training.analysis.reproduction import LEVEL, TOLERANCE

    known = verdict.expectation
    bounds = f" [{return_text(known.interval[0])}, {return_text(known.interval[1])}]" if known.interval else ""
    print(f"{replication.name} on {replication.case}: return of the last checkpoint, {known.episodes} episodes per seed")
    print(f"recorded: IQM {_shown(known.iqm)}{bounds} of {len(known.seeds)} seeds, {_span(known.seeds)}")
    each = ", ".join(_shown(score) for score in verdict.scores)
    print(f"found:    IQM {_shown(verdict.iqm)} of {len(verdict.seeds)} seeds, {_span(verdict.seeds)}: {each}")
    loss = f"{100 * TOLERANCE:g} % of the recorded IQM ({verdict.tolerated:.2g})"
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
