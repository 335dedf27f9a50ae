"""`rl-training env`: parsing and printing only."""

import json
from typing import Annotated, Any

import typer

from rl_training.cli.options import DebugOption, EnvKwargsOption, ImportOption, JsonOption, parse_env_kwargs

_MAX_LISTED = 12  # observation names and bounds


def env(
    env_id: Annotated[str, typer.Argument(help="Id of a Gymnasium environment.", metavar="ID")],
    env_kwargs: EnvKwargsOption = None,
    max_episode_steps: Annotated[int | None, typer.Option(help="Most steps of an episode.")] = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Tell what an environment is like: spaces, bounds, episode length, speed, whether it repeats, what would be refused."""
    del imports, debug
    from rl_training.config.environment import EnvSource
    from rl_training.envs.description import describe_env

    facts = describe_env(EnvSource(env_id, parse_env_kwargs(env_kwargs), max_episode_steps)).to_json()
    if as_json:
        print(json.dumps(facts))
        return
    for name, value in _lines(facts):
        print(f"{name:<13}{value}")


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    limit = facts["time_limit"]
    lines = [
        ("environment", facts["env_id"]),
        ("observations", facts["observation_space"]),
        ("actions", facts["action_space"]),
        ("time limit", "none" if limit is None else f"{limit:,} steps"),
    ]
    if facts["refused"] is not None:
        return [*lines, ("training", f"would refuse it: {facts['refused']}")]
    names, bounds = facts["observations"], zip(facts["action_low"], facts["action_high"], strict=True)
    if isinstance(names, list):
        lines.append(("order", _listed(names)))
    lines.append(("bounds", _listed([f"{low:g} to {high:g}" for low, high in bounds])))
    ended = "no episode ended" if facts["ended_after"] is None else f"the first episode ended after {facts['ended_after']}"
    lines.append(("random play", f"{facts['steps_per_second']:,.0f} steps/s here; in 200 steps {ended}"))
    repeats = "exactly, from a seed" if facts["repeats"] else "NOT from a seed: a resumed run begins a new episode"
    endless = facts["time_limit"] is None and facts["ended_after"] is None
    taken = "would take it; but episodes may never end: set --set max_episode_steps=N" if endless else "would take it"
    return [*lines, ("repeats", repeats), ("training", taken)]


def _listed(items: list[str]) -> str:
    more = f", and {len(items) - _MAX_LISTED} more" if len(items) > _MAX_LISTED else ""
    return ", ".join(items[:_MAX_LISTED]) + more
