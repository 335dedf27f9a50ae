"""Jobs that train nothing: run directories as a finished population leaves them, with scores that follow from the knobs."""

import json
import math
from pathlib import Path

from rl_training.config.loading import make_config
from rl_training.tuning.folder import StudyFolder, Task
from rl_training.tuning.job import FINISHED
from rl_training.tuning.scores import Rule
from rl_training.tuning.space import make_space
from rl_training.tuning.tuner import tune
from tests.helpers import Cut, run_values

KNOBS = {"expectile": {"low": 0.6, "high": 0.95}, "beta": {"low": 1.0, "high": 20.0, "log": True}}
STEPS = (40, 80, 120)


def score(knobs, seed, step):
    """Best at expectile 0.87 and beta 8; seeds differ a little."""
    away = (knobs.get("expectile", 0.7) - 0.87) ** 2 * 50 + math.log(knobs.get("beta", 3.0) / 8.0) ** 2
    return -100.0 * away * (1.0 + 10.0 / step) + math.sin(seed * 7.0 + knobs.get("beta", 3.0))


def write_run(job, diverged=()):
    """The files of a finished run; the trials in `diverged` have lost their first seed."""
    config, folder = make_config(job.config), Path(job.run_dir)
    folder.mkdir(parents=True)
    rows = []
    for step in STEPS:
        for member, (seed, own) in enumerate(zip(config.member_seeds, config.member_knobs, strict=True)):
            row = {"step": step, "member": member, "seed": seed}
            if member in diverged:
                rows += [{**row, "event": "diverged"}] if step == STEPS[0] else []
            elif config.pruning is None or member < 2 or step == STEPS[0]:  # otherwise the first trial alone goes on
                rows.append({**row, "eval/return_mean": score(own, seed, step)})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "config.yaml").write_text(config.to_yaml())
    (folder / "run.json").write_text(json.dumps({"status": FINISHED, "step": 120, "versions": {"rl_training": "0"}}))


class FakeBackend:
    """Writes the runs of jobs; dies before or after the n-th job that it is given."""

    def __init__(self, die_at=None, diverged=(), status=FINISHED):
        self.die_at, self.diverged, self.status = die_at, diverged, status
        self.names = []

    def run(self, jobs):
        for job in jobs:
            if self.die_at == len(self.names):
                raise Cut
            self.names.append(job.name)
            if self.status == FINISHED and not Path(job.run_dir).exists():
                write_run(job, self.diverged)
            yield job, self.status


def task(space=None, rule=None, seeds=(0, 1), changes=None, **search):
    config = make_config(run_values(seeds=list(seeds), **(changes or {})))
    return Task("iql/small", config, make_space(space or KNOBS, config, "space"), rule or Rule(), **{"batch": 4, **search})


def run_study(path, given=None, trials=12, backend=None, confirm=0):
    """Run a study and return what was said."""
    said = []
    tune(StudyFolder(path), given or task(), trials, backend or FakeBackend(), said.append, confirm)
    return said


def trials_of(path, given=None):
    """All that must be equal after any number of kills."""
    found = StudyFolder(path).open(given or task()).trials
    return [
        (one.number, one.state.name, one.params, one.values, dict(one.intermediate_values), one.user_attrs) for one in found
    ]
