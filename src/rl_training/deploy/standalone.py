"""A control policy from policy.npz that needs numpy alone: `Policy("policy.npz")(observation)`. See card.md."""

from typing import Any

import numpy as np

LAYER_NORM_EPS = np.float32(1e-5)
GELU, CUBE = np.float32(0.7978845608), np.float32(0.044715)  # of its tanh approximation


class Policy:
    """The policy: one observation or a batch of any size, in real units, to actions in real units."""

    def __init__(self, path: Any) -> None:
        """Read the numbers; nothing in the file is executed."""
        with np.load(path, allow_pickle=False) as file:
            self.data = dict(file)

    def __call__(self, observation: Any, last_action: Any = None) -> Any:
        """Return the actions, and if the export was made with a flag also how many columns of each row were never seen."""
        data, rows = self.data, np.asarray(observation, dtype=np.float32)
        if rows.shape[-1:] != data["mean"].shape:
            raise ValueError(f"an observation has {len(data['mean'])} numbers, got an array of shape {rows.shape}")
        if last_action is None and ("change" in data or "fallback" not in data):
            raise ValueError("pass last_action, too: what was really applied before, or NaN if that is not known")
        lead, rows = rows.shape[:-1], rows.reshape(-1, rows.shape[-1])
        good = np.isfinite(rows).all(axis=1, keepdims=True)
        seen = (np.where(good, rows, data["mean"]) - data["mean"]) / data["std"]
        unit = np.zeros((len(rows), len(data["low"])), dtype=np.float32)
        unit[:, data["free"]] = self.unit(np.clip(seen, -data["limit"], data["limit"]))
        action = np.clip(unit * data["half_range"] + data["middle"], data["low"], data["high"])
        unknown = np.full(len(data["low"]), np.nan, dtype=np.float32)
        last = np.asarray(unknown if last_action is None else last_action, dtype=np.float32)
        last = np.broadcast_to(last.reshape(-1, len(unknown)), action.shape)
        good &= np.isfinite(action).all(axis=1, keepdims=True)
        action = np.where(good, action, data.get("fallback", last))
        if "change" in data:
            held = np.minimum(np.maximum(action, last - data["change"]), last + data["change"])
            action = np.where(np.isfinite(last), held, action)
        action = np.minimum(np.maximum(action, data["low"]), data["high"]).reshape(*lead, -1).astype(np.float32)
        if "seen_low" not in data:
            return action
        return action, (~((rows >= data["seen_low"]) & (rows <= data["seen_high"]))).sum(axis=1).reshape(lead)

    def unit(self, seen: Any) -> Any:
        """Return actions in [-1, 1] of normalised observations."""
        if "candidates" not in self.data:
            return self.squashed(self.network("actor", seen))
        noise = np.broadcast_to(self.data["candidates"], (len(seen), *self.data["candidates"].shape))
        seen = np.repeat(seen[:, None], noise.shape[1], axis=1)
        actions = self.squashed(self.network("actor", np.concatenate((seen, noise), axis=-1)))
        pairs = np.concatenate((seen, actions), axis=-1)
        critics = range(int(self.data["critics"]))
        best = np.min([self.network(f"critic{i}", pairs)[..., 0] for i in critics], axis=0).argmax(axis=1)
        return actions[np.arange(len(seen)), best]

    def squashed(self, outputs: Any) -> Any:
        """Return the first outputs inside [-1, 1]."""
        outputs = outputs[..., : self.data["free"].sum()]
        return np.tanh(outputs) if self.data["squashed"] else np.clip(outputs, -1.0, 1.0)

    def network(self, name: str, hidden: Any) -> Any:
        """Return the outputs of a perceptron."""
        data, norm = self.data, str(self.data[f"{name}.norm"])
        last = int(data[f"{name}.layers"]) - 1
        for i in range(last):
            hidden = hidden @ data[f"{name}.{i}.weight"] + data[f"{name}.{i}.bias"]
            hidden = self.active(hidden) if norm == "after" else hidden
            if norm != "none":
                centred = hidden - hidden.mean(axis=-1, keepdims=True)
                hidden = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + LAYER_NORM_EPS)
                hidden = hidden * data[f"{name}.{i}.scale"] + data[f"{name}.{i}.offset"]
            hidden = hidden if norm == "after" else self.active(hidden)
        return hidden @ data[f"{name}.{last}.weight"] + data[f"{name}.{last}.bias"]

    def active(self, x: Any) -> Any:
        """Return the activation of a hidden layer."""
        kind = str(self.data["activation"])
        if kind == "relu":
            return np.maximum(x, 0)
        if kind == "silu":
            return x / (1 + np.exp(-x))
        return np.tanh(x) if kind == "tanh" else x * (1 + np.tanh(GELU * (x + CUBE * x**3))) / 2
