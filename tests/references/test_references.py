"""Our losses, gradients and parameters after ten updates are those of the official or CORL code, to 1e-6 in float64."""

import pytest

from rl_training.registry import REGISTRY
from tests.references.harness import HOME, Reference, run

TOLERANCE = 1e-6
FILES = sorted(HOME.glob("*.npz"))


def differences(reference, outcome):
    """The largest difference of each recorded number, relative where it is above 1."""
    found = {}
    for name, values in reference.under("losses").items():
        for step, value in enumerate(values):
            if not value.isnan():
                found[f"losses/{step}/{name}"] = _difference(outcome.losses[name][step][0], value)
    for kind in ("gradients", "final"):
        ours = getattr(outcome, kind)
        found |= {f"{kind}/{name}": _difference(ours[name], value) for name, value in reference.under(kind).items()}
    return found


def _difference(ours, theirs):
    assert ours.shape == theirs.shape
    return ((ours - theirs).abs() / theirs.abs().clamp(min=1.0)).max().item()


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def reference(request):
    return Reference(request.param)


def test_ten_updates_agree(reference):
    found = differences(reference, run(reference))
    apart = {name: value for name, value in found.items() if not value <= TOLERANCE}
    assert not apart, f"the largest difference is {max(apart.values()):.3g}, in {apart}"


def test_every_algorithm_has_a_reference():
    assert {Reference(path).meta["algorithm"] for path in FILES} == set(REGISTRY)


def test_the_readme_names_every_source(reference):
    readme = (HOME / "README.md").read_text()
    assert f"{reference.meta['repository']} {reference.meta['commit'][:7]}" in readme


def test_every_recorded_knob_matters(reference):
    """A change of 1 % in a knob is noticed, so that agreement says something about each of them."""
    for name, value in reference.meta["knobs"].items():
        if isinstance(value, float):
            found = differences(reference, run(reference, **{name: 0.99 * value}))
            assert max(found.values()) > TOLERANCE, name
