"""The code that the documentation shows is run as it is printed."""

import csv
import json
import re
import shlex
from dataclasses import fields

import numpy as np
import pytest
import torch
from benchmarks.plants import make_log
from tools.options import PAGE, page

from rl_training import IQL, TransitionDataset
from rl_training.algorithms import BC
from rl_training.bench.measure import synthetic
from rl_training.config.reference import options
from rl_training.data import Batch
from rl_training.registry import REGISTRY
from tests.contract import check_traced, nearly, wanted_at
from tests.helpers import ROOT, call_cli, small_arrays, small_batch


def code_block(page, containing, language="python"):
    """The one block of code on a page of the documentation that contains these words."""
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
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


def test_the_page_of_options_is_up_to_date():
    assert PAGE.read_text() == page(), "run `make stubs`"


def test_the_page_of_options_explains_every_key_and_links_to_itself():
    sections = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", page(), re.DOTALL | re.MULTILINE))
    anchors = {re.sub(r"[`:.]", "", title).replace(" ", "-").lower(): title for title in sections}
    assert len(anchors) == len(sections)
    keys = {title: dict(re.findall(r"^\| `(\w+)` \| `?(.*?)`? \|", text, re.MULTILINE)) for title, text in sections.items()}

    def reached(title):
        """The defaults that a reader finds, starting at one heading and following its links; the nearest counts."""
        found = {}
        for anchor in reversed(re.findall(r"\]\(#(.*?)\)", sections[title])):
            found |= reached(anchors[anchor])
        return found | keys[title]

    for spec in REGISTRY.values():
        defaults = {option.key: option.shown for option in options(spec.config)}
        assert set(defaults) == set(spec.config.model_fields)
        assert defaults.items() <= reached(f"`{spec.id}`: {spec.title}").items(), spec.id
    assert keys["`cal_ql`: Calibrated Q-learning"] == {"tail": "last_penalty", "failure_reward": "null"}
    assert keys["`redq`: Randomized ensembled double Q-learning"]["gradient_updates_per_step"] == "20"
    assert reached("`rlpd`: RL with prior data")["gradient_updates_per_step"] == "1"
    assert not re.search(r"\|\s*\|$", page().replace("| legal | |", ""), re.MULTILINE), "a key without its sentence"


def write_plant_logs(folder):
    """A file for each of a dozen episodes of the heaters, as an operator exports them."""
    folder.mkdir()
    log = make_log("heaters", episodes=12)
    starts = range(0, len(log.arrays["rewards"]), 200)
    for number, start in enumerate(starts):
        rows = slice(start, start + 200)
        table = np.concatenate((log.arrays["observations"][rows], log.arrays["actions"][rows]), axis=1)
        with (folder / f"run{number + 1}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["time", *log.observation_names, *log.action_names])
            writer.writerows([5 * step, *values] for step, values in enumerate(table.tolist()))


def test_from_logs_to_a_policy_with_the_commands_of_the_readme(tmp_path, capsys, monkeypatch):
    """As written, with fewer steps: a folder of CSV episodes, a map that computes, three commands, an answer by name."""
    monkeypatch.chdir(tmp_path)
    write_plant_logs(tmp_path / "logs")
    (tmp_path / "map.yaml").write_text(code_block("../README.md", "reward:", "yaml"))
    block = code_block("../README.md", "evaluate runs/plant", "bash")
    lines = block.splitlines()
    assert lines[1].endswith("--total-timesteps 20000")
    commands = [shlex.split(line.replace("20000", "300"))[1:] for line in lines]
    checked = call_cli(capsys, *commands[0])
    assert "error:" not in checked.stdout
    trained = call_cli(capsys, *commands[1], "--set", "algo_kwargs.hidden_sizes=[32, 32]", "--set", "eval_interval=100")
    assert "action bounds (the recorded range): Q1 0 to 100, Q2 0 to 100" in trained.stderr
    assert "best constant" in trained.stdout
    assert "best constant" in call_cli(capsys, *commands[2]).stdout
    (predict,) = re.findall(r"`rl-training (predict runs/plant --obs '.*?')`", (ROOT / "README.md").read_text())
    answer = json.loads(call_cli(capsys, *shlex.split(predict)).stdout)
    assert set(answer) == {"Q1", "Q2"}
    assert all(0.0 <= value <= 100.0 for value in answer.values())
    rows = [json.loads(line) for line in (tmp_path / "runs" / "plant" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["validation/action_distance"] < rows[-1]["validation/constant_distance"]
