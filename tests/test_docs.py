"""The code that the documentation shows is run as it is printed."""

import re
from dataclasses import fields

import pytest
import torch

from rl_training import IQL, TransitionDataset
from rl_training.algorithms import BC
from rl_training.bench.measure import synthetic
from rl_training.data import Batch
from tests.contract import check_traced, nearly, wanted_at
from tests.helpers import ROOT, small_arrays, small_batch


def code_block(page, containing):
    """The one block of Python on a page that contains these words."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if containing in block]
    return found


@pytest.fixture(scope="module")
def linear_model():
    """The class of `docs/extending.md`, "A network of your own"."""
    namespace = {"__name__": "docs_extending"}
    exec(code_block("extending.md", "class LinearBCModel"), namespace)  # noqa: S102 - the documentation is our own
    return namespace["LinearBCModel"]


def member_of(batch, member):
    """The rows of one member, as a population of one."""
    values = {field.name: getattr(batch, field.name) for field in fields(Batch)}
    return Batch(**{name: None if value is None else value[member : member + 1] for name, value in values.items()})


def test_the_network_of_the_guide_trains(linear_model):
    learner, batch = BC(linear_model(3, 2), actor_learning_rate=1e-2), small_batch()
    losses = [learner.update(batch).metrics["actor_loss"].item() for _ in range(100)]
    assert losses[-1] < 0.8 * losses[0]
    state = learner.state_dict()
    assert state["actor/weight"].shape == (1, 3, 2)
    assert state["actor/bias"].shape == (1, 2)
    assert learner.act(batch.observations).abs().max() <= 1.0


def test_its_state_goes_on_exactly(linear_model):
    first, second = (BC(linear_model(3, 2), actor_learning_rate=1e-2) for _ in range(2))
    for step in range(5):
        first.update(small_batch(seed=step))
    second.load_state_dict(first.state_dict())
    second.step = first.step
    for learner in (first, second):
        learner.update(small_batch(seed=5))
    theirs = second.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in first.state_dict().items())


def test_its_members_train_as_solo_learners_do(linear_model):
    population = BC(linear_model(3, 2, seeds=(4, 9)), actor_learning_rate=1e-2)
    solos = [BC(linear_model(3, 2, seeds=(seed,)), actor_learning_rate=1e-2) for seed in (4, 9)]
    for step in range(20):
        batch = small_batch(members=2, seed=step)
        population.update(batch)
        for member, solo in enumerate(solos):
            solo.update(member_of(batch, member))
    both = population.state_dict()
    assert not torch.equal(both["actor/weight"][0], both["actor/weight"][1])
    for member, solo in enumerate(solos):
        for name, value in solo.state_dict().items():
            assert torch.allclose(both[name][member], value[0], rtol=1e-5, atol=1e-7), name


def test_its_step_is_traced_for_the_compiler(linear_model):
    learner = BC(linear_model(3, 2, seeds=(0, 1)), actor_learning_rate=1e-2)
    data = synthetic(64, 3, 2)
    rows = torch.from_numpy(data.rows[:32]).view(2, 16, -1)
    wanted = wanted_at(learner, 0, metrics=True)
    check_traced(learner, rows, lambda rows, _prior: data.layout.batch(rows), wanted, nearly)


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    """A run without an environment, trained on data with the names of the guide, in the folder it names."""
    folder = tmp_path_factory.mktemp("guide")
    arrays = small_arrays(rows=200)
    arrays["actions"] = arrays["actions"] * 50.0 + 50.0
    arrays["actions"][:2] = [[0.0, 0.0], [100.0, 100.0]]
    data = TransitionDataset.from_dict(arrays, observation_names=["T1", "T2", "TSP1"], action_names=["Q1", "Q2"])
    IQL(dataset=data, run_dir=folder / "runs" / "plant", hidden_sizes=[16, 16], batch_size=32, log_interval=10).learn(20)
    return folder


def test_using_the_policy_as_in_the_guide(plant, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(plant)
    log = pandas.DataFrame({"time": [0, 1], "T1": [60, 61], "T2": [41, 40], "TSP1": [50, 50]})
    namespace = {"IQL": IQL, "log": log}
    exec(code_block("guide.md", "model.value(log)"), namespace)  # noqa: S102 - the documentation is our own
    assert namespace["losses"]["step"].tolist() == [20]
    assert (plant / "policies" / "plant" / "manifest.json").is_file()


def test_the_callbacks_of_the_guide(capsys):
    block = code_block("guide.md", "def enough").replace("20_000", "40")
    data = {"kind": "random", "size": 400}
    model = IQL("Pendulum-v1", dataset=data, hidden_sizes=[16, 16], batch_size=32, eval_interval=20, eval_episodes=1)
    exec(block, {"model": model})  # noqa: S102 - the documentation is our own
    assert capsys.readouterr().out.startswith("20 [-")
    assert model.num_timesteps == 40
