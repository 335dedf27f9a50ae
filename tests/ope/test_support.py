"""Whether anybody did what a policy does, and was where it goes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_training.ope.episodes import Behaviour, Episodes
from rl_training.ope.support import LoggedSupport
from tests.ope.plants import linear, logged


@pytest.fixture(scope="module")
def support():
    return LoggedSupport(Episodes.of(logged(), 100_000))


def rows(support):
    seen = torch.from_numpy(support.episodes.of_observations(support.episodes.observations))
    return torch.cat((seen, Behaviour.logged(support.episodes).here), dim=-1)


def test_places_that_were_logged_are_not_strange(support):
    own = rows(support)[::7]
    assert support.strange(own, torch.ones(len(own))) < 0.05
    assert support.strange(own + 10.0, torch.ones(len(own))) == 1.0


def test_places_count_by_their_weight(support):
    own = rows(support)[:1]
    assert support.strange(torch.cat((own, own + 10.0)), torch.tensor([3.0, 1.0])) == pytest.approx(0.25)


def test_actions_of_another_controller_are_beyond_the_support(support):
    near, far = (support.of(Behaviour.of(linear(gain), support.episodes)).beyond for gain in (-0.4, 5.0))
    assert near < 0.05
    assert far > 0.3


def test_actions_between_levels_that_similar_states_share_are_within_the_support():
    """Rounded to a level of 0.5, nearly all logged actions are also those of a neighbour, exactly."""
    data = logged(noise=0.05)
    levels = LoggedSupport(Episodes.of(replace(data, actions=np.round(2.0 * data.actions) / 2.0), 100_000))
    deviation = float(levels.episodes.of_actions.std[0])
    shares = []
    for off in (0.0, 0.1, 0.4):
        actions = levels.episodes.actions + np.float32(off * deviation)
        own = Behaviour(*(torch.from_numpy(levels.episodes.of_actions(actions)),) * 2)
        shares.append(levels.of(own).beyond)
    assert max(shares[:2]) < 0.01
    assert shares[2] > 0.5
    assert levels.usual < 0.01  # of the logged actions, not the 5 % of those without levels
