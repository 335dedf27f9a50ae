"""`rl-training bench`: parsing and printing only."""

import json
import sys
from typing import Annotated, Any

import typer

from rl_training.cli.options import DebugOption, EnvKwargsOption, ImportOption, JsonOption, parse_env_kwargs
from rl_training.errors import ConfigError

_COLUMNS = (
    ("algorithm", "algo", "s"),
    ("hidden", "hidden_sizes", "s"),
    ("batch", "batch_size", "d"),
    ("steps/s", "steps_per_second", ",.1f"),
    ("median", "steps_per_second_median", ",.1f"),
    ("worst", "steps_per_second_worst", ",.1f"),
    ("member updates/s", "member_updates_per_second", ",.1f"),
    ("kernels/step", "kernels_per_step", ",.1f"),
    ("products ms", "products_ms", ".3f"),
    ("traffic ms", "traffic_ms", ".3f"),
    ("share of products", "share_of_products", ".2f"),
    ("of products + traffic", "share_of_products_and_traffic", ".2f"),
)
_RIVAL_COLUMNS = (
    ("d3rlpy steps/s", "steps_per_second", ",.1f"),
    ("median", "steps_per_second_median", ",.1f"),
    ("worst", "steps_per_second_worst", ",.1f"),
    ("ours / d3rlpy", "ratio", ".2f"),
    ("without its sampling", "ratio_without_its_sampling", ".2f"),
)


