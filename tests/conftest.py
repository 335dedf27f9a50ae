"""Shared fixtures: tiny data and runs, one thread, no network, no global randomness."""

import os
import signal

import numpy as np
import pytest
import torch

from tests import helpers
from tests.faults.counting import fault_count, pytest_addoption, pytest_terminal_summary  # noqa: F401 - a fixture and hooks


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a file in one process, so that the runs they share are trained once; `--dist` still chooses."""
    if config.getoption("dist") != "load":  # what `-n` alone asks for
        return None
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def terminal_signals():
    """SIGINT and SIGHUP do what they do in a terminal; by nohup, or in the background, tests are started to ignore them."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _global_generators_untouched():
    """Nothing in the package may draw from a global generator."""
    before = torch.random.get_rng_state().clone(), np.random.get_state()[1].copy()  # noqa: NPY002
    yield
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_disk(monkeypatch):
    """No test can lose power, and a kill loses nothing that the system was given, so none can tell."""
    monkeypatch.setattr(os, "fsync", lambda _handle: None)


@pytest.fixture
def dataset():
    return helpers.small_dataset()


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Finished tiny runs by algorithm and seeds, to look at and not to change."""
    runs = helpers.FinishedRuns(tmp_path_factory.mktemp("finished"))
    yield runs
    runs.check_unchanged()
