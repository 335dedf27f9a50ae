"""`rl-training verify`: parsing and printing only."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.cli.options import DebugOption, DeviceOption, ImportOption, JsonOption
from rl_training.errors import CheckpointError

if TYPE_CHECKING:
    from rl_training.integrity.verify import Verdict


def verify(
    target: Annotated[
        str,
        typer.Argument(
            help="A run directory or checkpoint; or a config: a YAML file or a packaged name.", metavar="RUN|CONFIG"
        ),
    ],
    exact: Annotated[
        bool, typer.Option("--exact", help="Of a run, also prove that a resume of its config is exact.")
    ] = False,
    steps: Annotated[int, typer.Option(help="Budget of the short run.", min=24)] = 480,
    cuts: Annotated[int, typer.Option(help="How often it is killed or stopped, and resumed.", min=1, max=100)] = 5,
    seed: Annotated[int | None, typer.Option(help="Draws where it is cut; a new one each time by default.", min=0)] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="The data of a config that leaves it open.")] = None,
    env: Annotated[str | None, typer.Option("--env", help="The environment of a config that leaves it open.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    keep: Annotated[str | None, typer.Option(help="Keep both short runs in this new folder.", metavar="DIR")] = None,
    imports: ImportOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Check every file of a run, or prove on this machine that a config resumes exactly: exit code 0, otherwise 4."""
    del debug
    from rl_training.integrity.verify import verify as find
    from rl_training.runtime.signals import interrupted_by_stop_signals

    with interrupted_by_stop_signals("nothing was verified"):
        verdict = find(
            target,
            exact=exact or None,
            steps=steps,
            cuts=cuts,
            seed=seed,
            settings=settings or (),
            dataset=dataset or (),
            env_id=env,
            device=device,
            imports=imports or (),
            keep=keep,
            tell=(lambda _text: None) if as_json else (lambda text: print(text, file=sys.stderr, flush=True)),
        )
    if as_json:
        print(json.dumps({"target": target, **verdict.record()}))
    else:
        _print(verdict)
    if not verdict.passed:
        raise CheckpointError(f"{target}: {_failure(verdict)}")


def _print(verdict: "Verdict") -> None:
    if verdict.files is not None:
        for problem in verdict.files.problems:
            print(f"problem: {problem}")
        if verdict.files.whole:
            print(f"whole: {', '.join(verdict.files.checked)}")
    if verdict.resume is None:
        return
    for line in verdict.resume.differs:
        print(f"differs: {line}")
    if verdict.resume.kept:
        print(f"both runs are in {verdict.resume.kept}")
    if verdict.resume.exact:
        print(f"exact: cut {len(verdict.resume.cuts)} times and resumed, it ended bit for bit as undisturbed")


def _failure(verdict: "Verdict") -> str:
    parts = []
    if verdict.files is not None and not verdict.files.whole:
        count = len(verdict.files.problems)
        parts.append(f"is not whole ({count} problem{'s' * (count > 1)} found)")
    if verdict.resume is not None and not verdict.resume.cuts:
        parts.append("nothing is proved: the run had ended before it was cut; try more --steps")
    elif verdict.resume is not None and not verdict.resume.exact:
        parts.append(f"a resume is not exact; `--seed {verdict.resume.seed}` cuts it at the same checkpoints again")
    return "; ".join(parts)
