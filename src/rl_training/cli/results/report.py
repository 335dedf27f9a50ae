"""`rl-training report`: parsing and printing only."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rl_training.cli.options import DebugOption, ImportOption, full_path, local_runs
from rl_training.output import printable


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run directories or folders of them, finished or under way.", metavar="RUN...", callback=local_runs
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            help="The file to write: .html, .md, .csv or .png. By default report.html or .png; md and csv are printed."
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--format", help="html, md, csv or png; by default as the name of --out ends, or html.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading; by default the names of the runs.")] = None,
    members: Annotated[
        bool | None,
        typer.Option("--members/--no-members", help="Draw the curve of every member at first; by default those of few."),
    ] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Do not run the policies to show them at work.")] = False,
    live: Annotated[
        bool,
        typer.Option("--live", help="Write the page again whenever the runs have news, until they have ended or Ctrl-C."),
    ] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks at the runs, with --live.")] = 5.0,
    imports: ImportOption = None,
    debug: DebugOption = False,
) -> None:
    """Show runs on one page: learning curves, members, losses, settings, time; the page opens from disk, without network."""
    del imports, debug
    from rl_training.api.reporting import keep_report_fresh, load_runs, make_report, write_report
    from rl_training.report.target import format_of
    from rl_training.runtime.signals import interrupted_by_stop_signals

    chosen = format_of(out, kind)
    if not live and out is None and chosen in ("md", "csv"):
        loaded = load_runs(runs)
        sys.stdout.write(make_report(loaded, chosen, title=title, left_out=loaded.left_out).decode())
        return
    target = Path(out or f"report.{chosen}").absolute()
    if live:
        with interrupted_by_stop_signals(f"{target} was left as it was"):
            code = keep_report_fresh(
                runs,
                target,
                kind=chosen,
                title=title,
                members=members,
                picture=not no_picture,
                interval=interval,
                told=lambda text: print(printable(text), flush=True),
            )
        raise typer.Exit(code)
    found = load_runs(runs)
    path = write_report(runs, target, kind=chosen, title=title, members=members, picture=not no_picture, loaded=found)
    print(f"{full_path(path)}: {len(found)} run{'s' if len(found) > 1 else ''}, {path.stat().st_size / 1e3:,.0f} kB")
