"""`rl-training list`: the algorithms and their packaged configs, or one of them in full."""

import json
import re
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.cli.options import DebugOption, JsonOption
from rl_training.errors import ConfigError, did_you_mean
from rl_training.output import return_text
from rl_training.registry import REGISTRY, AlgorithmSpec

if TYPE_CHECKING:
    from rl_training.config.expectation import Expectation

_LINE = 100  # columns of a listing
NameArgument = Annotated[
    str | None, typer.Argument(help="An algorithm, to see its options, or a packaged config, to see its text.")
]


def list_names(name: NameArgument = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Show the algorithms and the packaged configs of each, or one by NAME."""
    del debug
    from rl_training.config.loading import packaged_configs

    texts = packaged_configs()
    titles = {config: _title(text) for config, text in texts.items()}
    if name is None:
        _show_all(titles, as_json)
    elif name in REGISTRY:
        own = {config: title for config, title in titles.items() if config.startswith(f"{name}/")}
        _show_algorithm(REGISTRY[name], own, as_json)
    elif name in texts:
        _show_config(name, texts[name], as_json)
    else:
        hint = did_you_mean(name, [*texts, *REGISTRY])
        raise ConfigError(f"{name}: neither an algorithm nor a packaged config.{hint} See `rl-training list`")


def _show_all(titles: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        algorithms = {spec.id: {"title": spec.title, "summary": _summary(spec)} for spec in REGISTRY.values()}
        print(json.dumps({"algorithms": algorithms, "configs": list(titles), "titles": titles}))
        return
    print("algorithms")
    for spec in REGISTRY.values():
        _print_group(spec, {name: title for name, title in titles.items() if name.startswith(f"{spec.id}/")})
    print("packaged configs, each below its algorithm: rl-training train NAME")
    print("  what one should reach: rl-training list iql/pendulum; check it: rl-training reproduce iql/pendulum")
    print("  those of D4RL learn from your files: rl-training train iql/d4rl-locomotion --dataset hopper.hdf5")


def _print_group(spec: AlgorithmSpec, titles: Mapping[str, str]) -> None:
    """One line for the algorithm, and one for each of its configs."""
    print(f"  {spec.id:<6} {spec.title}: {_summary(spec)}")
    width = max(map(len, titles), default=0)
    for name, title in titles.items():
        print(f"      {name:<{width}}  {textwrap.shorten(title, _LINE - 8 - width, placeholder='...')}")


def _summary(spec: AlgorithmSpec) -> str:
    return f"{spec.kind}; {spec.summary}"


def _title(text: str) -> str:
    """The first words of a config's first comment, up to a stop or a colon; what follows is its source or its details."""
    return re.split(r"[.:;](?:\s|$)", text.partition("\n")[0].lstrip("# "), maxsplit=1)[0]


def _show_algorithm(spec: AlgorithmSpec, titles: Mapping[str, str], as_json: bool) -> None:
    """Its configs and its options: its own with their sentences, shared ones by group with their defaults."""
    from rl_training.config.reference import SHARED, groups_of, options, specific

    if as_json:
        every = {one.key: {"default": one.default, "legal": one.legal, "text": one.text} for one in options(spec.config)}
        known = {"id": spec.id, "title": spec.title, "summary": _summary(spec), "configs": list(titles), "titles": titles}
        print(json.dumps({**known, "options": every}))
        return
    _print_group(spec, titles)
    own = {option.key: option for option in specific(spec)}
    if own:
        print("options of its own, under algo_kwargs")
    for option in own.values():
        _print_wrapped(f"{option.key} = {option.shown}: {option.text}")
    print("options that it shares; docs/options.md and --json explain each")
    for group in groups_of(spec.config):
        shared = [one for one in options(group, groups_of(group)) if one.key not in own]
        _print_wrapped(f"{SHARED[group]}: {', '.join(f'{one.key}={one.shown}' for one in shared)}")


def _print_wrapped(text: str) -> None:
    print(textwrap.fill(text, _LINE, initial_indent="  ", subsequent_indent="      ", break_long_words=False))


def _show_config(name: str, text: str, as_json: bool) -> None:
    """Its YAML as it is written: the comments have its source and what differs per dataset; below it what it should reach."""
    from rl_training.config.expectation import Expectations, read_expectations
    from rl_training.config.yaml_loader import parse_yaml

    known = read_expectations(name) or Expectations()
    expected = known.results
    if as_json:
        measured = {case: one.model_dump(mode="json") for case, one in expected.items()}
        told = {"name": name, "title": _title(text), "text": text, "values": parse_yaml(text, name)[0]}
        print(json.dumps({**told, "expected": measured}))
        return
    print(text, end="")
    for case, one in expected.items():
        print(f"# reaches on {case}: {_reached(one)}")
    if len(expected) == 1:
        print(f"# measured by {next(iter(expected.values())).command}")
    if expected:
        data = f" --dataset data/{next(iter(expected))}" if known.needs else ""
        print(f"# check it with new seeds: rl-training reproduce {name}{data}")
    if expected and known.needs:
        print(f"# it needs {known.needs}")


def _reached(one: "Expectation") -> str:
    """The recorded result in one line."""
    if one.iqm is None or one.interval is None:
        return "not known, since seeds diverged"
    steps = f"{one.step:,} gradient steps" if one.env_step is None else f"{one.env_step:,} environment steps"
    reached, low, high = map(return_text, (one.iqm, *one.interval))
    fixed = "each seed's own" if one.episode_seed is None else "the same for all seeds: others give other returns"
    episodes = f"{one.episodes} episodes, {fixed}"
    return f"return {reached} [{low}, {high}] (IQM of {len(one.seeds)} seeds, 95 %) after {steps}, on {episodes}"
