"""How an export is used: a sentence, and an example that runs as it stands in the card."""

from rl_training.deploy.formats import onnx_file
from rl_training.deploy.program import Program

_C = """\
/* main.c, beside policy.h: cc -std=c99 -O2 main.c -lm */
#include <stdio.h>
#include "policy.h"

int main(void)
{{
    const float observation[POLICY_OBSERVATIONS] = {{{observation}}};
    float action[POLICY_ACTIONS]{first}
    const int result = policy_act(observation{last}, action);
    for (int k = 0; k < POLICY_ACTIONS; ++k) printf("%g\\n", (double)action[k]);
    return result < 0;
}}"""
_NUMPY = """\
from policy import Policy

policy = Policy("policy.npz")
{outputs} = policy([{observation}]{last})  # or a batch, (..., {observations})
print(action)"""
_ONNX = """\
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("policy.onnx")
given = {{"observation": np.array([[{observation}]], dtype=np.float32)}}
{last}{outputs} = session.run(None, given)
print(action[0])"""
_TORCH = """\
import torch

policy = torch.export.load("policy.pt2").module()
{outputs} = policy(torch.tensor([[{observation}]]){last})
print(action[0])"""


def sentence(program: Program, format: str) -> str:
    """Return what a format needs, with the shapes of its inputs and outputs."""
    inputs, outputs = [f"`observation` (batch, {len(program.mean)})"], [f"`action` (batch, {len(program.middle)})"]
    if program.safety.uses_last:
        inputs.append(f"`last_action` (batch, {len(program.middle)})")
    if program.safety.seen is not None:
        outputs.append("`outside` (batch), int64")
    shapes = f"{', '.join(inputs)} to {', '.join(outputs)}; float32, a batch of any size."
    return {
        "numpy": f"Python with numpy alone: {shapes}",
        "onnx": f"ONNX, opset {onnx_file.OPSET}, IR version {onnx_file.IR_VERSION}: {shapes}",
        "torch": f"torch.export: {shapes}",
        "c": "C99 or C++, float32, one observation a call; nothing is allocated. Include it in one source file: "
        "each has its own copy of the numbers.",
    }[format]


def example(program: Program, format: str) -> str:
    """Return a program that asks the policy for an action."""
    last, flag = program.safety.uses_last, program.safety.seen is not None
    actions = len(program.middle)
    values = ", ".join(repr(float(f"{value:.5g}")) for value in program.mean)
    if format == "c":
        floats = ", ".join(f"{float(f'{value:.5g}')!r}f" for value in program.mean)
        first = f" = {{{', '.join(['NAN'] * actions)}}}; /* the last action: not known before the first call */"
        return _C.format(observation=floats, last=", action" if last else "", first=first if last else ";")
    outputs = "action, outside" if flag else "action"
    unknown = ", ".join(['float("nan")'] * actions)
    if format == "numpy":
        given = f", [{unknown}]" if last else ""
        return _NUMPY.format(outputs=outputs, observation=values, last=given, observations=len(program.mean))
    if format == "onnx":
        given = f'given["last_action"] = np.array([[{unknown}]], dtype=np.float32)  # not known before the first call\n'
        return _ONNX.format(outputs=outputs if flag else "(action,)", observation=values, last=given if last else "")
    given = f", torch.tensor([[{unknown}]])" if last else ""
    return _TORCH.format(outputs=outputs, observation=values, last=given)
