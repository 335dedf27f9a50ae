"""Every signal in every stage of a run: nothing is lost, the exit code says which it was, and the run ends as undisturbed."""

import signal
import subprocess

import pytest

from rl_training import faults
from rl_training.integrity.comparing import differences
from rl_training.integrity.processes import train_process
from tests.helpers import command, environment, generator

SHORT = {"total_timesteps": 160, "checkpoint_interval": 20, "log_interval": 10, "eval_interval": 60}
STAGES = {  # where the run signals itself, at the visit of a fault point
    "data is read": ("solo", "data:begin"),
    "first row": ("solo", "metrics:row@1"),
    "steps": ("population", "metrics:row@9"),
    "compiled steps": ("compiled", "metrics:row@3"),
    "evaluation": ("solo", "evaluation:begin@2"),
    "evaluation done": ("solo", "evaluation:done@2"),
    "checkpoint half written": ("solo", "save:state.safetensors:half@3"),
    "checkpoint in place": ("solo", "save:after-rename@3"),
    "old checkpoint goes": ("solo", "save:prune@2"),
    "collecting": ("online", "metrics:row@7"),
    "replay": ("online", "save:before-replay@3"),
}
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS = (*STOPS, signal.SIGUSR1)


def goes_on(config, run_dir, whole):
    """Whether the same command finishes the run as if nothing had been."""
    return train_process(config, run_dir).exit_code == 0 and differences(whole, run_dir) == []


@pytest.mark.faults
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("stage", STAGES)
def test_a_signal_in_a_stage(wholes, fault_count, tmp_path, stage, number):
    kind, point = STAGES[stage]
    whole, config = wholes(kind, **SHORT)
    started = command("train", config, "--run-dir", tmp_path / "run", "--resume", "auto")
    variables = environment(**{faults.VARIABLE: f"{point}={number.name}"})
    done = subprocess.run(started, env=variables, capture_output=True, text=True, timeout=300, check=False)
    wanted = 0 if number == signal.SIGUSR1 else 128 + number
    passed = done.returncode == wanted and "Traceback" not in done.stderr
    fault_count("signals", int(passed and goes_on(config, tmp_path / "run", whole)), 1)


@pytest.mark.faults
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_while_libraries_load_loses_nothing(wholes, fault_count, tmp_path, number):
    """There is nothing to save yet, or what was saved before stays: the process may end as the system ends it."""
    whole, config = wholes("solo", **SHORT)
    draw = generator(int(number))
    for _ in range(2):
        started = command("train", config, "--run-dir", tmp_path / "run", "--resume", "auto")
        process = subprocess.Popen(started, env=environment(), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            process.wait(float(draw.uniform(0.05, 1.5)))
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        assert process.wait(300) in (0, 128 + number, -number)
    fault_count("signals", int(goes_on(config, tmp_path / "run", whole)), 1)