def bench(
    algo: Annotated[str, typer.Option(help="An algorithm, or `all`.")],
    end_to_end: Annotated[bool, typer.Option("--end-to-end", help="Measure whole training runs in --env.")] = False,
    members: Annotated[int | None, typer.Option(help="Members trained side by side.")] = None,
    hidden: Annotated[str | None, typer.Option(help="Widths of the hidden layers; default: the algorithm's.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Transitions per step and member; default: the algorithm's.")] = None,
    obs: Annotated[int | None, typer.Option(help="Size of an observation; 11 by default.")] = None,
    act: Annotated[int | None, typer.Option(help="Size of an action; 3 by default.")] = None,
    env: Annotated[str | None, typer.Option("--env", help="Environment of --end-to-end; Pendulum-v1 by default.")] = None,
    env_kwargs: EnvKwargsOption = None,
    imports: ImportOption = None,
    workers: Annotated[str | None, typer.Option(help="Processes of --end-to-end that step environments: auto or N.")] = None,
    eval_mode: Annotated[str | None, typer.Option(help="Evaluations of --end-to-end: wait or beside.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps of --end-to-end; by default 20,000 online and 1,000,000 offline.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Transitions to sample from; by default 1,000,000, with --end-to-end 100,000.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    engine: Annotated[str | None, typer.Option(help="auto, eager, compile or graph.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, tf32 or bf16.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Seconds of measuring per algorithm (5), or of --end-to-end --against (30).")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value of algo_kwargs; may be repeated.")] = None,
    against: Annotated[
        str | None, typer.Option(help="`d3rlpy`, or with --end-to-end `sb3`: run it too, taking turns.")
    ] = None,
    against_python: Annotated[str | None, typer.Option(help="A Python interpreter with that library.")] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Measure gradient steps per second on synthetic rows, or whole training runs; beside other libraries if asked for."""
    del debug
    known = "sb3" if end_to_end else "d3rlpy"
    if against not in (None, known):
        raise ConfigError(
            f"--against {against!r}: only `{known}` is known {'with' if end_to_end else 'without'} --end-to-end"
        )
    whole = {"env": env, "env-kwargs": env_kwargs, "import": imports or None, "workers": workers, "steps": steps}
    whole["eval-mode"] = eval_mode
    misplaced = {"obs": obs, "act": act} if end_to_end else whole
    for name in [name for name, value in misplaced.items() if value is not None]:
        raise ConfigError(f"--{name} goes {'without' if end_to_end else 'with'} --end-to-end")
    if against_python is not None and against is None:
        raise ConfigError(f"--against-python goes with --against {known}")
    from rl_training.bench.against import D3RLPY, SB3, Rival
    from rl_training.bench.settings import BenchSettings, EndToEndSettings
    from rl_training.config.loading import apply_override

    kwargs: dict[str, Any] = {}
    for setting in settings or ():
        apply_override(kwargs, setting)
    shape = {"members": members, "hidden": hidden and _sizes(hidden), "batch_size": batch_size, "obs": obs, "act": act}
    how = {"device": device, "engine": engine, "precision": precision, "seconds": seconds}
    work = {"algo": algo, "steps": steps, "rows": rows, "algo_kwargs": kwargs}
    where = {
        "env": env,
        "env_kwargs": parse_env_kwargs(env_kwargs) if env_kwargs is not None else None,
        "env_imports": imports or None,
        "workers": int(workers) if workers is not None and workers.isdecimal() else workers,
        "eval_mode": eval_mode,
    }
    given = {name: value for name, value in {**work, **where, **shape, **how}.items() if value is not None}
    library = SB3 if end_to_end else D3RLPY
    rival = Rival(library, library.find_python(against_python)) if against is not None else None
    if end_to_end:
        from rl_training.bench.end_to_end import measure_end_to_end

        figures = measure_end_to_end(EndToEndSettings.checked(given, "bench: "), rival, _say)
    else:
        from rl_training.bench.measure import measure

        figures = measure(BenchSettings.checked(given, "bench: "), rival, _say)
    lines = _end_to_end_lines if end_to_end else _lines
    print(json.dumps(figures) if as_json else "\n".join(lines(figures)))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _sizes(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--hidden {text!r}: must be whole numbers, such as 256,256") from None


def _lines(figures: dict[str, Any]) -> list[str]:
    """The settings, then a table with a line per algorithm."""
    results = figures["results"]
    first = results[0]
    shape = f"obs {first['observations']}, act {first['actions']}"
    lines = [
        f"{figures['device_name']}, torch {figures['torch']}; {shape}, {first['rows']:,} rows, members {first['members']}"
    ]
    for mode in dict.fromkeys((r["engine"], r["precision"], r["threads"]) for r in results):
        ran = [r["algo"] for r in results if (r["engine"], r["precision"], r["threads"]) == mode]
        lines.append(f"engine {mode[0]}, {mode[1]}, threads {mode[2]}: {', '.join(ran)}")
    cells = [[name for name, _, _ in _COLUMNS], *([_cell(r, key, form) for _, key, form in _COLUMNS] for r in results)]
    if any(r["against"] for r in results):
        cells[0] += [name for name, _, _ in _RIVAL_COLUMNS]
        for row, result in zip(cells[1:], results, strict=True):
            row += [_cell(result["against"] or {}, key, form) for _, key, form in _RIVAL_COLUMNS]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines += ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in cells]
    return [*lines, "best round of each; median and worst show the spread"]


def _end_to_end_lines(figures: dict[str, Any]) -> list[str]:
    """The settings, then a line per figure."""
    (result,) = figures["results"]
    net, unit = "x".join(str(width) for width in result["hidden_sizes"]), result["unit"]
    how = f"engine {result['engine']}, {result['precision']}, threads {result['threads']}"
    how += f", workers {result['workers']}, evaluations {result['eval_mode']}"
    lines = [
        f"{figures['device_name']}, torch {figures['torch']}; {how}",
        f"{result['algo']} in {result['env']}, members {result['members']}, networks {net}, batch {result['batch_size']}",
    ]
    for label, start in zip(
        ("first start (nothing compiled yet)", "second start (compiled before)"), result["starts"], strict=True
    ):
        parts = ", ".join(f"{name.replace('_', ' ')} {start[name]:.1f}" for name in ("imports", "setup", "first_steps"))
        steps = "gradient step" if start["steps"] == 1 else f"{start['steps']:,} gradient steps"
        lines.append(f"{label}: {start['seconds']:.1f} s to the first {steps} ({parts})")
    together = f" ({result['steps_per_second_of_all_members']:,.1f} of all members)" if result["members"] > 1 else ""
    between = f"{result['steps_per_second_between_evaluations']:,.1f} between evaluations"
    lines.append(f"{unit}s per second: {result['steps_per_second']:,.1f}{together}, {between}")
    shares = ", ".join(f"{name.replace('_', ' ')} {100 * share:.1f} %" for name, share in result["shares"].items())
    lines.append(f"time spent on: {shares}")
    if without := result["without_evaluation"]:
        ratio = f"{result['evaluation_ratio']:.2f} times the {without['seconds']:,.1f} s without evaluation"
        lines.append(f"{result['steps']:,} steps: {result['seconds']:,.1f} s, {ratio}")
    if other := result["against"]:
        rates = f"ours {other['ours']:,.1f}, {other['library']} {other['steps_per_second']:,.1f}, ratio {other['ratio']:.2f}"
        lines.append(f"in turns, {unit}s per second, best round of each: {rates}")
    return lines


def _cell(values: dict[str, Any], key: str, form: str) -> str:
    value = 1e3 * values[key.replace("_ms", "_seconds")] if key.endswith("_ms") else values.get(key)
    if isinstance(value, list):
        return "x".join(str(part) for part in value)
    return "-" if value is None else format(value, form)
