"""Members with knobs of their own: each trains exactly as a solo learner with these knobs."""

from dataclasses import asdict

import pytest
import torch

from rl_training import registry
from rl_training.algorithms.iql import IQL, advantage_weights, expectile_loss
from rl_training.algorithms.per_member import per_member
from rl_training.data import Batch
from rl_training.errors import ConfigError
from rl_training.models import MLPIQLModel
from tests.contract import make_learner
from tests.helpers import small_batch

VALUES = {
    "gamma": (0.9, 0.5),
    "tau": (0.005, 0.7),
    "actor_learning_rate": (3e-4, 1e-2),
    "critic_learning_rate": (3e-4, 1e-2),
    "value_learning_rate": (3e-4, 1e-2),
    "temperature_learning_rate": (3e-4, 1e-2),
    "multiplier_learning_rate": (3e-4, 1e-2),
    "actor_weight_decay": (0.0, 10.0),
    "critic_weight_decay": (0.1, 10.0),
    "max_grad_norm": (0.01, 0.1),
    "expectile": (0.6, 0.9),
    "beta": (0.5, 5.0),
    "awac_lambda": (0.2, 2.0),
    "eta": (0.5, 5.0),
    "max_advantage_weight": (0.7, 1.1),
    "loss_temperature": (0.5, 2.0),
    "max_value_diff_exp": (0.1, 0.7),
    "target_entropy": (-9.0, 9.0),
    "target_entropy_multiplier": (0.5, 9.0),
    "cql_alpha": (0.5, 5.0),
    "cql_temperature": (0.5, 2.0),
    "lagrange_gap": (-9.0, 9.0),
    "cql_clip_diff_min": (3.0, 5.0),
    "cql_clip_diff_max": (3.0, 4.0),
    "alpha": (0.1, 2.0),
    "actor_bc_coef": (0.01, 1.0),
    "critic_bc_coef": (0.01, 1.0),
    "target_noise": (0.1, 0.9),
    "target_noise_clip": (0.05, 0.4),
}
BESIDE = {  # what a knob needs beside it to do anything
    ("xql", "expectile"): {"vanilla_value_loss": True},
    ("rlpd", "target_entropy"): {"alpha": "auto"},
    ("rlpd", "target_entropy_multiplier"): {"alpha": "auto"},
    ("cql", "multiplier_learning_rate"): {"lagrange_gap": 1.0},
    ("cal_ql", "multiplier_learning_rate"): {"lagrange_gap": 1.0},
    ("rlpd", "temperature_learning_rate"): {"alpha": "auto"},
}
CASES = [(algo, knob) for algo in registry.names() for knob in make_learner(algo).knobs.sweepable()]


def train(learner, batches):
    for batch in batches:
        learner.update(batch)
    return learner.state_dict()


def batches(members, steps=5):
    """The same rows for every member, so that members differ by their knobs alone."""
    for step in range(steps):
        columns = asdict(small_batch(seed=step))
        yield Batch(
            **{name: value if value is None else value.expand(members, *value.shape[1:]) for name, value in columns.items()}
        )


@pytest.mark.parametrize(("algo", "knob"), CASES, ids=lambda part: part)
def test_a_member_trains_like_a_solo_learner_with_its_value(algo, knob):
    beside, values = BESIDE.get((algo, knob), {}), VALUES[knob]
    swept = make_learner(algo, seeds=(4, 4), member_knobs=[{knob: value} for value in values], **beside)
    both = train(swept, batches(2))
    for member, value in enumerate(values):
        solo = train(make_learner(algo, seeds=(4,), **beside, **{knob: value}), batches(1))
        for name, tensor in solo.items():
            assert torch.allclose(both[name][member].double(), tensor[0].double(), rtol=1e-5, atol=1e-7), name
    assert any(not torch.equal(tensor[0], tensor[1]) for tensor in both.values()), f"{knob} does nothing"


@pytest.mark.parametrize("algo", registry.names())
def test_every_number_at_once_and_three_members(algo):
    """Three members, so that no axis of critics, samples or actions has their length by chance; all knobs differ at once."""
    legal = [knob for knob in make_learner(algo).knobs.sweepable() if knob not in ("cql_clip_diff_min", "alpha")]
    members = [
        {knob: VALUES[knob][0] + share * (VALUES[knob][1] - VALUES[knob][0]) for knob in legal} for share in (0, 0.5, 1)
    ]
    beside = {"alpha": "auto"} if algo == "rlpd" else {}
    both = train(make_learner(algo, seeds=(4, 5, 4), member_knobs=members, **beside), batches(3))
    for member, (seed, own) in enumerate(zip((4, 5, 4), members, strict=True)):
        solo = train(make_learner(algo, seeds=(seed,), **beside, **own), batches(1))
        for name, tensor in solo.items():
            assert torch.allclose(both[name][member].double(), tensor[0].double(), rtol=1e-5, atol=1e-7), name


def test_expectile_loss_by_hand():
    """Residuals 2 and -1: (0.7 * 4 + 0.3 * 1) / 2 = 1.55 and (0.9 * 4 + 0.1 * 1) / 2 = 1.85."""
    residual = torch.tensor([[2.0, -1.0], [2.0, -1.0]])
    assert expectile_loss(residual, torch.tensor([[0.7], [0.9]])).tolist() == pytest.approx([1.55, 1.85])
    weights = advantage_weights(
        torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5], [2.0]])
    )
    assert weights.tolist() == [[0.5, 0.5], [1.0, 2.0]]


def test_value_loss_of_two_expectiles_by_hand():
    """All weights zero but the target critics' last bias 2: V = 0, Q = 2, so the value loss is expectile * 4."""
    model = MLPIQLModel(2, 1, seeds=(0, 0), hidden_sizes=(4,))
    tensors = {name: torch.zeros_like(value) for name, value in model.tensors().items()}
    tensors["target/critic/1/bias"].fill_(2.0)
    model.load_tensors(tensors)
    learner = IQL(model, member_knobs=[{"expectile": 0.7}, {"expectile": 0.9}])
    _, metrics = learner.pure_loss(small_batch(members=2, observation_dim=2, action_dim=1))
    assert metrics["value_loss"].tolist() == pytest.approx([2.8, 3.6])


def test_a_column_meets_its_own_axis():
    column = torch.tensor([[1.0], [2.0]])
    assert per_member(0.5, torch.zeros(2)) == 0.5
    assert per_member(column, torch.zeros(2)).shape == (2,)
    assert per_member(column, torch.zeros(2, 3, 4, 5)).shape == (2, 1, 1, 1)


@pytest.mark.parametrize(
    ("member_knobs", "words"),
    [
        ([{"expectile": 0.7}], "member_knobs must name the same knobs for each of the 2 members"),
        ([{"expectile": 0.7}, {"beta": 1.0}], "must name the same knobs"),
        ([{"expectile": 0.7}, {"expectile": 1.5}], "`expectile` = 1.5 is not legal: must be a number >= 0.5 and < 1.0"),
        ([{"hidden_sizes": 3}, {"hidden_sizes": 4}], "`hidden_sizes` cannot be swept"),
    ],
)
def test_member_knobs_are_checked(member_knobs, words):
    with pytest.raises(ConfigError) as caught:
        make_learner("iql", seeds=(0, 1), member_knobs=member_knobs)
    assert words in str(caught.value)


def test_without_own_knobs_nothing_is_a_column():
    learner = make_learner("iql", seeds=(0, 1))
    assert learner.member_knobs == [{}, {}]
    assert learner.knobs.expectile == 0.7
