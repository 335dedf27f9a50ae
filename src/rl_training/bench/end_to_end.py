"""Whole training runs, as users start them: time to the first gradient step, speed, and what the time is spent on."""

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from rl_training.bench.against import Opponent, Rival, check_comparable_run
from rl_training.bench.measure import Say, device_with_index, versions
from rl_training.bench.rounds import Clocked, Timing
from rl_training.bench.settings import EndToEndSettings
from rl_training.bench.worker import ANSWER_SECONDS, started
from rl_training.config.blocks import DatasetConfig
from rl_training.config.run import RunConfig
from rl_training.data.store.directory import save_dataset
from rl_training.envs.recipes import make_dataset
from rl_training.errors import ConfigError
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.registry import get_spec
from rl_training.runtime.callbacks import Callback, Rows
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from rl_training.runtime.execution.mode import check_execution, resolve_device
from rl_training.runtime.signals import interrupted_by_stop_signals

_ROUND_STEPS = 200  # environment steps of our rounds in a comparison
_LEAST_ROUNDS = 3
_POLL_SECONDS = 0.005
_MARKS: Final[Mapping[str, Callable[[Path], bool]]] = {
    "imports": lambda run_dir: (run_dir / "run.lock").exists(),
    "setup": lambda run_dir: (run_dir / "run.json").exists(),
    "first_steps": lambda run_dir: bool(_begun(run_dir)),
}
"""The parts of a start, and by what a run directory shows that each is over."""


def measure_end_to_end(settings: EndToEndSettings, rival: Rival | None = None, say: Say = lambda _: None) -> dict[str, Any]:
    """Return the figures of whole runs of an algorithm as plain values."""
    spec, device = get_spec(settings.algo), resolve_device(settings.device)
    if rival is not None:
        check_comparable_run(spec.id, settings.algo_kwargs, settings.precision)
        if settings.env_imports:
            raise ConfigError(f"{rival.library.name} runs in a Python of its own; leave out --import with --against")
    stoppable = interrupted_by_stop_signals("the bench was stopped, and keeps nothing of its runs")
    with stoppable, tempfile.TemporaryDirectory(prefix="rl_training-") as name:
        folder = Path(name)
        data = folder / "data"
        config = settings.run_config(data)
        check_execution(config, device)
        if spec.takes_data:
            say(f"{settings.rows:,} rows of random actions in {settings.env}")
            recipe = DatasetConfig.checked({"kind": "random", "size": settings.rows})
            save_dataset(make_dataset(config.environment or settings.env, recipe), data)
        say("time to the first gradient steps, twice")
        starts = [time_to_first_steps(config, folder / f"start-{index}", folder / "cache") for index in range(2)]
        say(f"{settings.length:,} {'environment' if spec.online else 'gradient'} steps")
        figures, execution = timed_run(config, folder / "run", settings.length)
        without = None
        if not spec.online:
            say("the same without evaluation")
            without, _ = timed_run(settings.run_config(data, evaluated=False), folder / "without", settings.length)
        other = None if rival is None else _compared(settings, rival, folder / "turns", device, say)
    kwargs = config.algo_kwargs
    result = {
        "algo": spec.id,
        "env": settings.env,
        "members": settings.members,
        "hidden_sizes": list(kwargs.hidden_sizes),
        "batch_size": kwargs.batch_size,
        **{key: execution[key] for key in ("device", "precision", "threads")},
        "engine": execution["mode"],
        "workers": settings.workers,
        "eval_mode": settings.eval_mode,
        "unit": "environment step" if spec.online else "gradient step",
        "starts": starts,
        **figures,
        "without_evaluation": without,
        "evaluation_ratio": None if without is None else figures["seconds"] / without["seconds"],
        "against": other,
    }
    return {**versions(device), "results": [result]}


def time_to_first_steps(config: RunConfig[Any], run_dir: Path, cache: Path) -> dict[str, float]:
    """Return the seconds from `rl-training train` to the first gradient steps, in all and in parts, and how many those were.

    They are as many as the run takes before it looks for signals. Compiled code is cached in `cache` alone.
    """
    path = run_dir.with_suffix(".yaml")
    path.write_text(config.to_yaml(), encoding="utf-8")
    caches = dict.fromkeys(("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"), str(cache))
    cache.mkdir(mode=0o700, exist_ok=True)
    command: list[str | Path] = [sys.executable, "-m", "rl_training", "train", path, "--run-dir", run_dir]
    command += [part for module in config.env_imports for part in ("--import", module)]
    begin = last = time.perf_counter()
    parts = {}
    with started("the run", command, caches) as worker:
        for part, over in _MARKS.items():
            while not over(run_dir):
                worker.check_alive()
                if time.perf_counter() - begin > ANSWER_SECONDS:
                    raise ConfigError(f"the run took no gradient step within {ANSWER_SECONDS:g} s; try fewer members")
                time.sleep(_POLL_SECONDS)
            now = time.perf_counter()
            parts[part], last = now - last, now
    return {"seconds": last - begin, **parts, "steps": _begun(run_dir)[0]["step"]}


