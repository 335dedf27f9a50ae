"""`rl-training env`: parsing and printing only."""

import json
from typing import Annotated, Any

import typer

from rl_training.cli.options import DebugOption, EnvKwargsOption, ImportOption, JsonOption, parse_env_kwargs
from rl_training.errors import ConfigError

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
    else:
        for name, value in _lines(facts):
            print(f"{name:<13}{value}")
    if facts["refused"] is not None:
        raise typer.Exit(ConfigError.exit_code)


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    limit = facts["time_limit"]
    lines = [
        ("environment", facts["env_id"]),
        ("observations", facts["observation_space"]),
        ("actions", facts["action_space"]),
        ("time limit", "none" if limit is None else f"{limit:,} steps"),
    ]
    if isinstance(facts["observations"], list):
        lines.append(("order", _listed(facts["observations"])))
    if facts["action_low"] is not None:
        bounds = zip(facts["action_low"], facts["action_high"], strict=True)
        lines.append(("bounds", _listed([f"{low:g} to {high:g}" for low, high in bounds])))
    if facts["outside"]:
        lines.append(("outside", f"{_listed([_excess(one) for one in facts['outside']])}; training takes them as they are"))
    ended = "no episode ended" if facts["ended_after"] is None else f"the first episode ended after {facts['ended_after']}"
    if facts["steps_per_second"] is not None:
        lines.append(("random play", f"{facts['steps_per_second']:,.0f} steps/s here; in 200 steps {ended}"))
    if facts["repeats"] is not None:
        again = "exactly, from a seed" if facts["repeats"] else "NOT from a seed: a resumed run begins a new episode"
        lines.append(("repeats", again))
    return [*lines, ("training", _verdict(facts))]


def _excess(outside: dict[str, Any]) -> str:
    bound, reached = outside["bound"], outside["reached"]
    beyond = "below" if reached < bound else "above"
    return f"`{outside['observation']}` was {abs(reached - bound):.3g} {beyond} its bound {bound:g}"


def _verdict(facts: dict[str, Any]) -> str:
    if facts["refused"] is not None:
        return f"would refuse it: {facts['refused']}"
    endless = facts["time_limit"] is None and facts["ended_after"] is None
    return "would take it; but episodes may never end: set --set max_episode_steps=N" if endless else "would take it"


def _listed(items: list[str]) -> str:
    more = f", and {len(items) - _MAX_LISTED} more" if len(items) > _MAX_LISTED else ""
    return ", ".join(items[:_MAX_LISTED]) + more
