"""Runs in processes of their own, killed at random moments and at named places, end bit for bit as undisturbed ones."""

import signal

import pytest

from rl_training.integrity.comparing import differences
from rl_training.integrity.files import check_files
from rl_training.integrity.processes import Cut, train_process
from tests.faults.kinds import KINDS
from tests.helpers import generator

PLACES = [
    "save:before-rename@7",
    "save:after-rename@9",
    "save:state.json:half@5",
    "evaluation:done@2",
    "metrics:row@31",
    "save:prune@3",
]
ONLINE_PLACES = ["save:before-replay@4", "save:after-replay@6", "save:prune-replay@2"]
CASES = [
    *((kind, place) for kind in ("solo", "duals", "online") for place in PLACES),
    *(("online", place) for place in ONLINE_PLACES),
]


@pytest.mark.faults
@pytest.mark.parametrize(("kind", "place"), CASES)
def test_killed_at_a_named_place(wholes, fault_count, tmp_path, kind, place):
    whole, config = wholes(kind)
    point, _, visit = place.partition("@")
    assert train_process(config, tmp_path / "run", cut=Cut(int(visit), point=point)).exit_code == -signal.SIGKILL
    train_process(config, tmp_path / "run").check([0])
    assert differences(whole, tmp_path / "run") == []
    fault_count("kills at calls", 1, 1)


def cut_in_a_row(config, run_dir, number, seed):
    """Cut a run ten times, each a few checkpoints and a moment further on, and finish it; return how often it was hit."""
    draw, hit = generator(seed), 0
    for _ in range(10):
        cut = Cut(int(draw.integers(1, 4)), float(draw.uniform(0.0, 0.05)), number)
        ended = train_process(config, run_dir, cut=cut)
        hit += ended.exit_code == cut.exit_code
    train_process(config, run_dir).check([0])
    return hit


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_ten_kills_in_a_row(wholes, fault_count, tmp_path, kind):
    whole, config = wholes(kind)
    hit = cut_in_a_row(config, tmp_path / "run", signal.SIGKILL, seed=KINDS.index(kind))
    assert hit == 10, "some came after the end, and prove nothing"
    same = differences(whole, tmp_path / "run") == [] and check_files(tmp_path / "run").whole
    fault_count("kills", hit * same, 10)


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["population", "finetune"])
def test_ten_stops_in_a_row(wholes, fault_count, tmp_path, kind):
    whole, config = wholes(kind)
    assert cut_in_a_row(config, tmp_path / "run", signal.SIGTERM, seed=11) == 10
    assert differences(whole, tmp_path / "run") == []
