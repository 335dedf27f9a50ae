"""How many threads a policy acts with."""

import os
import sys

import pytest
import torch

from rl_training import Policy
from rl_training.__main__ import main
from rl_training.models import MLPIQLModel
from rl_training.models.threads import acting_threads, one_thread, weights


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_large_work_alone_takes_more_than_one_thread():
    model = MLPIQLModel(3, 1, hidden_sizes=(16, 16), seeds=[0, 1])
    assert weights(model) == 2 * 369 + 353 + 353 + 1  # critics, value, policy and its deviation
    for rows, threads in ((1, 1), (10_000, 1), (1_000_000, 2)):
        with acting_threads(model, rows):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="inside"), one_thread():
        raise ValueError("inside")
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_a_small_policy_acts_on_one_thread(finished, monkeypatch):
    policy, used = Policy.load(finished().run_dir, device="cpu"), []
    act = policy.learner.act
    monkeypatch.setattr(policy.learner, "act", lambda *a, **k: used.append(torch.get_num_threads()) or act(*a, **k))
    policy.predict([1.0, 0.0, 0.0])
    policy.evaluate(1)
    assert set(used) == {1}
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("given", "policy"), [(None, "passive"), ("active", "active")])
def test_threads_of_a_command_sleep_while_they_wait(given, policy, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rl-training", "--help"])
    monkeypatch.setenv("OMP_WAIT_POLICY", "to be restored")
    if given is None:
        del os.environ["OMP_WAIT_POLICY"]
    else:
        os.environ["OMP_WAIT_POLICY"] = given
    with pytest.raises(SystemExit):
        main()
    assert os.environ["OMP_WAIT_POLICY"] == policy
    assert "rl-training" in capsys.readouterr().out
