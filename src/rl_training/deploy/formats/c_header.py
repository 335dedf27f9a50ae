"""`c`: policy.h, one header in C99 without allocation, in float32; for a controller without Python."""

import re
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.deploy.program import Network, Program
from rl_training.models.mlp.eager import LAYER_NORM_EPS

FILES = ("policy.h",)
_PER_LINE = 8
_ACTIVATIONS = {
    "relu": "x < 0.0f ? 0.0f : x",
    "tanh": "tanhf(x)",
    "silu": "x / (1.0f + expf(-x))",
    "gelu": "0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)))",
}

_TEXT = Template("""\
/* A control policy, from observations in real units to actions in real units; see card.md.
 *
 *   int policy_act(const float observation[$observations]${last_text}, float action[$actions])
 *
 * returns -1 if an observation was NaN or beyond $largest, or an action not finite: then the action is $fallback_text;
 * otherwise $flag.
$last_lines * No memory is allocated; at most $stack bytes of stack are used. Observations, in this order:
$observation_lines
 * Actions:
$action_lines
 */
#ifndef POLICY_H
#define POLICY_H

#include <math.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "policy.h checks for NaN, which -ffast-math and -ffinite-math-only remove"
#endif

#define POLICY_OBSERVATIONS $observations
#define POLICY_ACTIONS $actions

$numbers

static inline float policy_active(float x) { return $activation; }

static inline float policy_bounded(float x, float low, float high) { return x < low ? low : (x > high ? high : x); }

/* out = in * weight + bias, with the activation and the norm of a hidden layer */
static inline void policy_layer(const float *in, int inputs, const float *weight, const float *bias, int outputs, float *out)
{
    for (int j = 0; j < outputs; ++j) out[j] = bias[j];
    for (int i = 0; i < inputs; ++i)
        for (int j = 0; j < outputs; ++j) out[j] += in[i] * weight[i * outputs + j];
}

static inline void policy_activate(float *x, int count)
{
    for (int j = 0; j < count; ++j) x[j] = policy_active(x[j]);
}

static inline void policy_normalise(float *x, int count, const float *scale, const float *offset)
{
    float mean = 0.0f, variance = 0.0f;
    for (int j = 0; j < count; ++j) mean += x[j];
    mean /= (float)count;
    for (int j = 0; j < count; ++j) variance += (x[j] - mean) * (x[j] - mean);
    const float factor = 1.0f / sqrtf(variance / (float)count + $epsilon);
    for (int j = 0; j < count; ++j) x[j] = (x[j] - mean) * factor * scale[j] + offset[j];
}

$networks
static inline int policy_act(const float *observation$last_argument, float *action)
{
    float in[$width], other[$width];
    int good = 1, outside = 0;
    for (int i = 0; i < POLICY_OBSERVATIONS; ++i) {
        if (!(fabsf(observation[i]) <= policy_largest)) good = 0;
$outside_line        const float seen = good ? (observation[i] - policy_mean[i]) / policy_std[i] : 0.0f;
        in[i] = policy_bounded(seen, -policy_limit, policy_limit);
    }
    float unit[$learned], chosen[POLICY_ACTIONS];
$choose
    int learned = 0;
    for (int k = 0; k < POLICY_ACTIONS; ++k) {
        const float own = policy_free[k] ? unit[learned++] : 0.0f;
        chosen[k] = own * policy_half_range[k] + policy_middle[k];
        if (!isfinite(chosen[k])) good = 0;
        chosen[k] = policy_bounded(chosen[k], policy_low[k], policy_high[k]);
    }
    for (int k = 0; k < POLICY_ACTIONS; ++k) {
        float x = good ? chosen[k] : $fallback;
$change_lines        action[k] = policy_bounded(x, policy_low[k], policy_high[k]);
    }
    return good ? outside : -1;
}

#endif
""")


def write(program: Program, directory: Path) -> None:
    """Write the file of a policy."""
    (directory / "policy.h").write_text(header(program), encoding="utf-8")


def header(program: Program) -> str:
    """Return the text of the header."""
    safety, last = program.safety, program.safety.uses_last
    width = max(_widest(network) for network in (program.actor, *program.critics))
    constants = safety.fallback is not None
    return _TEXT.substitute(
        observations=len(program.mean),
        actions=len(program.middle),
        last_text=f", const float last_action[{len(program.middle)}]" if last else "",
        last_lines=_LAST if last else "",
        last_argument=", const float *last_action" if last else "",
        flag="0" if safety.seen is None else "the number of observations that are outside the range of the data",
        fallback_text=_fallback_text(program),
        largest=f"{safety.largest:g}",
        stack=4 * (3 * width + 3 * len(program.middle)) + 512,
        observation_lines=_lines(program.observation_names, program.safety.seen),
        action_lines=_lines(program.action_names, (safety.low, safety.high), safety.change),
        numbers="\n".join(_numbers(program)),
        activation=_ACTIVATIONS[program.activation],
        epsilon=_number(LAYER_NORM_EPS),
        networks="".join(_network(name, network, width) for name, network in _networks(program)),
        width=width,
        learned=int(program.free.sum()) or 1,
        outside_line="" if safety.seen is None else _OUTSIDE,
        choose=_choose(program),
        fallback="policy_fallback[k]" if constants else "(isfinite(last_action[k]) ? last_action[k] : NAN)",
        change_lines="" if safety.change is None else _CHANGE,
    )


