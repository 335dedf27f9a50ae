"""Reference returns of benchmark tasks, for normalised scores: 0 is the reference minimum, 100 the reference maximum.

D4RL: `d4rl/infos.py` of D4RL 1.1 (Fu et al., 2020), and its registration of the first maze2d tasks. NeoRL-2:
`neorl2/envs/info.py` of NeoRL-2 0.0.1 (Polixir, 2025).
"""

import re
from types import MappingProxyType
from typing import Final

from rl_training.errors import ConfigError, did_you_mean

_D4RL: dict[str, tuple[float, float]] = {
    "halfcheetah": (-280.178953, 12135.0),
    "hopper": (-20.272305, 3234.3),
    "walker2d": (1.629008, 4592.3),
    "ant": (-325.6, 3879.7),
    "pen": (96.262799, 3076.8331017826877),
    "hammer": (-274.856578, 12794.134825156867),
    "door": (-56.512833, 2880.5693087298737),
    "relocate": (-6.425911, 4233.877797728884),
    "antmaze": (0.0, 1.0),
    "kitchen": (0.0, 4.0),
    "maze2d-umaze-v0": (0.94, 62.6),
    "maze2d-medium-v0": (5.77, 85.14),
    "maze2d-large-v0": (4.83, 191.99),
    "maze2d-umaze-dense-v0": (23.249793, 81.78995240126592),
    "maze2d-medium-dense-v0": (19.47762, 96.03474232952358),
    "maze2d-large-dense-v0": (27.38831, 215.09965671563742),
    "maze2d-open": (0.01, 20.66),
    "maze2d-umaze": (23.85, 161.86),
    "maze2d-medium": (13.13, 277.39),
    "maze2d-large": (6.7, 273.99),
    "maze2d-open-dense": (11.17817, 27.166538620695782),
    "maze2d-umaze-dense": (68.537689, 193.66285642381482),
    "maze2d-medium-dense": (44.264742, 297.4552547777125),
    "maze2d-large-dense": (30.569041, 303.4857382709002),
}
_NEORL2: dict[str, tuple[float, float]] = {
    "pipeline": (-296.0, 751.0),
    "simglucose": (9.75, 475.0),
    "rocketrecovery": (-176.0, 208.0),
    "randomfrictionhopper": (-3.0, 503.0),
    "dmsd": (30.60, 849.51),
    "fusion": (-107.601, 98.05),
    "safetyhalfcheetah": (-283.0, 2507.0),
    "salespromotion": (357.62, 602.21),
}
REFERENCES: Final = MappingProxyType({**_D4RL, **_NEORL2})
"""Task -> (minimum, maximum) return; the datasets of a task share them."""

_SOURCES = MappingProxyType({**dict.fromkeys(_D4RL, "D4RL"), **dict.fromkeys(_NEORL2, "NeoRL-2")})
_ADROIT = MappingProxyType({f"adroithand{name}": name for name in ("pen", "hammer", "door", "relocate")})


def reference_of(name: str) -> tuple[str, float, float]:
    """Return (task, minimum, maximum) for a task, a dataset (`hopper-medium-v2`) or an environment (`Hopper-v5`)."""
    plain = name.strip().lower().removeprefix("d4rl/").replace("/", "-").replace("_", "-")
    for gymnasium_name, task in _ADROIT.items():
        plain = re.sub(rf"^{gymnasium_name}\b", task, plain)
    parts = plain.split("-")
    for length in range(len(parts), 0, -1):
        task = "-".join(parts[:length])
        if task in REFERENCES:
            return task, *REFERENCES[task]
    known = ", ".join(REFERENCES)
    raise ConfigError(f"there are no reference returns for {name!r}.{did_you_mean(parts[0], REFERENCES)} There are: {known}")


def reference_source(task: str) -> str:
    """Return the benchmark that a task's references come from."""
    return _SOURCES[task]


def normalized_score(value: float, reference: str) -> float:
    """Return 100 * (value - minimum) / (maximum - minimum) for a task, dataset or environment name."""
    _, low, high = reference_of(reference)
    return 100.0 * (value - low) / (high - low)
