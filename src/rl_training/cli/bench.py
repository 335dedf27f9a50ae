"""`rl-training bench`: parsing and printing only."""

import json
import sys
from typing import Annotated, Any

import typer

from rl_training.cli.options import DebugOption, JsonOption
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
    members: Annotated[int, typer.Option(help="Members trained side by side.")] = 1,
    hidden: Annotated[str | None, typer.Option(help="Widths of the hidden layers; default: the algorithm's.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Transitions per step and member; default: the algorithm's.")] = None,
    obs: Annotated[int, typer.Option(help="Size of an observation.")] = 11,
    act: Annotated[int, typer.Option(help="Size of an action.")] = 3,
    rows: Annotated[int, typer.Option(help="Synthetic transitions to sample from.")] = 1_000_000,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    engine: Annotated[str, typer.Option(help="auto, eager, compile or graph.")] = "auto",
    precision: Annotated[str, typer.Option(help="float32, tf32 or bf16.")] = "float32",
    seconds: Annotated[float, typer.Option(help="Seconds of measuring per algorithm.")] = 5.0,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value of algo_kwargs; may be repeated.")] = None,
    against: Annotated[str | None, typer.Option(help="`d3rlpy`: run it too, taking turns.")] = None,
    against_python: Annotated[str | None, typer.Option(help="A Python interpreter with d3rlpy.")] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Measure gradient steps per second on synthetic rows, compared with the machine's limits or another library."""
    del debug
    if against not in (None, "d3rlpy"):
        raise ConfigError(f"--against {against!r}: only `d3rlpy` is known")
    if against_python is not None and against is None:
        raise ConfigError("--against-python goes with --against d3rlpy")
    from rl_training.bench.against import Rival, find_python
    from rl_training.bench.measure import BenchSettings, measure
    from rl_training.config.loading import apply_override

    kwargs: dict[str, Any] = {}
    for setting in settings or ():
        apply_override(kwargs, setting)
    shape = {
        "algo": algo,
        "members": members,
        "hidden": hidden and _sizes(hidden),
        "batch_size": batch_size,
        "obs": obs,
        "act": act,
    }
    how = {"rows": rows, "device": device, "engine": engine, "precision": precision, "seconds": seconds}
    chosen = BenchSettings.checked({**shape, **how, "algo_kwargs": kwargs}, "bench: ")
    rival = Rival(find_python(against_python)) if against is not None else None
    figures = measure(chosen, rival, lambda text: print(text, file=sys.stderr, flush=True))
    print(json.dumps(figures) if as_json else "\n".join(_lines(figures)))


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


def _cell(values: dict[str, Any], key: str, form: str) -> str:
    value = 1e3 * values[key.replace("_ms", "_seconds")] if key.endswith("_ms") else values.get(key)
    if isinstance(value, list):
        return "x".join(str(part) for part in value)
    return "-" if value is None else format(value, form)
