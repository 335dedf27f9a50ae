"""The model card of an export: what the policy is, what it was made from, what it may be used for, and how it was checked."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.deploy.check import TOLERANCE, Check
from rl_training.deploy.program import Program

KIND, VERSION = "rl_training export", 1  # of the manifest of an export


def interface(
    program: Program, seen: tuple[NDArray[Any], NDArray[Any]] | None, computed: Mapping[str, str]
) -> dict[str, Any]:
    """Return the inputs and outputs of an export as plain values; a number that is not finite is null.

    `computed` has the expressions of columns that are computed from others, by name.
    """
    safety = program.safety
    observations: list[dict[str, Any]] = [
        {"name": name, "mean": mean, "std": std, "seen": None if seen is None else _plain((seen[0][k], seen[1][k]))}
        for k, (name, mean, std) in enumerate(
            zip(program.observation_names, _plain(program.mean), _plain(program.std), strict=True)
        )
    ]
    actions: list[dict[str, Any]] = [
        {"name": name, "low": low, "high": high, "on_nan": other, "max_change": change}
        for name, low, high, other, change in zip(
            program.action_names,
            _plain(safety.low),
            _plain(safety.high),
            ["last action"] * len(safety.low) if safety.fallback is None else _plain(safety.fallback),
            [None] * len(safety.low) if safety.change is None else _plain(safety.change),
            strict=True,
        )
    ]
    for one in (*observations, *actions):
        if one["name"] in computed:
            one["computed"] = computed[one["name"]]
    return {
        "largest": safety.largest,
        "inputs": ["observation", *(["last_action"] if safety.uses_last else [])],
        "outputs": ["action", *(["outside"] if safety.seen is not None else [])],
        "observations": observations,
        "actions": actions,
    }


def checked(check: Check, latency: Mapping[str, float] | None) -> dict[str, Any]:
    """Return the figures of a check as plain values."""
    return {
        "rows": check.rows,
        "largest_difference": check.largest_difference,
        "tolerance": TOLERANCE,
        "ties": check.ties,
        "latency": None if latency is None else dict(latency),
    }


def _plain(values: Sequence[Any] | NDArray[Any]) -> list[float | None]:
    return [float(f"{value:.7g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=np.float64)]


def markdown(card: Mapping[str, Any]) -> str:
    """Return the card as a page to read."""
    policy, data, face = card["policy"], card["data"], card["interface"]
    lines = [
        f"# Policy: {policy['algo']}, {policy['step']:,} gradient steps, seed {policy['seed']}",
        "",
        f"Exported as `{card['format']}`: {', '.join(f'`{name}`' for name in card['files'])}. {card['usage']}",
        "",
        f"```{'c' if card['format'] == 'c' else 'python'}",
        *card["example"].splitlines(),
        "```",
        "",
        "## What it was made from",
        "",
        *_table(("", ""), [(name, _text(value)) for name, value in {**policy, **data}.items()]),
        "",
        "## How good it is",
        "",
        *(f"- {_cell(line)}" for line in card["figures"]),
        *(f"- Doubt: {_cell(line)}" for line in card["concerns"]),
        "",
        "## Observations: what goes in, in this order, in the units of the data",
        "",
    ]
    rows = [
        (k, _name(one), _range(one["seen"]), _text(one["mean"]), _text(one["std"]))
        for k, one in enumerate(face["observations"])
    ]
    lines += _table(("", "name", "range in the data", "mean", "deviation"), rows)
    lines += ["", "## Actions: what comes out", ""]
    rows = [
        (k, _name(one), _range((one["low"], one["high"])), _text(one["max_change"]), _text(one["on_nan"]))
        for k, one in enumerate(face["actions"])
    ]
    lines += _table(("", "name", "range", "most change in a call", "on NaN"), rows)
    lines += ["", *(f"- {_cell(line)}" for line in _behaviour(card)), "", "## Checks", ""]
    lines += [f"- {_cell(line)}" for line in _checks(card)]
    return "\n".join(lines) + "\n"


def _behaviour(card: Mapping[str, Any]) -> list[str]:
    """What happens outside the ordinary, in sentences."""
    face, limits = card["interface"], card["limits"]
    nan = {one["on_nan"] for one in face["actions"]}
    if nan == {None}:
        other = "every action is NaN: the caller must notice. Export with `--on-nan` for an action instead."
    elif nan == {"last action"}:
        other = "the last action is repeated; before there is one (`last_action` NaN) the actions are NaN."
    else:
        other = "the actions of the column `on NaN` are taken."
    lines = [f"If an observation is NaN, infinite or beyond {face['largest']:g}, {other}"]
    if "last_action" in face["inputs"]:
        lines.append(
            "`last_action` is what was really applied before, also by hand; NaN if that is not known, as before the first "
            "call: then nothing limits the change, so never pass an action of NaN back."
        )
    if any(one["max_change"] is not None for one in face["actions"]):
        every = f" Call it every {limits['dt']:g} s." if "dt" in limits else ""
        given = ", ".join(limits["max_change"])
        lines.append(
            f"The change of an action from call to call is limited ({given}), also on the way to what "
            f"is taken on NaN.{every} The range has precedence: from a last action outside it, the action steps to its edge."
        )
    if "outside" in face["outputs"]:
        in_c = card["format"] == "c"
        how = "The result of `policy_act`" if in_c else "The second output"
        other = "; it is -1 if one is not finite" if in_c else ", or not finite"
        lines.append(f"{how} counts the observations of a row that are outside the range in the data{other}.")
    lines.append("Nothing is known of the policy for observations outside the range in the data.")
    return lines


def _checks(card: Mapping[str, Any]) -> list[str]:
    found = card["check"]
    if found is None:
        return [
            "Not checked: there was no C compiler where it was exported. Compile it and compare a few actions with `predict`."
        ]
    ties = f"; in {found['ties']} rows another candidate of the same value was taken" if found["ties"] else ""
    lines = [
        f"{found['rows']:,} observations, half of them in the range of the data (if that is not known, two deviations about "
        f"the mean), half up to ten times as far out: at most "
        f"{found['largest_difference']:.1e} of an action's range from `predict` ({found['tolerance']:g} is allowed){ties}."
    ]
    if found["latency"] is not None:
        took = found["latency"]
        lines.append(
            f"One observation takes {took['median_us']:g} us (median), {took['p99_us']:g} us (99 %), {card['machine']}."
        )
    return [*lines, f"Made with {', '.join(f'{name} {version}' for name, version in card['versions'].items())}."]


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(_cell(value) for value in line) + " |" for line in lines]


def _cell(value: Any) -> str:
    """Text that stays in its cell and is not read as HTML."""
    return " ".join(str(value).split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _name(one: Mapping[str, Any]) -> str:
    return f"{one['name']} = {one['computed']}" if "computed" in one else str(one["name"])


def _range(ends: Sequence[float | None] | None) -> str:
    return "not known" if ends is None else f"{_text(ends[0])} to {_text(ends[1])}"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
