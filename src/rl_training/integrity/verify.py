"""`rl_training.verify`: whether the files of a run are whole, and whether a resume of a config is exact on this machine."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.config.loading import load_config, make_config
from rl_training.config.run import RunConfig
from rl_training.errors import ConfigError
from rl_training.experiment.manager import ExperimentManager, find_checkpoint
from rl_training.integrity.comparing import differences
from rl_training.integrity.files import FileReport, check_files
from rl_training.integrity.processes import Cut, Ended, train_process
from rl_training.integrity.shortening import shortened
from rl_training.runtime.execution.mode import fastest_mode, resolve_device
from rl_training.storage import replace_file

STEPS, CUTS = 480, 5
_POINTS = (
    "save:state.safetensors:half",
    "save:before-manifest",
    "save:before-rename",
    "save:before-latest",
    "save:after-latest",
)
_LONGEST_DELAY = 2.0

Tell = Callable[[str], None]


@dataclass
class ExactReport:
    """Whether a run that was cut again and again ended as the one that was not."""

    seed: int
    """From which the cuts were drawn."""
    changed: list[str]
    """Settings that were changed to make the run short."""
    cuts: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    kept: str | None = None
    """The folder with both runs, if they differ or were asked for."""

    @property
    def exact(self) -> bool:
        """Whether every bit was the same, after at least one cut."""
        return bool(self.cuts) and not self.differs


@dataclass
class Verdict:
    """What `verify` found."""

    files: FileReport | None = None
    resume: ExactReport | None = None

    @property
    def passed(self) -> bool:
        """Whether all that was asked for is whole and exact."""
        return (self.files is None or self.files.whole) and (self.resume is None or self.resume.exact)

    def record(self) -> dict[str, Any]:
        """Return plain values."""
        files = None if self.files is None else {**asdict(self.files), "whole": self.files.whole}
        resume = None if self.resume is None else {**asdict(self.resume), "exact": self.resume.exact}
        return {"passed": self.passed, "files": files, "resume": resume}


def verify(
    run_or_config: str | os.PathLike[str],
    *,
    exact: bool | None = None,
    steps: int = STEPS,
    cuts: int = CUTS,
    seed: int | None = None,
    settings: Sequence[str] = (),
    dataset: Sequence[str] = (),
    env_id: str | None = None,
    device: str | None = None,
    imports: Sequence[str] = (),
    keep: str | os.PathLike[str] | None = None,
    tell: Tell = lambda _text: None,
) -> Verdict:
    """Return whether every file of a run is whole and, of a config or with `exact`, whether its resume is exact here.

    A short version of the config is trained twice in processes of their own: once undisturbed, once killed and stopped
    `cuts` times at places drawn from `seed` and resumed. Both are compared to the last bit. `settings`
    (`key.path=value`), `dataset` and `env_id` complete a config; `imports` are modules that the processes import, which
    those that a config names are not. `keep` names a new folder for both runs.
    """
    name = os.fspath(run_or_config)
    is_run = Path(name).is_dir()
    if is_run and (settings or dataset or env_id):
        raise ConfigError(f"{name}: is a run, whose settings and data are known; name a config to try others")
    files = check_files(name) if is_run else None
    if exact is False or (is_run and not exact):
        return Verdict(files)
    extra = {key: value for key, value in (("env_id", env_id), ("device", device)) if value}
    config, mode = _of_run(name) if is_run else (load_config(name, settings, extra, dataset), None)
    if is_run:
        config = make_config({**config.record(), **extra}, name)
    chosen = int.from_bytes(os.urandom(4)) if seed is None else seed
    return Verdict(files, _try(config, mode, _Plan(steps, cuts, chosen, imports, keep), tell))


def _of_run(run: str) -> tuple[RunConfig[Any], str | None]:
    """The config of a run, and the engine mode in which it has trained."""
    return ExperimentManager.open(run).config, str(find_checkpoint(run, fall_back=True).execution["mode"])


@dataclass(frozen=True)
class _Plan:
    """How long the short run is, how often it is cut, and where both runs are."""

    steps: int
    cuts: int
    seed: int
    imports: Sequence[str]
    keep: str | os.PathLike[str] | None

    def folder(self) -> Path:
        """Make the folder of both runs."""
        if self.keep is None:
            return Path(tempfile.mkdtemp(prefix="rl-training-verify-"))
        try:
            Path(self.keep).mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"--keep {os.fspath(self.keep)}: cannot be made: {error.strerror}; name a new folder") from None
        return Path(self.keep)

    def clear(self, folder: Path) -> None:
        """Remove both runs unless they were asked for."""
        if self.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _try(config: RunConfig[Any], mode: str | None, plan: _Plan, tell: Tell) -> ExactReport:
    """Train the short version undisturbed and cut, and compare; the folder stays if the two differ."""
    mode = mode or fastest_mode(resolve_device(config.device), config.total_timesteps)
    short, changed = shortened(config, plan.steps, mode)
    report = ExactReport(plan.seed, changed)
    tell(f"a short run of it: {'; '.join(changed) or 'it is short already'}")
    tell(f"seed {plan.seed} draws where it is cut")
    folder = plan.folder()
    file = folder / "config.yaml"
    try:
        replace_file(file, short.to_yaml().encode())
        whole, cut = folder / "whole", folder / "cut"
        first = train_process(file, whole, plan.imports)
        first.check([0])
        tell(f"undisturbed: {len(first.saved)} checkpoints, the last at {first.saved[-1]}")
        report.cuts = _cut(file, cut, plan.imports, _drawn(first, plan.cuts, plan.seed), tell)
        report.differs = [*differences(whole, cut), *map(str, check_files(cut).problems)]
    except BaseException:
        plan.clear(folder)
        raise
    if report.exact:
        plan.clear(folder)
    report.kept = str(folder) if folder.exists() else None
    return report


def _drawn(whole: Ended, cuts: int, seed: int) -> list[Cut]:
    """Cuts that leave every process something to do: each comes a few checkpoints after the one before."""
    draw = np.random.Generator(np.random.Philox(seed))
    apart = max((len(whole.saved) - 2) // (cuts + 1), 1)
    pause = min(float(np.median(whole.seconds[1:] or [0.0])), _LONGEST_DELAY)
    found = []
    for number in range(cuts):
        saves, delay = int(draw.integers(1, apart + 1)), float(draw.uniform(0.0, pause))
        sort = number % 4
        if sort == 1:
            found.append(Cut(saves, point=_POINTS[int(draw.integers(len(_POINTS)))]))
        else:
            found.append(Cut(saves, delay, {0: signal.SIGKILL, 2: signal.SIGTERM, 3: signal.SIGINT}[sort]))
    return found


def _cut(file: Path, run_dir: Path, imports: Sequence[str], cuts: Sequence[Cut], tell: Tell) -> list[str]:
    """Train a run through all its cuts to the end; return those that hit it."""
    hit: list[str] = []
    for number, cut in enumerate(cuts, 1):
        ended = train_process(file, run_dir, imports, cut)
        ended.check([cut.exit_code, 0])
        if ended.exit_code == 0:
            tell(f"cut {number} of {len(cuts)}: came too late, the run had ended")
            return hit
        where = f"{cut}, at {ended.saved[-1]}" if ended.saved else str(cut)
        hit.append(where)
        tell(f"cut {number} of {len(cuts)}: {where}; resuming")
    train_process(file, run_dir, imports).check([0])
    return hit
