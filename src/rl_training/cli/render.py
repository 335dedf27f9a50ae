"""`rl-training render`: parsing and printing only."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rl_training.cli.options import (
    DebugOption,
    DeviceOption,
    EnvKwargsOption,
    EnvOption,
    ImportOption,
    JsonOption,
    MemberOption,
    RunArgument,
    full_path,
    named_env,
)
from rl_training.cli.policies import BestOption, CheckpointOption, which_checkpoint
from rl_training.errors import ConfigError
from rl_training.output import return_text

if TYPE_CHECKING:
    from rl_training.api.policy import Policy
    from rl_training.envs.rendering import Rendering


def render(
    run: RunArgument,
    out: Annotated[str, typer.Option(help="The file to write: .gif, or .mp4 where ffmpeg is installed.")],
    episodes: Annotated[int, typer.Option(help="Episodes, one after another.")] = 1,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the episodes, as in `evaluate`; by default each member's own.")
    ] = None,
    member: MemberOption = None,
    members: Annotated[
        str | None, typer.Option(help="Several members side by side: `all`, or 0,2,5. By default the best one alone.")
    ] = None,
    env: EnvOption = None,
    env_kwargs: EnvKwargsOption = None,
    imports: ImportOption = None,
    fps: Annotated[
        float | None, typer.Option(help="Environment steps shown per second; by default the environment's own speed.")
    ] = None,
    max_steps: Annotated[int, typer.Option(help="Leave an episode after this many steps.")] = 1000,
    width: Annotated[int | None, typer.Option(help="Width of the picture in pixels.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    checkpoint: CheckpointOption = None,
    best: BestOption = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show a policy at work: an animation of the episodes that `evaluate` measures, with the same returns."""
    del imports, debug
    if member is not None and members is not None:
        raise ConfigError("--member and --members exclude each other")
    from rl_training.api.policy import Policy

    policy = Policy.load(run, device=device or "auto", which=which_checkpoint(run, checkpoint, best))
    rendering = policy.render(
        out,
        episodes=episodes,
        seed=seed,
        members=member if members is None else _parse_members(members),
        env_id=named_env(env, env_kwargs, policy.config.final_environment),
        fps=fps,
        max_steps=max_steps,
        width=width,
        overwrite=overwrite,
    )
    report = _report(policy, rendering)
    if as_json:
        print(json.dumps(report))
    else:
        _print_report(policy, report)


def _parse_members(text: str) -> list[int] | Literal["all"]:
    if text == "all":
        return "all"
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--members {text!r}: must be `all`, or numbers from 0, such as 0,2,5") from None


def _report(policy: "Policy", rendering: "Rendering") -> dict[str, Any]:
    """The plain values of an animation."""
    found = rendering.evaluation
    rows = [
        {"member": member, "seed": policy.members[member].seed, "returns": returns.tolist(), "lengths": lengths.tolist()}
        for member, returns, lengths in zip(rendering.members, found.returns, found.lengths, strict=True)
    ]
    return {
        "out": str(rendering.path),
        "bytes": rendering.path.stat().st_size,
        "algo": policy.config.algo,
        "env_id": rendering.env_id,
        "step": policy.learner.step,
        "members": rows,
        "cut": rendering.cut,
        "frames": rendering.frames,
        "frames_per_second": rendering.frames_per_second,
        "steps_per_frame": rendering.steps_per_frame,
        "width": rendering.width,
        "height": rendering.height,
    }


def _print_report(policy: "Policy", report: dict[str, Any]) -> None:
    print(f"{report['algo']} on {report['env_id']} after {report['step']:,} gradient steps")
    for row in report["members"]:
        who = f"member {row['member']} seed {policy.members[row['member']].label}: " if len(policy.members) > 1 else ""
        for number, (value, length) in enumerate(zip(row["returns"], row["lengths"], strict=True), start=1):
            which = f"episode {number}: " if len(row["returns"]) > 1 else ""
            print(f"{who}{which}return {return_text(value)} in {length:,} steps")
    if report["cut"]:
        print("an episode was left before its end (--max-steps), so its return is that of its first steps")
    if report["steps_per_frame"] > 1:
        fps = report["frames_per_second"] * report["steps_per_frame"]
        print(f"a frame is {report['steps_per_frame']} steps: {fps:g} steps per second are more than a file needs")
    size = f"{report['width']}x{report['height']}, {report['bytes'] / 1e3:,.0f} kB"
    print(f"{full_path(report['out'])}: {report['frames']:,} frames, {report['frames_per_second']:.3g} per second, {size}")
