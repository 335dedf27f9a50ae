"""Runs our learner on the numbers of a reference: the same batches, weights and noise, in float64.

Where the other code differs from ours by design, the reference's `alignment` says so, and it is our learner that is changed
here, by the test and not by an option of the package:

* `order`: the groups in the order in which the other code updates them, a list of lists. The losses are computed anew before
  each list; the targets follow last. Ours, the default, updates all groups at once.
* `targets`: `early` where the targets follow the networks as they are before the last of these lists is applied.
* `scale`: a factor per group for its loss and gradient; 0.5 where the other code takes the mean over two critics, `alpha`
  where it differentiates the loss of the temperature with alpha for log(alpha).
* `squash_epsilon`: e in log(1 - tanh(u)^2 + e), which some codes add to the density of a squashed action.
* `round`: the number of updates in a round, which a run knows and a learner alone does not.
* `layer_norm_epsilon`, `adam_epsilon`: where they are not 1e-5 and 1e-8.
"""

import json
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import log, pi
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from rl_training.algorithms.learner import Rounds, Step, summarize
from rl_training.data.batch import Batch
from rl_training.models.mlp import eager
from rl_training.models.sac import TanhGaussian
from rl_training.registry import get_spec
from rl_training.rng import Draws

HOME = Path(__file__).parent
GROUP_OF_METRIC = {
    "alpha_loss": "temperature",
    "conservative_loss": "critic",
    **dict.fromkeys(("bc_loss", "flow_loss", "distill_loss"), "actor"),
}


class Reference:
    """The content of a file: `meta` and arrays by name."""

    def __init__(self, path):
        with np.load(path, allow_pickle=False) as file:
            self._arrays = {name: file[name] for name in file.files if name != "meta"}
            self.meta = json.loads(str(file["meta"]))
        self.alignment = self.meta["alignment"]

    def under(self, kind):
        """The arrays of a kind (`batch`, `noise`, `initial`, `losses`, `gradients`, `final`) by the rest of their names."""
        found = {name.partition("/")[2]: array for name, array in self._arrays.items() if name.startswith(f"{kind}/")}
        return {name: torch.from_numpy(array) for name, array in found.items()}


class GivenDraws(Draws):
    """The recorded noise of a step, by the name of the stream; a stream or a shape that was not recorded is an error."""

    def __init__(self, values):
        self._values, self._part = values, (0, 1)

    def _chunk(self, draw, stream, shape):
        values = self._values[stream]
        assert values.shape[1:] == tuple(shape), f"our `{stream}` is {tuple(shape)}, recorded is {tuple(values.shape[1:])}"
        assert not values.isnan().any(), f"our `{stream}` is drawn at a step where the other code draws nothing"
        return values


class Outcome:
    """What our learner did: `losses` (steps,) by name, the first `gradients` and the `final` parameters."""

    def __init__(self):
        self.losses, self.gradients, self.final = {}, {}, {}


def run(reference, **changed):
    """Return the outcome of our updates on a reference; `changed` replaces knobs of the learner."""
    with ExitStack() as stack:
        stack.enter_context(_double_precision())
        stack.enter_context(_aligned_networks(reference.alignment))
        learner = _learner(reference, changed)
        return _updates(learner, reference)


@contextmanager
def _double_precision():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def _aligned_networks(alignment):
    """Our networks with the other code's epsilons."""
    with ExitStack() as stack:
        if "layer_norm_epsilon" in alignment:
            stack.enter_context(patch.object(eager, "LAYER_NORM_EPS", alignment["layer_norm_epsilon"]))
        if "squash_epsilon" in alignment:
            density = _density_with(alignment["squash_epsilon"])
            stack.enter_context(patch.object(TanhGaussian, "log_prob", lambda policy, a: density(policy, a.atanh())))
            stack.enter_context(patch.object(TanhGaussian, "sample", lambda policy, noise: _sample(policy, noise, density)))
        yield


def _density_with(epsilon):
    """The log-density of tanh(u) with an epsilon."""

    def density(policy, u):
        log_std = policy.log_std
        normal = -0.5 * ((u - policy.mean) / log_std.exp()).square() - log_std - 0.5 * log(2.0 * pi)
        return (normal - (1.0 - u.tanh().square() + epsilon).log()).sum(-1)

    return density


def _sample(policy, noise, density):
    if noise.ndim == 4:
        policy = TanhGaussian(policy.mean.unsqueeze(1), policy.log_std.unsqueeze(1))
    u = policy.mean + policy.log_std.exp() * noise
    return u.tanh(), density(policy, u)


def _learner(reference, changed):
    spec, meta = get_spec(reference.meta["algorithm"]), reference.meta
    batch = reference.under("batch")
    dims = batch["observations"].shape[-1], batch["actions"].shape[-1]
    model = spec.model_type(*dims, **meta["networks"])
    own, initial = model.tensors(), reference.under("initial")
    assert {name: value.shape for name, value in initial.items()}.items() <= {n: v.shape for n, v in own.items()}.items()
    model.load_tensors(own | initial)
    learner = spec.learner(model, **meta["knobs"] | changed)
    learner.rounds = Rounds(length=reference.alignment.get("round", 1))
    if "adam_epsilon" in reference.alignment:
        options = learner.optimizer.options
        options |= {name: replace(one, eps=reference.alignment["adam_epsilon"]) for name, one in options.items()}
    return learner


def _updates(learner, reference):
    batches, noise, outcome = reference.under("batch"), reference.under("noise"), Outcome()
    for step in range(len(batches["rewards"])):
        batch = Batch(**{name: values[step] for name, values in batches.items()})
        draws = GivenDraws({stream: values[step] for stream, values in noise.items()})
        _update(learner, batch, draws, reference.alignment, outcome)
    outcome.final = learner.model.tensors()
    return outcome


def _update(learner, batch, draws, alignment, outcome):
    """One update in the order of the other code."""
    model, due = learner.model, learner.due_groups(learner.step)
    order = [[g for g in groups if g in due] for groups in alignment.get("order", [list(model.trained.groups)])]
    order = [*filter(None, order)]
    for now in order:
        loss, metrics = learner.loss(batch, Step(draws, due, stage=learner.stage(learner.step)))
        scale = {group: _factor(learner, factor) for group, factor in alignment.get("scale", {}).items()}
        gradients = learner.gradients(loss, now)
        gradients = {s.name: gradients[s.name] * scale.get(s.group, 1.0) for s in model.trained.segments if s.group in now}
        _keep_first_gradients(model, gradients, outcome)
        _keep_losses(summarize(metrics), now, scale, learner.step, outcome)
        if alignment.get("targets") == "early" and now is order[-1]:
            _move_targets(learner)
        learner.move(gradients, now, dict.fromkeys(now, 1.0), targets=False)
    if alignment.get("targets") != "early":
        _move_targets(learner)
    learner.step += 1


def _factor(learner, factor):
    return learner.alpha() if factor == "alpha" else factor


def _move_targets(learner):
    learner.move({}, (), {}, targets=learner.targets_due(learner.step))


def _keep_first_gradients(model, gradients, outcome):
    for segment in model.trained.segments:
        if segment.name in gradients:
            for spec, tensor in zip(segment.specs, segment.tensors(gradients[segment.name]), strict=True):
                outcome.gradients.setdefault(spec.name, tensor.clone())


def _keep_losses(metrics, groups, scale, step, outcome):
    for name, value in metrics.items():
        group = GROUP_OF_METRIC.get(name, name.removesuffix("_loss"))
        if group in groups:
            outcome.losses.setdefault(name, {})[step] = value * scale.get(group, 1.0)