def _begun(run_dir: Path) -> list[dict[str, float]]:
    """The complete rows of a run's timings from the first gradient steps on."""
    path = run_dir / "timings.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [row for row in rows if row["step"] > 0]


def timed_run(config: RunConfig[Any], run_dir: Path, steps: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of a run, stopped after `steps` steps, and how it was executed."""
    result = ExperimentManager(config, run_dir).train(callbacks=[_StopAfter(steps)])
    return run_figures(_begun(run_dir), steps, len(config.member_seeds)), load_checkpoint(result.checkpoint).execution


def run_figures(rows: Sequence[Mapping[str, float]], steps: int, members: int) -> dict[str, Any]:
    """Return speed and shares of time from the rows of a timings file, which begin with the first gradient steps.

    `seconds` is the time of `steps` steps at the speed of the run, without its start.
    """
    if len(rows) < 2:
        raise ConfigError("too few gradient steps to measure; raise --steps or lower learning_starts")
    first, last = rows[0], rows[-1]
    unit = "env_step" if "env_step" in last else "step"
    seconds, count = last["seconds"] - first["seconds"], last[unit] - first[unit]
    spent = {name.removeprefix("seconds/"): last[name] - first[name] for name in last if name.startswith("seconds/")}
    return {
        "steps": steps,
        "seconds": seconds * steps / count,
        "steps_per_second": count / seconds,
        "steps_per_second_of_all_members": members * count / seconds,
        "steps_per_second_between_evaluations": count / (seconds - spent["evaluation"]),
        "shares": {activity: value / seconds for activity, value in spent.items()},
    }


class _StopAfter(Callback):
    """Stops a run after some steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def on_log(self, step: int, rows: Rows) -> bool:
        """Return whether the run goes on."""
        del rows
        return step < self._steps


class Turns(Callback):
    """Lets an opponent take a round after each of ours, which lasts from one log row to the next.

    The first round with gradient steps, in which they are compiled, and the second, which sets the length of the
    opponent's rounds, do not count.
    """

    def __init__(self, start: Callable[[], Opponent], seconds: float) -> None:
        self._start, self._seconds = start, seconds
        self.opponent: Opponent | None = None
        self._opponents_round: Clocked | None = None
        self.ours: list[float] = []
        self.theirs: list[float] = []
        self._since = 0.0

    def on_log(self, step: int, rows: Rows) -> bool:
        """Note our round, let the opponent take its own, and return whether there is time for another."""
        del step
        taken = time.perf_counter() - self._since
        if self.opponent is None:
            learning = any(name.startswith("train/") for row in rows for name in row)
            self.opponent = self._start() if learning else None
        elif self._opponents_round is None:
            self._opponents_round = self.opponent.round_of(taken)
        else:
            self.ours.append(taken)
            self.theirs.append(self._opponents_round())
        self._since = time.perf_counter()
        return len(self.ours) < _LEAST_ROUNDS or sum(self.ours) + sum(self.theirs) < self._seconds


def _compared(settings: EndToEndSettings, rival: Rival, run_dir: Path, device: torch.device, say: Say) -> dict[str, Any]:
    """The figures of a rival that took turns with a run of ours, and the ratio of all members' environment steps."""
    config = settings.run_config(run_dir, evaluated=False, log_interval=_ROUND_STEPS)
    say(f"{settings.seconds:g} s in turns with {rival.library.name}")
    with contextlib.ExitStack() as stack:

        def start() -> Opponent:  # inside the run, where its threads are set
            online = rival.online_opponent(config, torch.get_num_threads(), device_with_index(device))
            return stack.enter_context(online)

        turns = Turns(start, settings.seconds)
        ExperimentManager(config, run_dir).train(callbacks=[turns])
        ours = settings.members * Timing(tuple(turns.ours)).rates(_ROUND_STEPS)["best"]
        opponent = turns.opponent
        return {} if opponent is None else {"ours": ours, **opponent.report(Timing(tuple(turns.theirs)), ours)}
