"""The replay of a run as data: the transitions that its latest checkpoint holds, in real units."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray
from safetensors.torch import load as decode_tensors
from torch import Tensor

from rl_training.config.blocks import ReadOptions
from rl_training.data.n_step import NStep
from rl_training.data.packing import row_layout
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.guards import check_size, memory_limit
from rl_training.data.reading.notes import Count, Note, Usual
from rl_training.data.reading.reading import Arrays, Reading
from rl_training.data.spaces import Spaces
from rl_training.data.store.checkpoint_state import parse_state
from rl_training.data.store.replay_segments import checked_segments, read_segments
from rl_training.data.transforms import Transforms
from rl_training.errors import CheckpointError, ConfigError, DatasetError, RLTrainingError
from rl_training.registry import get_spec
from rl_training.storage import CHECKPOINT_FORMAT, MANIFEST, MAX_JSON_BYTES, parse_json, read_files, read_regular_file

_FIELDS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
_COPIES = 4  # of the stored bytes that are in memory at once


class RunReader(Reader):
    """A run directory, or one checkpoint of a run."""

    name = "run"
    title = "replay of a run"
    takes_member = True

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether a path is a run directory or a checkpoint."""
        path = candidate.path
        run = (path / "run.json").is_file() and (path / "checkpoints").is_dir()
        return path.is_dir() and (run or ((path / MANIFEST).is_file() and (path / "state.json").is_file()))

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the transitions of one member or of all, member after member, each episode in order of time."""
        replay = _Replay.of(path, options)
        count = len(replay.state["seeds"])
        if options.member is not None and options.member >= count:
            raise ConfigError(f"{path}: member {options.member} not found: the run has members 0 to {count - 1}")
        members = range(count) if options.member is None else [options.member]
        found = [arrays for member in members if len((arrays := replay.member(member))["rewards"])]
        if not found:
            raise DatasetError(f"{path}: its replay is empty; train it further first")
        joined = {name: np.concatenate([arrays[name] for arrays in found]) for name in _FIELDS}
        return Reading(
            *(str(path), self.title, joined, replay.notes(joined, options.member)),
            *(replay.spaces.action_low, replay.spaces.action_high),
            ends_known=True,
            observation_names=replay.spaces.observation_names,
            action_names=replay.spaces.action_names,
            divided=True,
        )


@dataclass(frozen=True, eq=False)
class _Replay:
    """The packed transitions of a checkpoint, and what is needed to undo how they were packed."""

    path: Path
    state: dict[str, Any]
    rows: NDArray[np.float32]  # (members, count, width)
    spaces: Spaces
    transforms: Transforms
    n_step: NStep

    @classmethod
    def of(cls, run: Path, options: ReadOptions) -> "_Replay":
        """Return the verified replay of a run directory's latest checkpoint, or of the checkpoint itself."""
        path = run if (run / MANIFEST).exists() else _latest(run)
        files = read_files(path, CHECKPOINT_FORMAT, limit=memory_limit(options.max_bytes))
        try:
            state = parse_state(files["state.json"], path / "state.json")
            tensors = decode_tensors(files["state.safetensors"])
            if state.get("env_step") is None:
                data = "it has collected nothing in an environment; use the data that it learned from"
                raise DatasetError(f"{run}: has no replay, since {data}")
            size = sum(segment["bytes"] for segment in checked_segments(state["replay"], path))
            check_size(str(run), _COPIES * size, options.max_bytes)
            pending = tensors["online/pending"].numpy()
            settled = read_segments(state["replay"], path, path)
            rows = pending if settled is None else np.concatenate((settled, pending), axis=1)
            _check_rows(state, rows.shape[1], pending.shape[1], path)
            knobs = state["config"]["algo_kwargs"]
            n_step = NStep(knobs.get("n_step", 1), knobs["gamma"])
            spaces, transforms = Spaces.from_json(state["spaces"]), Transforms.from_tensors(tensors)
        except RLTrainingError:
            raise
        except (KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
            raise CheckpointError(f"{path}: does not describe a run of this package: {error}") from error
        if transforms.reward_scale == 0.0:
            raise DatasetError(f"{run}: its rewards were scaled by 0 (algo_kwargs.reward.scale), so they are not known")
        if n_step.steps > 1 and n_step.gamma in (0.0, 1.0):
            raise DatasetError(f"{run}: its transitions span {n_step.steps} steps, and gamma {n_step.gamma:g} hides which")
        return cls(path, state, rows, spaces, transforms, n_step)

    def _columns(self, member: int) -> dict[str, NDArray[Any]]:
        """The packed fields of a member."""
        needs = [*get_spec(self.state["algo"]).needs, *(["discounts"] if self.n_step.steps > 1 else [])]
        layout = row_layout(self.spaces.observation_dim, self.spaces.learned_dim, needs, timeouts=True)
        if self.rows.shape[-1] != layout.width:
            raise CheckpointError(f"{self.path}: its replay has {self.rows.shape[-1]} columns, {layout.width} are needed")
        rows: Tensor = torch.from_numpy(self.rows[member].copy())
        return {name: values.numpy() for name, values in layout.columns(rows).items()}

    def member(self, member: int) -> Arrays:
        """Return the transitions of a member in real units; the end of its replay is a cut."""
        columns = self._columns(member)
        if self.n_step.steps > 1:
            self._undo_steps(columns, member)
        kept = slice(0, self._stepped(columns, member))
        arrays: Arrays = {
            "observations": self.transforms.real_observations(columns["observations"]),
            "actions": self.spaces.denormalize_actions(np.nan_to_num(columns["actions"])),  # as the environment got them
            "rewards": self.transforms.real_rewards(columns["rewards"]),
            "next_observations": self.transforms.real_observations(columns["next_observations"]),
            "terminals": columns["terminals"] > 0.0,
            "timeouts": columns["timeouts"] > 0.0,
        }
        arrays = {name: values[kept] for name, values in arrays.items()}
        arrays["timeouts"][-1:] = np.logical_not(arrays["terminals"][-1:])
        return arrays

    def _stepped(self, columns: dict[str, NDArray[Any]], member: int) -> int:
        """The number of rows before a member that stopped was no longer stepped: from then on nothing moves."""
        count = len(columns["rewards"])
        if self.state["members"][member]["status"] == "training":
            return count
        moved = (columns["observations"] != columns["next_observations"]).any(axis=1)
        moved |= (columns["terminals"] + columns["timeouts"]) > 0.0
        return int(np.flatnonzero(moved)[-1]) + 1 if moved.any() else 0

    def _undo_steps(self, columns: dict[str, NDArray[Any]], member: int) -> None:
        """Turn transitions over several steps into single ones, in place; those not yet ready are single."""
        first = self.state["env_step"] - len(columns["rewards"])
        ready = max(0, self.state["replay_ready"][member] - first)
        taken = np.ones(len(columns["rewards"]), dtype=np.int64)
        taken[:ready] = self.n_step.steps_taken(columns["discounts"][:ready])
        longer = np.flatnonzero(taken > 1)
        columns["next_observations"][longer] = columns["observations"][longer + 1]
        columns["terminals"][longer] = 0.0  # it is that of the last step
        columns["rewards"][:] = self.n_step.single_rewards(columns["rewards"], taken)

    def notes(self, arrays: Arrays, member: int | None) -> list[Note]:
        """Return what was read, and what could not be restored."""
        which = "all members" if member is None else f"member {member}"
        notes: list[Note] = [f"{self.path.name}, {which if len(self.state['seeds']) > 1 else 'one member'}"]
        notes.append(Usual("ends: true ends and time limits as they happened"))
        limit = self.transforms.observation_limit
        seen = self.transforms.observations(arrays["observations"])
        bounded = int((np.abs(seen) >= np.float32(limit * (1.0 - 1e-6))).sum()) if np.isfinite(limit) else 0
        if bounded:
            far = f"further than {limit:g} standard deviations out"
            notes.append(Count(bounded, f"reading {far} was bounded there", f"readings {far} were bounded there"))
        if np.isfinite(self.transforms.reward_clip).any():
            notes.append("rewards were clipped, and are the bound where they were")
        return notes


def _check_rows(state: dict[str, Any], count: int, pending: int, path: Path) -> None:
    """Refuse a replay whose rows do not end where the run is, or are none at all after it has stepped."""
    taken = state["env_step"] - state.get("replay_from", 0)
    settled = state["replay"][-1]["stop"] if state["replay"] else state["env_step"] - pending
    if settled + pending != state["env_step"] or (taken and not count):
        raise CheckpointError(f"{path}: its replay holds {count} transitions, which are not those of {taken} steps")


def _latest(run: Path) -> Path:
    """The latest checkpoint of a run directory."""
    pointer = run / "checkpoints" / "latest.json"
    if not pointer.exists():
        raise DatasetError(f"{run}: has no checkpoint yet, so there is no replay to read")
    name = parse_json(read_regular_file(pointer, MAX_JSON_BYTES), str(pointer)).get("checkpoint")
    if not isinstance(name, str) or Path(name).name != name:
        raise CheckpointError(f"{pointer}: names no checkpoint")
    return pointer.parent / name
