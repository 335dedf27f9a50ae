"""The drawn episodes are those of an evaluation, bit for bit; what is not drawn is said."""

import os
import sys

import gymnasium
import numpy as np
import pytest
from PIL import Image

from rl_training.algorithms.iql import IQL
from rl_training.data.transforms import Transforms
from rl_training.envs.evaluation import FINAL_EPISODES, evaluate_policy
from rl_training.envs.rendering import DrawnEpisodes, render_policy
from rl_training.errors import ConfigError
from rl_training.models import MLPIQLModel
from tests.drawing import Dial, registered

SEEDS = (0, 7, 8)


@pytest.fixture
def env_id():
    with registered("Dial-v0", Dial, max_episode_steps=9):
        yield "Dial-v0"


@pytest.fixture(scope="module")
def policy():
    learner = IQL(MLPIQLModel(3, 1, seeds=SEEDS, hidden_sizes=(32, 32)))
    transforms = Transforms(np.full(3, 0.3, np.float32), np.full(3, 1.7, np.float32))
    return {"learner": learner, "seeds": SEEDS, "transforms": transforms}


@pytest.mark.parametrize("members", [(0, 1, 2), (2, 0), (1,)])
def test_returns_are_those_of_an_evaluation(env_id, policy, members):
    measured = evaluate_policy(**policy, env=env_id, episodes=3, stream=FINAL_EPISODES)
    drawn = DrawnEpisodes(**policy, env=env_id, members=members, episodes=3)
    views = list(drawn.views())
    assert (drawn.returns == measured.returns[list(members)]).all()
    assert (drawn.lengths == measured.lengths[list(members)]).all()
    assert not drawn.cut
    assert len(views) == (drawn.lengths.max(axis=0) + 1).sum()  # the start and every step of the longest
    lasts = [view for view in views if view.last]
    assert (np.stack([view.returns for view in lasts], axis=1) == drawn.returns).all()
    shown = [[picture[0, 0, 0] // 8 for picture in view.frames] for view in lasts]
    assert (np.transpose(shown) == drawn.lengths).all()  # one that has ended waits on its last picture


def test_steps_that_are_left_out(env_id, policy):
    drawn = DrawnEpisodes(**policy, env=env_id, members=(0, 1, 2), episodes=1)
    views = list(drawn.views(steps_per_frame=4))
    assert len(set(drawn.lengths[:, 0])) > 1
    longest = int(drawn.lengths.max())
    for member, length in enumerate(drawn.lengths[:, 0]):
        seen = [int(view.frames[member][0, 0, 0]) // 8 for view in views]
        assert seen == [min(step, length) for step in (*range(0, longest, 4), longest)]


def test_an_episode_is_left_after_max_steps(env_id, policy):
    drawn = DrawnEpisodes(**policy, env=env_id, members=(0,), episodes=2, max_steps=2)
    assert [view.last for view in drawn.views()] == [False, False, True] * 2
    assert drawn.lengths.tolist() == [[2, 2]]
    assert drawn.cut


@pytest.mark.parametrize(
    ("own", "asked", "steps_per_frame", "rate"),
    [(20, None, 1, 20.0), (125, None, 5, 25.0), (None, None, 1, 30.0), (20, 100.0, 4, 25.0), (125, 5.0, 1, 5.0)],
)
def test_the_speed_of_an_animation(policy, tmp_path, own, asked, steps_per_frame, rate):
    class Timed(Dial):
        metadata = {"render_modes": ["rgb_array"]} | ({} if own is None else {"render_fps": own})

    with registered("Timed-v0", Timed, max_episode_steps=9):
        drawn = DrawnEpisodes(**policy, env="Timed-v0", members=(0,), episodes=1)
        found = render_policy(drawn, tmp_path / "a.gif", fps=asked)
    assert (found.steps_per_frame, found.frames_per_second) == (steps_per_frame, rate)
    steps = -(-int(drawn.lengths[0, 0]) // steps_per_frame)
    assert found.frames == 1 + steps + round(0.5 * rate)  # the start, the steps, and half a second on the last
    assert (found.width, found.height) == (48, 32)
    with Image.open(found.path) as gif:
        assert gif.size == (48, 32)


class Blind(Dial):
    metadata = {"render_modes": ["human"]}  # noqa: RUF012

    def __init__(self):
        super().__init__()


class Silent(Dial):
    def render(self):
        return None


class Broken(Dial):
    def render(self):
        raise RuntimeError("no OpenGL\nsecond line")


class Flat(Dial):
    def render(self):
        return np.zeros((4, 4), dtype=np.uint8)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Blind, r"draws no pictures: `rgb_array` is not among its render modes \['human'\]$"),
        (Silent, r"cannot be drawn: its picture is object of shape \(\), not uint8 of \(height, width, 3\)$"),
        (Broken, "cannot be drawn: RuntimeError: no OpenGL"),
        (Flat, r"cannot be drawn: its picture is uint8 of shape \(4, 4\)"),
    ],
)
def test_an_environment_that_cannot_be_drawn_is_one_line(policy, tmp_path, kind, words):
    with registered("Undrawn-v0", kind, max_episode_steps=9):
        drawn = DrawnEpisodes(**policy, env="Undrawn-v0", members=(0,), episodes=1)
        with pytest.raises(ConfigError, match=f"environment Undrawn-v0 {words}"):
            render_policy(drawn, tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_without_pygame_the_extra_is_named(policy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    drawn = DrawnEpisodes(**policy, env="Pendulum-v1", members=(0,), episodes=1)
    with pytest.raises(
        ConfigError, match=r'Pendulum-v1 cannot be drawn without pygame: pip install "rl-training\[render\]"$'
    ):
        render_policy(drawn, tmp_path / "a.gif")


@pytest.mark.parametrize(
    ("before", "driver"),
    [({}, "dummy"), ({"DISPLAY": ":0"}, None), ({"WAYLAND_DISPLAY": "w"}, None), ({"SDL_VIDEODRIVER": "x11"}, "x11")],
)
def test_a_display_is_used_only_where_there_is_one(env_id, policy, tmp_path, monkeypatch, before, driver):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    render_policy(DrawnEpisodes(**policy, env=env_id, members=(0,), episodes=1), tmp_path / "a.gif")
    assert os.environ.get("SDL_VIDEODRIVER") == driver


def test_a_pendulum(policy, tmp_path):
    pytest.importorskip("pygame")
    measured = evaluate_policy(**policy, env="Pendulum-v1", episodes=1, stream=FINAL_EPISODES)
    drawn = DrawnEpisodes(**policy, env="Pendulum-v1", members=(0, 2), episodes=1)
    found = render_policy(drawn, tmp_path / "a.gif", labels=["seed 0", "seed 8"], width=200, fps=300.0)
    assert (found.evaluation.returns == measured.returns[[0, 2]]).all()
    assert gymnasium.spec("Pendulum-v1").max_episode_steps == found.evaluation.lengths[0, 0]
    with Image.open(found.path) as gif:
        assert gif.size == (found.width, found.height) == (198, 114)
        assert gif.n_frames > 10  # it moves
