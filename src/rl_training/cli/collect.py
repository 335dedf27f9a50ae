"""`rl-training collect`: parsing and printing only."""

import json
import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.options import (
    DebugOption,
    EnvKwargsOption,
    EnvOption,
    ImportOption,
    JsonOption,
    MemberOption,
    full_path,
    mean_text,
    numbers,
    parse_env_kwargs,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_training.api.collecting import Collection


def collect(
    sources: Annotated[
        list[str],
        typer.Argument(help="random, scripted, a run directory or a checkpoint; several are mixed.", metavar="SOURCE..."),
    ],
    rows: Annotated[int, typer.Option(help="Transitions to collect.")],
    out: Annotated[str, typer.Option(help="Output: a new directory, or a name that ends in .npz.")],
    env: EnvOption = None,
    env_kwargs: EnvKwargsOption = None,
    imports: ImportOption = None,
    noise: Annotated[
        float, typer.Option(help="Gaussian noise on the actions of policies and scripts, in units of half the action range.")
    ] = 0.0,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Policies sample instead of taking the mean action.")
    ] = False,
    shares: Annotated[
        str | None, typer.Option(help="Share of the rows of each source, such as 0.5,0.3,0.2; by default equal.")
    ] = None,
    member: MemberOption = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Of run directories: latest (the default), best, or a step.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the episodes and of the noise.")] = 0,
    envs: Annotated[int, typer.Option(help="Episodes side by side, 1 to 32; the result does not depend on it.")] = 16,
    workers: Annotated[
        str, typer.Option(help="Processes that step the environments: auto, or a number; 0 is none.")
    ] = "auto",
    device: Annotated[str, typer.Option(help="Where policies act: cpu, cuda or cuda:N.")] = "cpu",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing dataset.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Collect data in an environment: from the policies of runs, a scripted controller or random actions."""
    del debug
    from rl_training.api.collecting import collect_dataset
    from rl_training.runtime.signals import interrupted_by_stop_signals

    started = time.monotonic()
    options: dict[str, Any] = {"env_id": env, "env_kwargs": parse_env_kwargs(env_kwargs), "member": member}
    options["which"] = checkpoint or "latest"
    options |= {"noise": noise, "stochastic": stochastic, "seed": seed, "envs": envs, "device": device}
    options["workers"] = int(workers) if workers.isdecimal() else workers
    options["shares"] = None if shares is None else numbers(shares, "shares")
    progress = (lambda _: None) if as_json else _progress(rows)
    with interrupted_by_stop_signals(f"nothing was written to {out}"):
        done = collect_dataset(sources, out, rows, overwrite=overwrite, progress=progress, **options)
    report, seconds = done.report(), time.monotonic() - started
    if as_json:
        print(json.dumps(report))
        return
    _print_report(report, seconds)
    print(f"next: {_training_command(done, imports)}")


def _print_report(report: dict[str, Any], seconds: float) -> None:
    what = f"{report['rows']:,} transitions of {report['env_id']} in {report['episodes']:,} episodes"
    print(f"{full_path(report['path'])}: {what}, {report['rows'] / seconds:,.0f} rows/s")
    print(_return_text(report))
    if len(report["sources"]) > 1:
        for one in report["sources"]:
            print(f"  {one['source']}: {one['rows']:,} rows in {one['episodes']:,} episodes, {_return_text(one)}")


def _return_text(report: dict[str, Any]) -> str:
    """The mean return of whole episodes: a cut one would count as a bad one, or a good one where rewards are costs."""
    from rl_training.data.reading.notes import Count

    if not (count := report["whole_episodes"]):
        return "no whole episode, so no return"
    return f"return {mean_text(report, count)} over {Count(count, 'whole episode', 'whole episodes')}"


def _training_command(done: "Collection", imports: list[str] | None) -> str:
    """The command that trains on what was collected, in the same environment."""
    words = ["rl-training", "train", "iql", "--dataset", str(done.path), "--env", done.env.env_id]
    if done.env.kwargs:
        words += ["--env-kwargs", json.dumps(dict(done.env.kwargs))]
    for module in imports or done.env.imports:
        words += ["--import", module]
    return shlex.join(words)


def _progress(rows: int) -> "Callable[[int], None]":
    """A function that prints rows and rows/s on standard error: every second in one line on a terminal, else every ten."""
    terminal = sys.stderr.isatty()
    begin, end = ("\r", "") if terminal else ("", "\n")
    started = shown = time.monotonic()

    def show(done: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= (1.0 if terminal else 10.0):
            shown = now
            line = f"{begin}{done:,} of {rows:,} rows, {done / (now - started):,.0f} rows/s"
            print(line, end=end, file=sys.stderr, flush=True)
        if terminal and done == rows and shown > started:
            print(file=sys.stderr)

    return show
