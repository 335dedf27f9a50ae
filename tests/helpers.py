"""What many tests need: small data, small configs, and the command line as a subprocess."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rl_training.config.loading import make_config
from rl_training.data import Batch, TransitionDataset
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.registry import get_spec
from rl_training.models import MLPSACModel, MLPTD3Model
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoints.checkpoint import CheckpointStore, load_checkpoint
from rl_training.runtime.checkpoints.replay_store import read_replay
from rl_training.runtime.progress import QuietReporter

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "datasets"


def constant_sac_model(critics, targets):
    """A SAC model whose networks are constants: every weight zero, the critics' last biases given, policy tanh(N(0, 1))."""
    model = _constant(MLPSACModel(2, 1, hidden_sizes=(4,), num_critics=len(critics)), critics, targets)
    model.load_tensors({**model.tensors(), "temperature/log_multiplier": torch.ones(1, 1)})
    return model


def constant_td3_model(critics, targets):
    """A TD3 model whose networks are constants: every weight zero, the critics' last biases given, policy 0."""
    return _constant(MLPTD3Model(2, 1, hidden_sizes=(4,), num_critics=len(critics)), critics, targets)


def _constant(model, critics, targets):
    tensors = {name: torch.zeros_like(value) for name, value in model.tensors().items()}
    tensors["critic/1/bias"] = torch.tensor(critics).reshape(1, -1, 1)
    tensors["target/critic/1/bias"] = torch.tensor(targets).reshape(1, -1, 1)
    model.load_tensors(tensors)
    return model


def one_row(reward=1.0, terminal=0.0, action=0.5):
    """A batch of one transition with two observations and one action."""
    return Batch(
        torch.zeros(1, 2), torch.tensor([[action]]), torch.tensor([reward]), torch.zeros(1, 2), torch.tensor([terminal])
    )


SMALL = {"hidden_sizes": [16, 16]}
KNOBS = {  # what keeps a run of an algorithm short, beside small networks
    "cql": {"num_cql_samples": 2},
    "cal_ql": {"num_cql_samples": 2},
    "sac_n": {"num_critics": 3},
    "edac": {"num_critics": 3},
    "fql": {"flow_steps": 3},
    "redq": {"num_critics": 3, "gradient_updates_per_step": 2},
    "rlpd": {"num_critics": 3, "gradient_updates_per_step": 2, "offline_pretrain_updates": 30},
}


def knobs_of(algo):
    return {**SMALL, **KNOBS.get(algo, {})}


def generator(seed=0):
    return np.random.Generator(np.random.Philox(seed))