_LAST = """\
 * `last_action` is what was really applied before this call, NaN (or infinite) if that is not known, as before the
 * first one: then nothing limits the change. It may be the same array as `action`.
"""
_OUTSIDE = "        if (!(observation[i] >= policy_seen_low[i] && observation[i] <= policy_seen_high[i])) ++outside;\n"
_CHANGE = """\
        if (isfinite(last_action[k]))
            x = policy_bounded(x, last_action[k] - policy_change[k], last_action[k] + policy_change[k]);
"""
_CHOOSE = Template("""\
    float best = -INFINITY;
    for (int c = 0; c < $candidates; ++c) {
        float own[$learned];
        for (int k = 0; k < $learned; ++k) in[POLICY_OBSERVATIONS + k] = policy_candidates[c * $learned + k];
        policy_actor(in, other);
        for (int k = 0; k < $learned; ++k) own[k] = in[POLICY_OBSERVATIONS + k] = $squashed;
        float value = INFINITY;
$critics        if (value > best || c == 0) {
            best = value;
            for (int k = 0; k < $learned; ++k) unit[k] = own[k];
        }
    }""")


def _fallback_text(program: Program) -> str:
    values = program.safety.fallback
    if values is None:
        return "the last one"
    return "NaN" if np.isnan(values).all() else f"({', '.join(f'{value:g}' for value in values)})"


def _choose(program: Program) -> str:
    """The lines that fill `unit` with actions in [-1, 1]."""
    learned = int(program.free.sum())
    squashed = "tanhf(other[k])" if program.squashed else "policy_bounded(other[k], -1.0f, 1.0f)"
    if program.candidates is None:
        return f"    policy_actor(in, other);\n    for (int k = 0; k < {learned}; ++k) unit[k] = {squashed};"
    call = "        policy_critic{0}(in, other);\n        if (other[0] < value) value = other[0];\n"
    critics = "".join(call.format(number) for number in range(len(program.critics)))
    return _CHOOSE.substitute(candidates=len(program.candidates), learned=learned, squashed=squashed, critics=critics)


def _networks(program: Program) -> list[tuple[str, Network]]:
    return [("actor", program.actor), *((f"critic{k}", one) for k, one in enumerate(program.critics))]


def _widest(network: Network) -> int:
    return max(int(width) for layer in network.layers for width in layer.weight.shape)


def _network(name: str, network: Network, width: int) -> str:
    """The function of a perceptron; it leaves its inputs as they are."""
    lines = [f"static inline void policy_{name}(const float *in, float *out)", "{", f"    float hidden[{width}];"]
    last = len(network.layers) - 1
    source, target = "in", "hidden" if last % 2 else "out"  # the last layer must end in `out`
    for number, layer in enumerate(network.layers):
        inputs, outputs = layer.weight.shape
        own = f"policy_{name}_{number}"
        lines.append(f"    policy_layer({source}, {inputs}, {own}_weight, {own}_bias, {outputs}, {target});")
        active = f"    policy_activate({target}, {outputs});"
        if number < last:
            normalise = (
                [f"    policy_normalise({target}, {outputs}, {own}_scale, {own}_offset);"] if network.norm != "none" else []
            )
            lines += [active, *normalise] if network.norm == "after" else [*normalise, active]
        source, target = target, "out" if target == "hidden" else "hidden"
    if last == 0:
        lines.append("    (void)hidden;")
    return "\n".join([*lines, "}", "", ""])


def _numbers(program: Program) -> Iterable[str]:
    """The constants of the policy."""
    safety, free = program.safety, [str(int(one)) for one in program.free]
    yield f"static const float policy_limit = {_number(program.limit)};"
    yield f"static const float policy_largest = {_number(safety.largest)};"
    yield f"static const int policy_free[{len(free)}] = {{{', '.join(free)}}};"
    arrays = {name: getattr(program, name) for name in ("mean", "std", "middle", "half_range", "candidates")}
    arrays |= {name: getattr(safety, name) for name in ("low", "high", "fallback", "change")}
    if safety.seen is not None:
        arrays |= {"seen_low": safety.seen[0], "seen_high": safety.seen[1]}
    for name, network in _networks(program):
        for number, layer in enumerate(network.layers):
            arrays |= {f"{name}_{number}_{part}": value for part, value in vars(layer).items()}
    yield from (_array(f"policy_{name}", value) for name, value in arrays.items() if value is not None)


def _array(name: str, values: NDArray[Any]) -> str:
    texts = [_number(float(value)) for value in np.asarray(values, dtype=np.float32).ravel()]
    lines = [", ".join(texts[first : first + _PER_LINE]) for first in range(0, len(texts), _PER_LINE)]
    return f"static const float {name}[{len(texts)}] = {{\n    " + ",\n    ".join(lines) + "};"


def _number(value: float) -> str:
    """A float32 as C writes it, exactly."""
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = f"{np.float32(value):.9g}"
    return f"{text}f" if re.search("[.e]", text) else f"{text}.0f"


def _lines(names: Iterable[str], ranges: tuple[NDArray[Any], NDArray[Any]] | None, change: NDArray[Any] | None = None) -> str:
    """Names for a comment, whatever characters they have, with ranges and largest changes in a call."""
    found = []
    for number, name in enumerate(names):
        plain = re.sub(r"[^A-Za-z0-9 _.,:()\[\]-]", "_", name)
        span = "" if ranges is None else f", {ranges[0][number]:g} to {ranges[1][number]:g}"
        limited = change is not None and np.isfinite(change[number])
        found.append(f" *   {number}: {plain}{span}" + (f", at most {change[number]:g} from the last" if limited else ""))  # type: ignore[index]
    return "\n".join(found)
