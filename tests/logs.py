"""Logs of known truth and writers of every layout that share no code with the readers."""

import csv
import json

import h5py
import numpy as np

from tests.helpers import generator

FIELDS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")


def episodes(lengths=(7, 5, 9, 4), observation_dim=3, action_dim=2, seed=0):
    """Episodes with one observation more than actions, ending by turns truly and by a time limit."""
    draw = generator(seed)
    return [
        {
            "observations": draw.normal(size=(length + 1, observation_dim)).astype(np.float32),
            "actions": draw.uniform(-1, 1, (length, action_dim)).astype(np.float32),
            "rewards": draw.normal(size=length).astype(np.float32),
            "ended": position % 2 == 0,
        }
        for position, length in enumerate(lengths)
    ]


def transitions(log, *, keep_unknown=True):
    """The transitions of a log by definition; without `keep_unknown` those that end a cut episode are left out."""
    rows = []
    for episode in log:
        last = len(episode["actions"]) - 1
        kept = last if keep_unknown or episode["ended"] else last - 1
        for t in range(kept + 1):
            truly = t == last and episode["ended"]
            successor = episode["observations"][t + 1] if keep_unknown or not truly else episode["observations"][t]
            rows.append(
                (episode["observations"][t], episode["actions"][t], episode["rewards"][t], successor, truly, t == kept)
            )
    columns = dict(zip(FIELDS, (np.array(column) for column in zip(*rows, strict=True)), strict=True))
    columns["timeouts"] = columns["timeouts"] & ~columns["terminals"]
    return columns


def write_hdf5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            file[name] = value
    return path


def write_minari(path, log, *, metadata=True):
    (path / "data").mkdir(parents=True)
    space = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-3.0, -3.0], "high": [3.0, 3.0]}
    with h5py.File(path / "data" / "main_data.hdf5", "w") as file:
        for number, episode in enumerate(log):
            group = file.create_group(f"episode_{number}")
            flags = np.zeros(len(episode["actions"]), dtype=bool)
            flags[-1] = True
            group["observations"], group["actions"] = episode["observations"], episode["actions"]
            group["rewards"] = episode["rewards"].astype(np.float64)
            group["terminations"], group["truncations"] = flags & episode["ended"], flags & (not episode["ended"])
            group.create_group("infos")
        if not metadata:  # Minari 0.4
            file.attrs["action_space"] = json.dumps(space)
    if metadata:
        text = json.dumps({"data_format": "hdf5", "action_space": json.dumps(space), "total_episodes": len(log)})
        (path / "data" / "metadata.json").write_text(text)
    return path


def write_d3rlpy(path, log):
    """The layout of d3rlpy since 2.0, which stores as many observations as actions."""
    with h5py.File(path, "w") as file:
        for number, episode in enumerate(log):
            file[f"observations_{number}"] = episode["observations"][:-1]
            file[f"actions_{number}"] = episode["actions"]
            file[f"rewards_{number}"] = episode["rewards"][:, None]
            file[f"terminated_{number}"] = episode["ended"]
        file["columns"] = ["observations", "actions", "rewards", "terminated"]
        file["num_episodes"] = len(log)
        file["version"] = "2.1"
    return path


def write_old_d3rlpy(path, log):
    """The layout of d3rlpy before 2.0: rewards one row late, the last observation as a row of its own."""
    parts = []
    for episode in log:
        last = np.zeros(len(episode["observations"]), dtype=np.float32)
        last[-1] = 1.0
        parts.append(
            (
                episode["observations"],
                np.concatenate((episode["actions"], episode["actions"][-1:])),
                np.concatenate(([0.0], episode["rewards"])).astype(np.float32),
                last * episode["ended"],
                last,
            )
        )
    names = ("observations", "actions", "rewards", "terminals", "episode_terminals")
    return write_hdf5(path, dict(zip(names, map(np.concatenate, zip(*parts, strict=True)), strict=True)))


