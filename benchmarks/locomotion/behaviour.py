"""The policies that behave in the data: SAC in a task, and which of its policies is the medium one and which the expert.

python -m benchmarks.locomotion.behaviour hopper --out data

Stopped with SIGTERM or Ctrl-C, training saves its state, and the same command goes on. Written are the run (`sac-hopper`,
with a checkpoint every 10,000 steps), the two policies (`policies/hopper-medium`, `policies/hopper-expert`), and everything
that the medium one had seen by then (`hopper-medium-replay`).
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rl_training.analysis.logged_run import LoggedRun
from rl_training.config.loading import load_config
from rl_training.data.dataset_loaders import load_dataset
from rl_training.data.store.directory import save_dataset
from rl_training.experiment.manager import ExperimentManager
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint, write_checkpoint
from rl_training.runtime.checkpoints.member import member_of
from rl_training.runtime.progress import default_reporter

TASKS = {"hopper": "Hopper-v5", "halfcheetah": "HalfCheetah-v5", "walker2d": "Walker2d-v5"}
STEPS = {"hopper": 450_000, "halfcheetah": 500_000, "walker2d": 440_000}  # environment steps
SEEDS = [0, 1]
INTERVAL = 10_000  # environment steps between checkpoints, each of which is evaluated
MEDIUM = 0.4  # of the expert's return; D4RL's medium policies have 0.43 (HalfCheetah), 0.44 (Hopper) and 0.66 (Walker2d)


@dataclass(frozen=True)
class Behaviour:
    """A policy of a run, chosen by its evaluation."""

    env_step: int
    member: int
    seed: int
    evaluated_return: float


def train(task: str, out: Path, settings: Sequence[str] = (), steps: int | None = None) -> Path:
    """Train SAC in a task, or continue; return the run directory, which holds every checkpoint."""
    run_dir = out / f"sac-{task}"
    fixed = [f"checkpoint_interval={INTERVAL}", f"eval_interval={INTERVAL}", "keep_checkpoints=10000", "eval_mode=beside"]
    given = {"env_id": TASKS[task], "total_timesteps": steps or STEPS[task], "seeds": SEEDS}
    config = load_config("sac/mujoco", [*fixed, *settings], given)
    ExperimentManager(config, run_dir).train(resume=True, reporter=default_reporter())
    return run_dir


def choose(run_dir: Path) -> dict[str, Behaviour]:
    """Return the expert, the policy with the best evaluation, and the medium one, the first of its member at 40 % of that."""
    run = LoggedRun.load(run_dir)
    curve = run.curve()
    seeds = list(run.seeds.values())
    best_row, member = divmod(int(curve.values.argmax()), len(seeds))
    returns = curve.values[:, member]
    rows = {"medium": int((returns >= MEDIUM * returns[best_row]).argmax()), "expert": best_row}
    return {
        kind: Behaviour(int(curve.positions[row]), member, seeds[member], float(returns[row])) for kind, row in rows.items()
    }


def write(task: str, run_dir: Path, out: Path) -> dict[str, Behaviour]:
    """Write the chosen policies and the replay of the medium one; return the choice."""
    chosen = choose(run_dir)
    for kind, behaviour in chosen.items():
        solo = member_of(load_checkpoint(checkpoint_at(behaviour.env_step, run_dir)), behaviour.member)
        target = out / "policies" / f"{task}-{kind}"
        target.parent.mkdir(parents=True, exist_ok=True)
        write_checkpoint(target, solo.tensors, {**solo.state, "replay": []})
    write_replay(task, run_dir, out, chosen["medium"].env_step, chosen["medium"].member)
    text = json.dumps({kind: asdict(behaviour) for kind, behaviour in chosen.items()}, indent=1)
    (out / "policies" / f"{task}.json").write_text(text + "\n")
    return chosen


def write_replay(task: str, run_dir: Path, out: Path, env_step: int, member: int) -> None:
    """Write everything that a member had collected by a checkpoint, as the replay of the task."""
    replay = load_dataset(checkpoint_at(env_step, run_dir), member=member)
    save_dataset(replay, out / f"{task}-medium-replay", overwrite=True)


def checkpoint_at(env_step: int, run_dir: Path) -> Path:
    """Return the checkpoint that was written after so many environment steps."""
    (path,) = (run_dir / "checkpoints").glob(f"env-{env_step:09d}_*")
    return path


def main() -> None:
    """Train, choose and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="environment steps; by default those of the data here")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    given = parser.parse_args()
    run_dir = train(given.task, given.out, given.settings, given.steps)
    print(write(given.task, run_dir, given.out))


if __name__ == "__main__":
    main()
