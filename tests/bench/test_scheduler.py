"""The simulation of studies on many GPUs, against what can be computed by hand."""

from dataclasses import replace

import pytest
from benchmarks.scheduler import Scenario, simulate

PLAIN = Scenario(
    *(256, 2, 256),
    population=64,
    updates=1000,
    rate=64.0,
    episodes=0,
    start=10.0,
    spread=0.0,
    ask=0.0,
    ask_more=0.0,
    tell=0.0,
    failures=0.0,
)


def test_without_chance_it_is_arithmetic():
    outcome = simulate(PLAIN)
    assert outcome.seconds == pytest.approx(2 * (10 + 1000))  # four populations on two GPUs
    assert outcome.busy == pytest.approx(4 * 1010)
    assert (outcome.finished, outcome.lost) == (4, 0.0)


def test_the_slower_of_training_and_evaluation_decides():
    slow = replace(PLAIN, episodes=100, length=1000, step=0.01, cores=16)
    assert slow.work == pytest.approx(64 * 100 * 1000 * 0.01 / 16)
    assert simulate(slow).seconds == pytest.approx(2 * (10 + slow.work))


def test_a_batch_waits_for_the_one_before_it():
    assert simulate(replace(PLAIN, batch=64)).seconds == pytest.approx(4 * 1010)
    asked = simulate(replace(PLAIN, ask=1.0, ask_more=0.5, tell=2.0))
    assert asked.waiting_for_asks == pytest.approx(256 * (1 + 0.5 * 128) + 2 * 64 * 2)  # the last two are told one by one
    assert asked.seconds == pytest.approx(2 * 1010 + asked.waiting_for_asks)


def test_lost_nodes_cost_what_no_checkpoint_has():
    lossy = replace(PLAIN, trials=6400, batch=6400, gpus=16, failures=1 / 1000, checkpoint=50.0, noticed=5.0, repair=100.0)
    outcome = simulate(lossy, seed=1)
    assert outcome.finished == 100
    assert outcome.failures > 5
    assert 0 < outcome.lost <= outcome.failures * lossy.node * (lossy.checkpoint + lossy.start)
    assert outcome.busy == pytest.approx(100 * 1010 + outcome.lost)


def test_a_simulation_is_a_function_of_its_seed():
    some = replace(PLAIN, spread=0.2, failures=1 / 5000)
    assert simulate(some, 3) == simulate(some, 3) != simulate(some, 4)
