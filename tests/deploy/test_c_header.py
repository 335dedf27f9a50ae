"""policy.h as a careful project compiles it: strict C99, C++, several files, sanitizers, without a heap, little stack."""

import subprocess

import numpy as np
import pytest

from rl_training.deploy.formats import c_header
from rl_training.deploy.program import Safety, program_of
from tests.deploy.test_formats import SPACES, TRANSFORMS, make_policy, plain_safety

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wdouble-promotion", "-Wshadow", "-Wundef", "-O2")
ONE = """
#include "policy.h"
#include "policy.h"
int other(const float *seen, float *action);
int main(void)
{
    float seen[4] = {300.0f, 0.5f, 7.0f, 0.0f}, a[3], b[3];
    if (policy_act(seen, a) != other(seen, b)) return 1;
    for (int k = 0; k < 3; ++k) if (a[k] != b[k]) return 2;
    return 0;
}
"""
TWO = """
#include "policy.h"
int other(const float *seen, float *action);
int other(const float *seen, float *action) { return policy_act(seen, action); }
"""
MODELS = {
    "plain": ("td3_bc", {}),
    "norms": ("iql", {"actor_layer_norm": True, "activation": "silu", "hidden_sizes": [9, 5, 33]}),
    "candidates": ("fql", {"action_candidates": 4}),
    "linear": ("iql", {"policy_mean": "linear", "hidden_sizes": [8]}),
}


def write(model, folder, safety=None):
    algo, knobs = MODELS[model]
    policy = make_policy(algo, **knobs)
    program = program_of(policy.learner.model, 0, SPACES, TRANSFORMS, safety or plain_safety())
    c_header.write(program, folder)
    (folder / "one.c").write_text(ONE)
    (folder / "two.c").write_text(TWO)
    return program


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dialect", [("gcc", "-std=c99"), ("gcc", "-std=c17"), ("g++", "-x", "c++", "-std=c++11")])
def test_strict_dialects_and_two_files(model, dialect, tmp_path):
    write(model, tmp_path)
    command = [*dialect, *STRICT, "one.c", "two.c", "-o", "main", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([str(tmp_path / "main")], check=True)


@pytest.mark.parametrize("model", MODELS)
def test_sanitizers(model, tmp_path):
    write(model, tmp_path)
    clean = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all", "-g"]
    subprocess.run(["gcc", "-std=c99", *STRICT, *clean, "one.c", "two.c", "-o", "main", "-lm"], cwd=tmp_path, check=True)
    subprocess.run([str(tmp_path / "main")], check=True)


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_allocated_and_the_stack_is_as_stated(model, tmp_path):
    program = write(model, tmp_path)
    stated = int(c_header.header(program).split("at most ")[1].split(" bytes")[0])
    for level in ("-O0", "-O2"):
        subprocess.run(["gcc", "-std=c99", level, "-fstack-usage", "-c", "two.c"], cwd=tmp_path, check=True)
        lines = [line.split("\t") for line in (tmp_path / "two.su").read_text().splitlines()]
        assert all(kind == "static" for _, _, kind in lines)
        used = {where.rpartition(":")[2]: int(size) for where, size, _ in lines}
        networks = [used.pop(name) for name in list(used) if name.startswith(("policy_actor", "policy_critic"))]
        assert sum(used.values()) + max(networks, default=0) <= stated  # one network at a time
        symbols = subprocess.run(["nm", "-u", "two.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        assert set(symbols.split()) - {"U"} <= {"tanhf", "expf", "sqrtf", "fabsf", "memset", "memcpy", "__stack_chk_fail"}


def test_every_kind_of_number_is_written_exactly():
    values = np.float32([0.0, -0.0, 1e-45, 1.17549435e-38, 3.4028235e38, 16777217, 0.1, -1 / 3])
    read = [np.float32(c_header._number(float(one)).rstrip("f")) for one in values]
    assert np.array_equal(np.signbit(read), np.signbit(values))
    np.testing.assert_array_equal(read, values)
    assert c_header._number(-np.inf) == "-INFINITY"


def test_limits_are_strict_too(tmp_path):
    seen = (TRANSFORMS.observation_mean, TRANSFORMS.observation_mean)
    write("norms", tmp_path, Safety(SPACES.action_low, SPACES.action_high, None, np.full(3, 0.1, dtype=np.float32), seen))
    (tmp_path / "two.c").write_text(TWO.replace("policy_act(seen, action)", "policy_act(seen, action, action)"))
    for command in (["gcc", "-std=c99"], ["g++", "-x", "c++", "-std=c++11"]):
        subprocess.run([*command, *STRICT, "-c", "two.c"], cwd=tmp_path, check=True)
