"""`rl-training data`: inspect, doctor, convert, mix, split, filter, transform."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.options import (
    DebugOption,
    ImportOption,
    JsonOption,
    ReadChoice,
    block_marks,
    data_app,
    full_path,
    with_read_options,
)
from rl_training.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from rl_training.data.offline_dataset import TransitionDataset
    from rl_training.data.row_view import RowView
    from rl_training.doctor.findings import Finding

PathArgument = Annotated[
    str, typer.Argument(help="A file, a folder of episode files, a glob in quotes, or minari:ID.", metavar="PATH")
]
OutArgument = Annotated[
    str | None, typer.Argument(help="Output: a new directory, or a name that ends in .npz.", metavar="OUT")
]
OutOption = Annotated[str | None, typer.Option("--out", help="The same as OUT.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace an existing dataset.")]
EnvOption = Annotated[str | None, typer.Option("--env", help="Gymnasium environment that the data should match.")]
SeedOption = Annotated[int, typer.Option(help="Seed that selects the episodes.", min=0)]


@data_app.command()
@with_read_options
def inspect(
    path: PathArgument,
    reading: ReadChoice,
    env: EnvOption = None,
    imports: ImportOption = None,
    html: Annotated[str | None, typer.Option(help="Also write an HTML page with charts to this file.")] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show what is in a dataset: rows, episodes, returns, coverage, ends; with --html also as a page."""
    del imports, debug
    from rl_training.data.dataset_loaders import read_dataset
    from rl_training.doctor.doctor import examine
    from rl_training.doctor.inspection import summarize_dataset
    from rl_training.doctor.page import report_page
    from rl_training.doctor.traces import episode_traces
    from rl_training.storage import replace_file

    read = read_dataset(path, reading.format, reading.options)
    findings = examine(read, env)
    if any(finding.code in ("not-finite", "malformed") for finding in findings):
        _show_findings(path, read.origin, findings, as_json)
        raise DatasetError(f"{path}: cannot be summarized until it is fixed")
    dataset = read.dataset()
    summary = summarize_dataset(dataset)
    target = None if html is None else Path(html)
    if target is not None:
        name = Path(path.removeprefix("minari:")).resolve().name
        _prepare_page(target)
        page = report_page(name, read.origin, summary, findings, episode_traces(dataset, findings))
        replace_file(target, page.encode())
    if as_json:
        written = str(target) if target else None
        found = [finding.to_json() for finding in findings]
        print(json.dumps({"path": path, "origin": read.origin, **summary, "findings": found, "html": written}))
        return
    print(read.origin)
    _print_summary(summary)
    _print_findings(findings)
    if target:
        print(f"page: {full_path(target)}")