def table(columns, *, next_observations=True):
    """Transitions as a table: one column per number, an episode number and a time."""
    ends = columns["terminals"] | columns["timeouts"]
    episode = np.cumsum(np.append(False, ends[:-1]))
    starts = np.append(0, np.flatnonzero(ends)[:-1] + 1)
    result = {"episode": episode, "time": (np.arange(len(ends)) - starts[episode]) * 0.5}
    result |= {f"obs_{i}": column for i, column in enumerate(columns["observations"].T)}
    result |= {f"action_{i}": column for i, column in enumerate(columns["actions"].T)}
    if next_observations:
        result |= {f"next_obs_{i}": column for i, column in enumerate(columns["next_observations"].T)}
    result |= {"reward": columns["rewards"]}
    return result | {"terminal": columns["terminals"].astype(int), "timeout": columns["timeouts"].astype(int)}


def write_csv(path, columns, delimiter=","):
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True))
    return path


def plant(rows=3000, length=60, seed=0):
    """The log of a heated room under a noisy controller: three observations, one valve, comfort and cost."""
    draw = generator(seed)
    result = {name: [] for name in FIELDS}
    temperature = outside = trend = 0.0
    for row in range(rows):
        step = row % length
        if step == 0:
            temperature, outside, trend = draw.uniform(14, 24), draw.uniform(-5, 15), 0.0
        valve = float(np.clip(0.25 * (20.0 - temperature) + draw.normal(0, 0.4), -1, 1))
        state = (temperature, trend, outside)
        trend = 0.9 * valve - 0.05 * (temperature - outside) + draw.normal(0, 0.05)
        temperature, outside = temperature + 0.5 * trend, outside + draw.normal(0, 0.1)
        result["observations"].append(state)
        result["actions"].append((valve,))
        result["rewards"].append(-((state[0] - 20.0) ** 2) * 0.1 - 0.5 * valve**2)
        result["next_observations"].append((temperature, trend, outside))
        result["terminals"].append(False)
        result["timeouts"].append(step == length - 1 or row == rows - 1)
    flags = ("terminals", "timeouts")
    return {name: np.asarray(values, dtype=bool if name in flags else np.float32) for name, values in result.items()}


REWARDS = {
    "dense": lambda s, a, n, last: -(s @ s) - 0.1 * (a @ a),
    "next state": lambda s, a, n, last: -(n @ n),
    "effort": lambda s, a, n, last: 1.0 + 0.1 * a[0],
    "progress": lambda s, a, n, last: (n[0] - s[0]) / 0.05,
    "sparse": lambda s, a, n, last: float(n @ n < 1.0),
    "bonus": lambda s, a, n, last: -0.1 + 100.0 * last,
    "penalty": lambda s, a, n, last: -0.01 * (s @ s) - 100.0 * last,
}


def linear_log(reward, *, same_start=False, varied=False, terminal=False, count=40, length=100, seed=0):
    """The log of a random linear system under random actions."""
    draw = generator(seed)
    system = np.eye(4) * 0.97 + draw.normal(size=(4, 4)) * 0.02
    control = draw.normal(size=(2, 4)) * 0.3
    rows = []
    for number in range(count):
        state = np.ones(4) if same_start else draw.normal(size=4) * 2.0
        steps = int(draw.integers(5, length)) if varied else length
        for step in range(steps):
            action = np.tanh(draw.normal(size=2))
            following = system @ state + action @ control + draw.normal(size=4) * 0.02
            last, truly = step == steps - 1, terminal and number % 2 == 0
            rows.append(
                (
                    state,
                    action,
                    REWARDS[reward](state, action, following, last),
                    following,
                    last and truly,
                    last and not truly,
                )
            )
            state = following
    columns = zip(FIELDS, zip(*rows, strict=True), strict=True)
    return {name: np.asarray(values, dtype=bool if name in FIELDS[4:] else np.float32) for name, values in columns}