def small_arrays(rows=60, observation_dim=3, action_dim=2, length=10, seed=0):
    """Episodes of `length` rows that end by turns truly and by a time limit."""
    draw = generator(seed)
    observations = draw.normal(size=(rows, observation_dim)).astype(np.float32)
    next_observations = np.concatenate((observations[1:], draw.normal(size=(1, observation_dim)))).astype(np.float32)
    last = np.arange(rows) % length == length - 1
    last[-1] = True
    even = (np.arange(rows) // length) % 2 == 0
    next_observations[last] += 5.0
    return {
        "observations": observations,
        "actions": draw.uniform(-1, 1, (rows, action_dim)).astype(np.float32),
        "rewards": draw.normal(size=rows).astype(np.float32),
        "next_observations": next_observations,
        "terminals": last & even,
        "timeouts": last & ~even,
    }


def small_dataset(**shape):
    return TransitionDataset.from_dict(small_arrays(**shape))


def small_batch(members=1, batch=8, observation_dim=3, action_dim=2, seed=0):
    draw = generator(seed)

    def tensor(*shape):
        return torch.from_numpy(draw.normal(size=(members, batch, *shape)).astype(np.float32))

    terminals = torch.from_numpy((draw.uniform(size=(members, batch)) < 0.2).astype(np.float32))
    actions = tensor(action_dim).clamp(-1, 1)
    observations, rewards, following = tensor(observation_dim), tensor(), tensor(observation_dim)
    returns, next_actions = tensor(), tensor(action_dim).clamp(-1, 1)
    next_actions[:, 0] = torch.nan  # unknown
    return Batch(observations, actions, rewards, following, terminals, next_actions, returns)


def is_online(algo):
    return get_spec(algo).online


def run_values(algo="iql", **changes):
    """A run of a fraction of a second on the CPU: 120 steps, logged, evaluated and saved; offline ones on 600 rows."""
    supply = {"learning_starts": 9} if is_online(algo) else {}
    supply |= {"dataset": {"kind": "random", "size": 600, "seed": 3}} if get_spec(algo).takes_data else {}
    kwargs = {"batch_size": 32, **supply, **knobs_of(algo)}
    values = {
        "algo": algo,
        "env_id": "Pendulum-v1",
        "device": "cpu",  # also where there is a GPU
        "total_timesteps": 120,
        "log_interval": 10,
        "eval_interval": 40,
        "eval_episodes": 2,
        "checkpoint_interval": 30,
        "learning_rate_schedule": {"actor": "cosine"},
        "algo_kwargs": kwargs,
        **changes,
    }
    if "algo_kwargs" in changes:
        values["algo_kwargs"] = {**kwargs, **changes["algo_kwargs"]}
    return values


def tiny_run(run_dir, algo="iql", *, resume=False, callbacks=(), overwrite=False, reporter=None, dataset=None, **changes):
    config = make_config(run_values(algo, **changes))
    manager = ExperimentManager(config, run_dir)
    return manager.train(resume=resume, callbacks=callbacks, overwrite=overwrite, reporter=reporter, dataset=dataset)


class FinishedRuns:
    """Tiny runs that many tests look at, each trained once in a process; a test that changes one works on a copy."""

    def __init__(self, folder):
        self.folder, self._results, self._hashes = Path(folder), {}, {}

    def __call__(self, algo="iql", seeds=None):
        """The result of the run; its directory is `run_dir`."""
        name = "-".join([algo, *map(str, seeds or ())])
        if name not in self._results:
            result = tiny_run(self.folder / name, algo, seeds=seeds)
            self._results[name] = SimpleNamespace(run_dir=self.folder / name, **vars(result))
            self._hashes[name] = contents(self.folder / name)
        return self._results[name]

    def copy(self, target, algo="iql", seeds=None):
        """A copy of the run in a directory that may be there already; returns the directory."""
        return shutil.copytree(self(algo, seeds).run_dir, target, dirs_exist_ok=True)

    def check_unchanged(self):
        for name, hashes in self._hashes.items():
            assert contents(self.folder / name) == hashes, f"a test has changed the shared run {name}"


def contents(folder):
    """The hash of every file under a folder."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@contextmanager
def out_of_reach(folder):
    """Take a folder away for a while."""
    away = folder.rename(folder.with_name(f"{folder.name}-away"))
    try:
        yield
    finally:
        away.rename(folder)


def checkpoints(run_dir):
    """The checkpoints of a run, oldest first."""
    folder = Path(run_dir) / "checkpoints"
    return [folder / name for name in CheckpointStore(folder, 2).names()]


def mode_of(run_dir):
    """The engine mode that the last checkpoint of a run says."""
    return load_checkpoint(checkpoints(run_dir)[-1]).execution["mode"]


def fingerprint(run_dir):
    """Everything that must be equal after an exact resume: tensors by name, replay, and the bytes of the metrics file."""
    last = load_checkpoint(checkpoints(run_dir)[-1])
    replay = {} if last.env_step is None else {"replay": torch.from_numpy(read_replay(last))}
    return {**last.tensors, **replay}, (Path(run_dir) / "metrics.jsonl").read_bytes()


def assert_same_run(first, second):
    tensors, metrics = fingerprint(first)
    other_tensors, other_metrics = fingerprint(second)
    assert set(tensors) == set(other_tensors)
    for name, value in tensors.items():
        assert torch.allclose(value, other_tensors[name], rtol=0.0, atol=0.0, equal_nan=True), name
    assert metrics == other_metrics


class Cut(Exception):
    """Stands for the process dying."""


class CutAt(Callback):
    """Dies at a place of the loop: after a log row, inside an evaluation's callbacks, or after a checkpoint."""

    def __init__(self, place, step):
        self.place, self.step = place, step

    def _maybe(self, place, step):
        if (place, step) == (self.place, self.step):
            raise Cut

    def on_log(self, step, rows):
        self._maybe("log", step)

    def on_evaluation(self, step, evaluation, active):
        self._maybe("evaluation", step)
        return ()

    def on_checkpoint(self, step, path):
        self._maybe("checkpoint", step)


class Notes(QuietReporter):
    """Keeps what a run says."""

    def __init__(self):
        self.notes, self.warnings = [], []

    def note(self, text):
        self.notes.append(text)

    def warn(self, text):
        self.warnings.append(text)


class Start(QuietReporter):
    """Remembers where a run started, over all its phases."""

    def __init__(self):
        self.first = None

    def start(self, first, last, unit):
        if self.first is None:
            self.first, self.last, self.unit = first, last, unit


def die_at_each(run, cuts):
    """Run to the end, dying at each place in turn; one resume that is not exact shows at the end as well as many."""
    starts = []
    for number, cut in enumerate(cuts):
        reporter = Start()
        with pytest.raises(Cut):
            run(resume=number > 0, callbacks=[CutAt(*cut)], reporter=reporter)
        starts.append((reporter.unit, reporter.first))
    reporter = Start()
    run(resume=True, reporter=reporter)
    starts.append((reporter.unit, reporter.first))
    assert starts[0][1] == 0
    assert starts[0] not in starts[1:]  # otherwise the test would prove nothing
    assert reporter.first < reporter.last


def metric_rows(run_dir):
    return [json.loads(line) for line in (Path(run_dir) / "metrics.jsonl").read_text().splitlines()]


def environment(**extra):
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **extra}


def command(*arguments):
    return [sys.executable, "-m", "rl_training", *map(str, arguments)]


def run_cli(*arguments, code=0, cwd=None, seconds=120, **extra):
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(**extra), cwd=cwd, timeout=seconds, check=False
    )
    assert done.returncode == code, f"exit {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def call_cli(capsys, *arguments, code=0):
    """The command line inside this process: for cases where starting another interpreter proves nothing more."""
    from rl_training.cli import run

    capsys.readouterr()
    got = run([str(argument) for argument in arguments])
    done = capsys.readouterr()
    assert got == code, f"exit {got}, not {code}\n{done.out}\n{done.err}"
    assert "Traceback" not in done.err
    return SimpleNamespace(stdout=done.out, stderr=done.err)