@data_app.command()
@with_read_options
def doctor(
    path: PathArgument,
    reading: ReadChoice,
    env: EnvOption = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Report what is wrong with a dataset, with evidence and the fix; exit code 3 on an error."""
    del imports, debug
    from rl_training.data.dataset_loaders import read_dataset
    from rl_training.doctor.doctor import examine

    read = read_dataset(path, reading.format, reading.options)
    findings = examine(read, env)
    _show_findings(path, read.origin, findings, as_json)
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(3)


@data_app.command()
@with_read_options
def convert(
    paths: Annotated[list[str], typer.Argument(help="One or more sources, then OUT.", metavar="PATH... OUT")],
    reading: ReadChoice,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write data of any format as a hashed directory that is mapped into memory; several sources are concatenated."""
    del debug
    from rl_training.data.store.directory import DatasetWriter

    sources, out = _sources(paths, out, 1, "data convert PATH... OUT")
    if len(sources) == 1:
        _save(_load(sources[0], reading), out, overwrite, as_json)
        return
    if out.endswith(".npz"):
        raise ConfigError(f"{out}: several sources are written as a directory; choose a name without .npz")
    with DatasetWriter(out, overwrite=overwrite) as writer:
        for source in sources:
            writer.append(_load(source, reading))
    _print_written([(out, writer.rows)], as_json)


@data_app.command()
@with_read_options
def mix(
    paths: Annotated[list[str], typer.Argument(help="Two or more sources, then OUT.", metavar="PATH... OUT")],
    reading: ReadChoice,
    weights: Annotated[
        str | None, typer.Option(help="Share of the rows of each source, such as 1,3; by default all rows.")
    ] = None,
    seed: SeedOption = 0,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Mix datasets by whole episodes, with weights or all rows of each."""
    del debug
    from rl_training.data.offline_mixers import mix_views

    sources, out = _sources(paths, out, 2, "data mix PATH PATH... OUT")
    shares = None if weights is None else _floats(weights, "--weights")
    if shares is not None and len(shares) != len(sources):
        raise ConfigError(f"--weights {weights!r}: there are {len(sources)} sources, so {len(sources)} weights are needed")
    datasets = [_load(source, reading) for source in sources]
    _save(mix_views(datasets, shares, seed=seed), out, overwrite, as_json)


@data_app.command()
@with_read_options
def split(
    path: PathArgument,
    train: Annotated[str, typer.Argument(help="Output for the remaining episodes.", metavar="TRAIN")],
    held_out: Annotated[str, typer.Argument(help="Output for the held-out episodes.", metavar="HELD_OUT")],
    reading: ReadChoice,
    fraction: Annotated[float, typer.Option(help="Share of the episodes that is held out.")] = 0.1,
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Split a dataset by whole episodes into a training set and a held-out set."""
    del debug
    from rl_training.data.store.directory import free_target, save_dataset
    from rl_training.data.subsets import split_views

    if Path(train).resolve() == Path(held_out).resolve():
        raise ConfigError("TRAIN and HELD_OUT are the same path")
    for target in (train, held_out):
        free_target(target, overwrite=overwrite)
    parts = dict(zip((train, held_out), split_views(_load(path, reading), fraction, seed), strict=True))
    for target, part in parts.items():
        save_dataset(part, target, overwrite=overwrite)
    _print_written([(target, len(part)) for target, part in parts.items()], as_json)


@data_app.command("filter")
@with_read_options
def filter_episodes(
    path: PathArgument,
    reading: ReadChoice,
    out: OutArgument = None,
    out_option: OutOption = None,
    top: Annotated[str | None, typer.Option(help="Keep the episodes with the highest returns, such as 10%.")] = None,
    min_return: Annotated[float | None, typer.Option(help="Least return of an episode.")] = None,
    max_return: Annotated[float | None, typer.Option(help="Largest return of an episode.")] = None,
    min_length: Annotated[int | None, typer.Option(help="Least length of an episode.")] = None,
    unique: Annotated[bool, typer.Option("--unique", help="Keep the first of equal episodes.")] = False,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Keep the episodes that pass every condition."""
    del debug
    target = _target(out, out_option)
    from rl_training.data.subsets import filter_view, ranked_by_length

    share = None if top is None else _share(top)
    if (share, min_return, max_return, min_length, unique) == (None, None, None, None, False):
        raise ConfigError("pass a condition: --top 10%, --min-return, --max-return, --min-length or --unique")
    dataset = _load(path, reading)
    if share is not None and share < 1.0 and (why := ranked_by_length(dataset)):
        print(f"warning: {path}: {why}", file=sys.stderr)
    kept = filter_view(dataset, top=share, min_return=min_return, max_return=max_return, min_length=min_length, unique=unique)
    _save(kept, target, overwrite, as_json)


@data_app.command()
@with_read_options
def transform(
    path: PathArgument,
    reading: ReadChoice,
    out: OutArgument = None,
    out_option: OutOption = None,
    reward_scale: Annotated[float, typer.Option(help="Factor of the rewards.")] = 1.0,
    reward_shift: Annotated[float, typer.Option(help="Offset added to the rewards, after the factor.")] = 0.0,
    reward_clip: Annotated[str | None, typer.Option(help="Lowest and highest reward afterwards, such as -1,1.")] = None,
    normalize_actions: Annotated[bool, typer.Option("--normalize-actions", help="Map actions to [-1, 1].")] = False,
    next_actions: Annotated[bool, typer.Option("--next-actions", help="Add the action of the following row.")] = False,
    gamma: Annotated[float | None, typer.Option(help="Discount: adds returns-to-go, or recomputes them.")] = None,
    tail: Annotated[
        str, typer.Option(help="How a cut return is completed: last_penalty, last_reward, zero or none.")
    ] = "last_penalty",
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Transform rewards and actions, and add returns-to-go or next actions."""
    del debug
    target = _target(out, out_option)
    from rl_training.data.subsets import transform_dataset

    clip = None if reward_clip is None else _floats(reward_clip, "--reward-clip")
    if clip is not None and (len(clip) != 2 or not clip[0] < clip[1]):
        raise ConfigError(f"--reward-clip {reward_clip!r}: must be two numbers, lowest and highest, such as -1,1")
    changed = transform_dataset(
        _load(path, reading),
        reward_scale=reward_scale,
        reward_shift=reward_shift,
        reward_clip=clip,
        normalize_actions=normalize_actions,
        next_actions=next_actions,
        gamma=gamma,
        tail=tail,  # type: ignore[arg-type]
    )
    _save(changed, target, overwrite, as_json)


def _sources(paths: list[str], out: str | None, fewest: int, usage: str) -> tuple[list[str], str]:
    """The sources and the output path, which is the last path unless --out names it."""
    sources, target = (paths, out) if out is not None else (paths[:-1], paths[-1])
    if len(sources) < fewest:
        raise ConfigError(f"pass {'a source' if fewest == 1 else 'at least two sources'} and an output: {usage}")
    return sources, target


def _target(first: str | None, second: str | None) -> str:
    if (first is None) == (second is None):
        raise ConfigError("pass the output once: as OUT or with --out")
    return first or second or ""


def _load(path: str, reading: ReadChoice) -> "TransitionDataset":
    from rl_training.data.dataset_loaders import read_dataset
    from rl_training.doctor.checks.clocks import check_time

    found = read_dataset(path, reading.format, reading.options).dataset()
    for finding in check_time(found):  # what is written has no time to find it by
        print(f"warning: {path}: {finding}", file=sys.stderr)
    return found


def _save(data: "TransitionDataset | RowView | list[RowView]", out: str, overwrite: bool, as_json: bool) -> None:
    from rl_training.data.store.directory import save_dataset

    save_dataset(data, out, overwrite=overwrite)
    _print_written([(out, sum(map(len, data)) if isinstance(data, list) else len(data))], as_json)


def _print_written(written: list[tuple[str, int]], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"written": [{"path": path, "rows": rows} for path, rows in written]}))
        return
    for path, rows in written:
        print(f"{full_path(path)}: {rows:,} transitions")


def _floats(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option} {text!r}: must be numbers, such as 1,3") from None


def _share(text: str) -> float:
    from rl_training.config.blocks import parse_share

    try:
        return float(parse_share(text))
    except ValueError as error:
        raise ConfigError(f"--top {text!r}: {error}") from None


def _prepare_page(target: Path) -> None:
    """Refuse to replace anything but an earlier page, and make the folder of a new one."""
    from rl_training.doctor.page import MARK
    from rl_training.storage import storage_error

    if target.exists() and (not target.is_file() or MARK.encode() not in target.read_bytes()[:400]):
        raise ConfigError(f"{target}: was not written by this command; choose another name with --html")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(target, 0, error) from error


def _print_summary(summary: dict[str, Any]) -> None:
    ends, returns, lengths = summary["ends"], summary["returns"], summary["lengths"]
    print(f"{summary['rows']:,} transitions in {summary['episodes']:,} episodes")
    print(f"{summary['observation_dim']} observations, {summary['action_dim']} actions", end="")
    print("".join(f", with {name}" for name in summary["optional_fields"]))
    print(f"ends     {ends['true_ends']:,} true, {ends['time_limits']:,} by time limit")
    print(f"lengths  {lengths['min']:.0f} to {lengths['max']:.0f}, mean {lengths['mean']:.1f}")
    print(f"returns  {returns['min']:.4g} to {returns['max']:.4g}, mean {returns['mean']:.4g}, std {returns['std']:.4g}")
    print(f"         {_blocks(returns['histogram']['counts'])}")
    if lengths["min"] < lengths["max"]:
        means = summary["rewards_per_step"]
        print(f"per step {means['min']:.4g} to {means['max']:.4g} in the mean of an episode, median {means['median']:.4g}")
    for column in summary["actions"]:
        if column["min"] == column["max"]:
            print(f"{column['label']} is always {column['min']:.6g}")
            continue
        spans = f"{column['min']:.4g} to {column['max']:.4g} of {column['low']:.4g} to {column['high']:.4g}"
        print(f"{column['label']} {_blocks(column['histogram']['counts'])} {spans}, {column['at_bounds']:.1%} at the bounds")


def _blocks(counts: list[int]) -> str:
    """A histogram in one line of text."""
    marks = block_marks()
    tallest = max(counts, default=1) or 1
    return "".join(marks[-(-(len(marks) - 1) * count // tallest)] for count in counts)


def _show_findings(path: str, origin: str, findings: "list[Finding]", as_json: bool) -> None:
    if as_json:
        print(json.dumps({"path": path, "origin": origin, "findings": [finding.to_json() for finding in findings]}))
        return
    print(origin)
    _print_findings(findings)


def _print_findings(findings: "list[Finding]") -> None:
    for finding in findings:
        print(f"{finding.severity}: {finding.code}: {finding.evidence}")
        print(f"  fix: {finding.fix}")
    if not findings:
        print("doctor: no findings")
