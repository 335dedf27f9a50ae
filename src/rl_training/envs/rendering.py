"""A policy at work as an animation: the episodes of an evaluation, drawn step by step."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.algorithms.learner import Learner
from rl_training.config.environment import EnvLike
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.envs.animation import INSTALL, Frame, Grid, Picture, check_target, write_animation
from rl_training.envs.environments import EnvBatch, close_env, make_env, one_line, reset_seeds
from rl_training.envs.evaluation import FINAL_EPISODES, Evaluation, acting_spaces, mean_actions
from rl_training.errors import ConfigError

_MOST_FRAMES = 30.0  # per second: more make the file larger and little else
_DEFAULT_FPS = 30.0  # of an environment that does not say how fast it is
_PAUSE_SECONDS = 0.5  # on the last frame of an episode


class DrawsNothingError(ConfigError):
    """An environment has no pictures, which is no fault of it."""


@dataclass(frozen=True)
class Rendering:
    """An animation that was written, and the episodes in it."""

    path: Path
    env_id: str
    members: tuple[int, ...]  # those shown
    evaluation: Evaluation  # of these members, in this order
    cut: bool  # whether an episode was left before its end
    frames: int
    frames_per_second: float
    steps_per_frame: int  # 1 where every step is shown
    width: int
    height: int


@dataclass(frozen=True, eq=False)
class View:
    """What is seen of every member at one moment."""

    frames: list[Frame]
    returns: NDArray[np.float64]  # so far, of each member
    last: bool  # of its episode


@dataclass(eq=False)
class DrawnEpisodes:
    """Final episodes 0, 1, ... of some members of a policy: those of `evaluate_policy` with as many episodes, bit for bit.

    The arguments are those of `evaluate_policy`; `max_steps` is where an episode is left. `returns`, `lengths` and `cut` are
    filled while the episodes are drawn.
    """

    learner: Learner[Any, Any]
    env: EnvLike
    members: tuple[int, ...]
    episodes: int
    seeds: Sequence[int]  # of all members of the learner
    transforms: Transforms
    spaces: Spaces | None = None
    max_steps: int = 1000
    cut: bool = field(default=False, init=False)
    returns: NDArray[np.float64] = field(init=False)  # (members, episodes)
    lengths: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.returns = np.zeros((len(self.members), self.episodes))
        self.lengths = np.zeros((len(self.members), self.episodes), dtype=np.int64)

    def views(self, steps_per_frame: int = 1) -> Iterator[View]:
        """Yield the start of each episode, every `steps_per_frame`-th step, and the end."""
        for episode in range(self.episodes):
            with EnvBatch(self.env, len(self.members), "rgb_array") as envs:
                yield from self._episode(episode, envs, steps_per_frame)

    def _episode(self, episode: int, envs: EnvBatch, steps_per_frame: int) -> Iterator[View]:
        own, chosen = acting_spaces(self.learner, self.spaces, envs), list(self.members)
        # The last bit of a product depends on its shape, so the policy sees rows of the shape of an evaluation.
        seen = np.zeros((self.learner.model.members, self.episodes, own.observation_dim), dtype=np.float32)
        returns, lengths = self.returns[:, episode], self.lengths[:, episode]
        envs.reset_all([reset_seeds(self.seeds[member], FINAL_EPISODES, episode, 1)[0] for member in chosen])
        frames = [_draw(env, self.env) for env in envs.envs]
        yield View(list(frames), returns.copy(), last=False)
        last = False
        while not last:
            seen[chosen, episode] = envs.observations
            stepped = np.flatnonzero(envs.running)
            rewards, _, _ = envs.step(mean_actions(self.learner, seen, self.transforms, own)[chosen, episode])
            returns += rewards
            lengths[stepped] += 1
            last = not envs.running.any() or lengths.max() >= self.max_steps
            due = last or lengths.max() % steps_per_frame == 0
            for index in stepped:
                if due or not envs.running[index]:
                    frames[index] = _draw(envs.envs[index], self.env)
            if due:
                yield View(list(frames), returns.copy(), last=last)
        self.cut |= bool(envs.running.any())


def render_policy(
    drawn: DrawnEpisodes,
    path: Path,
    *,
    labels: Sequence[str] = (),
    fps: float | None = None,
    width: int | None = None,
    overwrite: bool = False,
) -> Rendering:
    """Write episodes to a .gif or .mp4 file, the members side by side in a grid, each under its label and return so far.

    `fps` is the number of environment steps per second, by default the environment's own; where it is over 30, steps are
    left out. `width` is that of the whole picture.
    """
    check_target(path, overwrite=overwrite)
    _need_no_display()
    speed = _steps_per_second(drawn.env, fps)
    steps_per_frame = math.ceil(speed / _MOST_FRAMES)
    rate = speed / steps_per_frame
    grid = Grid(len(drawn.members), labels, width)

    def pictures() -> Iterator[Picture]:
        for view in drawn.views(steps_per_frame):
            picture = grid.picture(view.frames, view.returns)
            yield from [picture] * (1 + round(_PAUSE_SECONDS * rate) if view.last else 1)

    frames = write_animation(path, pictures(), rate)
    evaluation = Evaluation(drawn.returns, drawn.lengths)
    return Rendering(path, str(drawn.env), drawn.members, evaluation, drawn.cut, frames, rate, steps_per_frame, *grid.size)


def _need_no_display() -> None:
    """Let pygame draw in memory where there is no display, and import without a greeting on standard output."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _steps_per_second(where: EnvLike, fps: float | None) -> float:
    """The speed asked for, or that of the environment; one that draws no pictures is refused."""
    env = make_env(where)
    try:
        modes, own = list(env.metadata.get("render_modes") or ()), env.metadata.get("render_fps")
    finally:
        close_env(env, where)
    if "rgb_array" not in modes:
        raise DrawsNothingError(f"environment {where} draws no pictures: `rgb_array` is not among its render modes {modes}")
    return float(fps or own or _DEFAULT_FPS)


def _draw(env: Any, where: EnvLike) -> Frame:
    """The picture of an environment; any failure becomes a ConfigError."""
    try:
        picture = np.asarray(env.render())
    except Exception as error:  # environments are third-party code
        if "pygame" in str(error):  # as the environments of Gymnasium say it
            raise ConfigError(f"environment {where} cannot be drawn without pygame: {INSTALL}") from error
        raise ConfigError(f"environment {where} cannot be drawn: {one_line(error)}") from error
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        found = f"{picture.dtype} of shape {picture.shape}"
        raise ConfigError(f"environment {where} cannot be drawn: its picture is {found}, not uint8 of (height, width, 3)")
    return picture
