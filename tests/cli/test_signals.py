"""Stop signals at any moment of a command's life: the right exit code, no traceback, and nothing unsaved."""

import os
import signal
import subprocess
import sys

import pytest
import yaml

from rl_training import SAC
from rl_training.analysis.logged_run import LoggedRun
from rl_training.errors import StoppedBySignal
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.signals import SignalWatch, interrupt_on_stop_signals, interrupted_by_stop_signals
from tests.helpers import assert_same_run, checkpoints, environment, run_values, tiny_run

pytestmark = pytest.mark.usefixtures("terminal_signals")
SENDER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests may ignore some
signal.signal(signal.SIGHUP, signal.SIG_DFL)
number, name = int(sys.argv.pop(1)), sys.argv.pop(1)
class Sender:
    def find_spec(self, wanted, *_):
        if wanted == name:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Sender())
from rl_training.__main__ import main
main()
"""
WHILE_DATA_IS_BUILT = "gymnasium.envs.classic_control.pendulum"
MODULES = [
    *(
        "yaml",
        "pydantic",
        "numpy",
        "torch",
        "torch._C",
        "torch.nn.functional",
        "safetensors",
        "gymnasium",
        "rl_training.config.run",
    ),
    *("rl_training.experiment.manager", "rl_training.runtime.trainer", "rl_training.runtime.loop", WHILE_DATA_IS_BUILT),
]
NUMBERS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def check_stopped(folder, number, name):
    """Train in a process that sends itself a signal when it begins to load a module; nothing was there to save."""
    (folder / "c.yaml").write_text(yaml.safe_dump(run_values()))
    line = [sys.executable, "-c", SENDER, str(int(number)), name, "train", "c.yaml", "--run-dir", "run"]
    done = subprocess.run(line, env=environment(), cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == 128 + number, done.stderr
    assert [entry.name for entry in folder.iterdir()] == ["c.yaml"]


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGTERM, "rl_training.cli"), (signal.SIGHUP, "torch.nn"), (signal.SIGTERM, WHILE_DATA_IS_BUILT)],
)
def test_before_training_a_signal_stops_cleanly(tmp_path, number, name):
    check_stopped(tmp_path, number, name)


@pytest.mark.faults
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", MODULES)
def test_while_any_library_loads_a_signal_stops_cleanly(tmp_path, number, name):
    check_stopped(tmp_path, number, name)


class SignalAt(Callback):
    def __init__(self, number, times=1):
        self.number, self.times = number, times

    def on_log(self, step, rows):
        for _ in range(self.times if step == 50 else 0):
            signal.raise_signal(self.number)


def test_a_lost_terminal_saves_and_exits_129(finished, tmp_path):
    """The system and the shell both send SIGHUP, so a second one does not end the run before it is saved."""
    with pytest.raises(StoppedBySignal) as caught:
        tiny_run(tmp_path, callbacks=[SignalAt(signal.SIGHUP, times=2)])
    assert caught.value.exit_code == 129
    assert checkpoints(tmp_path)[-1].name == "step-000000050"
    tiny_run(tmp_path, resume=True)
    assert_same_run(finished().run_dir, tmp_path)


def test_a_run_under_nohup_goes_on(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        interrupt_on_stop_signals()
        assert tiny_run(tmp_path, callbacks=[SignalAt(signal.SIGHUP)]).step == 120
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)


LOADING = {
    "caught": "try:\n    exec('signal.raise_signal({number})')\nexcept KeyboardInterrupt:\n    return 130",
    "left alone": "exec('signal.raise_signal({number})')",
    "turned into an error": "try:\n    signal.raise_signal({number})\nexcept KeyboardInterrupt:\n    1 / 0",
    "turned into an exit code": "try:\n    signal.raise_signal({number})\nexcept KeyboardInterrupt:\n    return 2",
}


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("loading", LOADING)
def test_an_interruption_while_libraries_load_ends_with_its_own_code(number, loading):
    body = LOADING[loading].format(number=int(number)).replace("\n", "\n    ")
    fake = "import signal, sys, types\n"
    fake += "signal.signal(signal.SIGINT, signal.default_int_handler)\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    fake += f"def run(arguments):\n    {body}\n"
    fake += "sys.modules['rl_training.cli'] = types.SimpleNamespace(run=run)\n"
    started = [sys.executable, "-c", f"{fake}from rl_training.__main__ import main\nmain()"]
    ended = subprocess.run(started, env=environment(), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (128 + number, "")


def test_a_terminal_that_is_gone_does_not_matter_to_the_handler(monkeypatch):
    def gone(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr(os, "write", gone)
    with SignalWatch() as signals:
        signal.raise_signal(signal.SIGHUP)
    assert signals.stop_signal == signal.SIGHUP


def test_a_block_that_keeps_nothing_is_interrupted_by_a_lost_terminal():
    with pytest.raises(StoppedBySignal, match="SIGHUP: none kept") as caught, interrupted_by_stop_signals("none kept"):
        signal.raise_signal(signal.SIGHUP)
    assert caught.value.exit_code == 129


def test_ctrl_c_in_learn_is_a_keyboard_interrupt(tmp_path):
    fast = {"hidden_sizes": [8], "batch_size": 8, "learning_starts": 10, "log_interval": 10, "eval_episodes": 1}
    model = SAC("Pendulum-v1", run_dir=tmp_path / "run", **fast)
    with pytest.raises(KeyboardInterrupt, match="saved env step 50") as caught:
        model.learn(80, callback=SignalAt(signal.SIGINT))
    assert not isinstance(caught.value, Exception), "a loop with `except Exception` would go on"
    assert model.num_timesteps == 50
    assert LoggedRun.load(tmp_path / "run").timings[-1]["env_step"] == 50, "the time until then counts"
    with pytest.raises(StoppedBySignal):
        SAC("Pendulum-v1", **fast).learn(80, callback=SignalAt(signal.SIGTERM))
    assert model.learn(60).num_timesteps == 60
