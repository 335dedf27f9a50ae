"""Colours and dashes of curves: told apart by readers who see fewer colours, too."""

import itertools

import numpy as np
import pytest

from rl_training.report.palette import DARK, DASHES, LIGHT, colour_of, dash_of

# Machado, Oliveira and Fernandes (2009), full severity, for linear RGB
SEEN = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(colour):
    values = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    scaled = XYZ @ np.clip(rgb, 0.0, 1.0) / WHITE
    x, y, z = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_no_two_colours_look_alike(colours, seen):
    """By CIE76, whose unit is about a difference that is just seen."""
    found = [lab(np.asarray(SEEN[seen]) @ linear(colour)) for colour in colours]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(found, 2)) > 15.0


def test_forty_groups_differ_by_colour_or_dashes():
    assert len({(colour_of(group), dash_of(group)) for group in range(40)}) == 40
    assert dash_of(0) == "" != dash_of(len(LIGHT))
    assert len(LIGHT) == len(DARK)
    assert len(DASHES) == 5
