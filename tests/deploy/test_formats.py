"""Every format computes what `predict` computes, for every algorithm, shape of network, and map around it."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_training import Policy
from rl_training.config.loading import make_config
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.deploy.check import ROWS, compare, probes
from rl_training.deploy.compiled import WARNINGS, CompiledHeader
from rl_training.deploy.formats import c_header, numpy_file, onnx_file, torch_file
from rl_training.deploy.program import Safety, program_of
from rl_training.deploy.running import numpy_runner, onnx_runner, torch_runner
from rl_training.errors import ExportError
from rl_training.registry import REGISTRY
from rl_training.runtime.build_learner import build_learner
from rl_training.runtime.population import MemberRecord
from tests.helpers import environment, run_values

pytest.importorskip("onnxruntime")
SANITIZED = (*WARNINGS, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
NAMES = ("tank level", "T_in", "never changes", "flow")
# whitening with a column that never changed, asymmetric bounds, and an action that is held at one value
SPACES = Spaces(
    *(4, 3),
    np.array([-1.0, 5.0, 0.0], dtype=np.float32),
    np.array([3.0, 5.0, 40.0], dtype=np.float32),
    NAMES,
    ("valve", "held", "pump"),
)
TRANSFORMS = replace(
    Transforms.identity(4),
    observation_mean=np.array([300.0, 0.5, 7.0, -2e-3], dtype=np.float32),
    observation_std=np.array([12.0, 0.1, np.inf, 1e-3], dtype=np.float32),
    observation_limit=10.0,
)
FORMATS = {
    "numpy": (numpy_file, numpy_runner),
    "onnx": (onnx_file, onnx_runner),
    "torch": (torch_file, torch_runner),
    "c": (c_header, None),
}


def make_policy(algo, seeds=(0, 1), **knobs):
    """A population of untrained policies, whose networks do more than those of a fresh run."""
    config = make_config(run_values(algo, seeds=list(seeds), algo_kwargs=knobs))
    learner = build_learner(algo, SPACES, seeds, torch.device("cpu"), config.algo_kwargs, ())
    draw = torch.Generator().manual_seed(7)
    tensors = {
        name: value + 0.3 * torch.randn(value.shape, generator=draw) if value.is_floating_point() else value
        for name, value in learner.model.tensors().items()
    }
    learner.model.load_tensors(tensors)
    return Policy(config, learner, SPACES, TRANSFORMS, [MemberRecord(seed) for seed in seeds])


def plain_safety():
    return Safety(SPACES.action_low, SPACES.action_high, np.full(3, np.nan, dtype=np.float32))


def runner(name, program, folder):
    writer, run = FORMATS[name]
    writer.write(program, folder)
    file = folder / writer.FILES[0]
    return CompiledHeader(file, program) if run is None else run(file, program.safety)


def check(policy, name, folder, safety=None, member=1):
    program = program_of(policy.learner.model, member, SPACES, TRANSFORMS, safety or plain_safety())
    found = compare(
        program,
        runner(name, program, folder),
        lambda rows: policy.predict(rows, member=member),
        lambda rows, actions: policy.q(rows, actions, member=member),
    )
    assert found.rows == ROWS
    assert found.largest_difference <= 1e-5
    return program, found


@pytest.mark.parametrize("algo", REGISTRY)
@pytest.mark.parametrize("name", FORMATS)
def test_every_algorithm(algo, name, tmp_path):
    check(make_policy(algo), name, tmp_path)


NORMS = [("gelu", "after"), ("silu", "before"), ("tanh", "before"), ("relu", "after")]


@pytest.mark.parametrize(("activation", "position"), NORMS)
@pytest.mark.parametrize("name", FORMATS)
def test_activations_and_norms(name, activation, position, tmp_path):
    knobs = {"activation": activation, "actor_layer_norm": True, "layer_norm_position": position, "hidden_sizes": [16, 24, 8]}
    check(make_policy("iql", **knobs), name, tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_a_linear_mean_is_clipped(name, tmp_path):
    check(make_policy("iql", policy_mean="linear"), name, tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_the_best_of_several_candidates(name, tmp_path):
    program, _ = check(make_policy("fql", action_candidates=5), name, tmp_path)
    assert program.candidates.shape == (5, 2)
    assert len(program.critics) == 2


def test_one_candidate_leaves_a_plain_network():
    policy = make_policy("fql")
    program = program_of(policy.learner.model, 0, SPACES, TRANSFORMS, plain_safety())
    assert program.candidates is None
    assert program.actor.layers[0].weight.shape[0] == 4


def test_members_differ(tmp_path):
    policy = make_policy("td3_bc")
    programs = [program_of(policy.learner.model, member, SPACES, TRANSFORMS, plain_safety()) for member in (0, 1)]
    rows, last = probes(programs[0])
    first, second = (runner("numpy", program, tmp_path)(rows, last)[0] for program in programs)
    assert np.nanmax(np.abs(first - second)) > 0.1


NAN = np.nan
SAFETIES = {  # observation, last action -> action, of the valve (range -1 to 3) whose policy says 2
    "no rule": ({}, [(1, NAN, 2.0), (NAN, 0.5, NAN)]),
    "last on NaN": ({"fallback": None}, [(1, 0.5, 2.0), (NAN, 0.5, 0.5), (NAN, NAN, NAN), (np.inf, 0.5, 0.5)]),
    "fall-back": ({"fallback": 1.0}, [(1, 0.5, 2.0), (NAN, 0.5, 1.0), (-np.inf, NAN, 1.0)]),
    "rate": ({"fallback": None, "change": 0.25}, [(1, 0.5, 0.75), (1, 2.9, 2.65), (1, NAN, 2.0), (NAN, 0.5, 0.5)]),
    "rate to the fall-back": ({"fallback": 1.0, "change": 0.25}, [(NAN, 0.5, 0.75), (NAN, 3.0, 2.75), (NAN, 1.1, 1.0)]),
    "range": ({"high": 1.5}, [(1, NAN, 1.5)]),
    "a last action outside": ({"change": 0.25, "fallback": None, "high": 1.5}, [(1, 9.0, 1.5), (NAN, 9.0, 1.5)]),
}


@pytest.mark.parametrize("rules", SAFETIES)
@pytest.mark.parametrize("name", FORMATS)
def test_rules_of_safety(name, rules, tmp_path):
    """By hand: the policy is constant, 2 for the valve, 5 (held) and 20 for the pump, whatever it sees."""
    policy = make_policy("td3_bc")
    tensors = {key: torch.zeros_like(value) for key, value in policy.learner.model.tensors().items()}
    tensors["actor/2/bias"] = torch.atanh(torch.tensor([[0.5, 0.0]])).expand(2, 2).clone()
    policy.learner.model.load_tensors(tensors)
    given, cases = SAFETIES[rules]
    low, high = SPACES.action_low.copy(), SPACES.action_high.copy()
    high[0] = given.get("high", high[0])
    other = given.get("fallback", NAN)
    fallback = None if other is None else np.array([other, 5.0, 20.0], dtype=np.float32)
    change = None if "change" not in given else np.array([given["change"], np.inf, np.inf], dtype=np.float32)
    program = program_of(policy.learner.model, 0, SPACES, TRANSFORMS, Safety(low, high, fallback, change))
    run = runner(name, program, tmp_path)
    rows = np.array([[300.0, 0.5, seen, 0.0] for seen, _, _ in cases], dtype=np.float32)
    last = np.array([[valve, 5.0, 20.0] for _, valve, _ in cases], dtype=np.float32)
    got, outside = run(rows, last)
    np.testing.assert_allclose(got[:, 0], [wanted for _, _, wanted in cases], rtol=1e-6)
    assert outside is None
    one = run(rows[:1], last[:1])[0]  # a batch of any size
    np.testing.assert_allclose(one, got[:1])


@pytest.mark.parametrize("name", FORMATS)
def test_columns_outside_the_data_are_counted(name, tmp_path):
    seen = np.array([280, 0, 7, -1], dtype=np.float32), np.array([320, 1, 7, 1], dtype=np.float32)
    policy = make_policy("sac")
    safety = replace(plain_safety(), seen=seen)
    program, _ = check(policy, name, tmp_path, safety)
    rows = np.array([[300, 0.5, 7, 0], [280, 1.1, 7, -2], [NAN, 0.5, 7, 0], [320, 1, 7.1, 1]], dtype=np.float32)
    outside = runner(name, program, tmp_path)(rows, np.zeros((4, 3), dtype=np.float32))[1]
    assert outside.tolist() == [0, 2, 1, 1]


@pytest.mark.parametrize("algo", ["iql", "fql"])
def test_the_header_is_clean_under_the_sanitizers(algo, tmp_path):
    knobs = {"action_candidates": 3} if algo == "fql" else {"actor_layer_norm": True, "activation": "gelu"}
    policy = make_policy(algo, **knobs)
    change, seen = np.full(3, 0.1, dtype=np.float32), (TRANSFORMS.observation_mean, TRANSFORMS.observation_mean)
    safety = Safety(SPACES.action_low, SPACES.action_high, None, change, seen)
    program = program_of(policy.learner.model, 0, SPACES, TRANSFORMS, safety)
    c_header.write(program, tmp_path)
    compiled = CompiledHeader(tmp_path / "policy.h", program, SANITIZED)
    rows, last = probes(program)
    assert np.isfinite(compiled(rows, last)[0][np.isfinite(last).all(axis=1)]).all()


ONE_ARRAY = """
#include "policy.h"
int main(void)
{
    float seen[4] = {300.0f, 0.5f, 7.0f, 0.0f}, other[3], same[3] = {0.5f, 5.0f, 10.0f}, last[3] = {0.5f, 5.0f, 10.0f};
    for (int call = 0; call < 3; ++call) {
        if (call == 2) seen[1] = NAN;
        if (policy_act(seen, last, other) != policy_act(seen, same, same)) return 1;
        for (int k = 0; k < 3; ++k) {
            if (other[k] != same[k]) return 2;
            last[k] = other[k];
        }
    }
    return 0;
}
"""


def test_the_header_takes_one_array_for_the_last_and_the_next_action(tmp_path):
    policy = make_policy("iql")
    change = np.array([0.1, np.inf, 1.0], dtype=np.float32)
    program = program_of(policy.learner.model, 0, SPACES, TRANSFORMS, replace(plain_safety(), fallback=None, change=change))
    c_header.write(program, tmp_path)
    (tmp_path / "main.c").write_text(ONE_ARRAY)
    command = ["gcc", *WARNINGS, str(tmp_path / "main.c"), "-o", str(tmp_path / "main"), "-lm"]
    subprocess.run(command, check=True)
    assert subprocess.run([str(tmp_path / "main")], check=False).returncode == 0
    refused = subprocess.run([*command, "-ffinite-math-only"], capture_output=True, text=True, check=False)
    assert "checks for NaN" in refused.stderr


def test_names_cannot_end_the_comment(tmp_path):
    policy = make_policy("iql")
    hostile = replace(SPACES, observation_names=('*/ system("x"); /*', "a\nb", "\\", "??/"))
    program = program_of(policy.learner.model, 0, hostile, TRANSFORMS, plain_safety())
    text = c_header.header(program)
    assert text.count("*/") == 2  # the ends of our own comments
    c_header.write(program, tmp_path)
    CompiledHeader(tmp_path / "policy.h", program)


def test_numpy_runs_without_the_package(tmp_path):
    policy = make_policy("iql")
    program = program_of(policy.learner.model, 1, SPACES, TRANSFORMS, plain_safety())
    numpy_file.write(program, tmp_path)
    code = (
        "import sys; from policy import Policy; a = Policy('policy.npz')([301.0, 0.5, 7.0, 0.0]); print(a.tolist()); "
        "assert not {'torch', 'rl_training'} & set(sys.modules)"
    )
    given = {**environment(), "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=given, capture_output=True, text=True, check=True)
    wanted = policy.predict([301.0, 0.5, 7.0, 0.0], member=1)
    np.testing.assert_allclose(json.loads(done.stdout), wanted, rtol=1e-5)


def test_a_wrong_export_is_noticed(tmp_path):
    policy = make_policy("iql")
    program = program_of(policy.learner.model, 0, SPACES, TRANSFORMS, plain_safety())
    other = runner("numpy", replace(program, middle=program.middle + np.float32(1e-3)), tmp_path)
    with pytest.raises(ExportError, match="where the policy gives"):
        compare(program, other, lambda rows: policy.predict(rows, member=0), None)
