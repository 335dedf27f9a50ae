"""What every script here shares: the batches, the noise, the file of a reference, and the import of another project's code.

A reference is made of numbers alone. The other project's code is imported from a checkout that the caller names; none of it
is stored. Free of torch and JAX, so that scripts for either can use it.
"""

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
from numpy.typing import NDArray

STEPS, ROWS, OBSERVATION_DIM, ACTION_DIM, WIDTH = 10, 8, 3, 2, 8
REFERENCES = Path(__file__).resolve().parents[2] / "tests" / "references"

Array = NDArray[np.float64]
Values = Mapping[str, Any]
"""Arrays by name."""


def coarse(values: Any) -> Array:
    """Return the values as multiples of 2^-16, which a compressed file stores in half the space."""
    return np.asarray(np.round(values * 2.0**16) / 2.0**16, dtype=np.float64)


@dataclass(frozen=True)
class Source:
    """A checkout of another project."""

    repository: str  # owner/name
    checkout: Path

    @property
    def commit(self) -> str:
        """The commit that is checked out."""
        command = ["git", "-C", str(self.checkout), "rev-parse", "HEAD"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603

    def module(self, file: str, stubs: Sequence[str] = ()) -> Any:
        """Import a file of the checkout; `stubs` names modules that it imports and that its updates do not need."""
        if str(self.checkout) not in sys.path:
            sys.path.insert(0, str(self.checkout))
        spec = spec_from_file_location(Path(file).stem, self.checkout / file)
        if spec is None or spec.loader is None:
            raise FileNotFoundError(self.checkout / file)
        module = module_from_spec(spec)
        with patch.dict(sys.modules, {spec.name: module, **{name: MagicMock() for name in stubs}}):
            spec.loader.exec_module(module)
        return module


@dataclass
class Recording:
    """The numbers of one reference, collected while the other code runs; `save` writes `<algorithm>-<variant>.npz`.

    Names and shapes are those of our learner. What is given to the methods has no members axis; the file has one, of length
    1, after the axis of steps where there is one.
    """

    algorithm: str  # our id
    variant: str  # the project, and what is special
    source: Source
    file: str  # of the other project
    knobs: dict[str, Any]  # of our learner
    networks: dict[str, Any]  # of our model
    alignment: dict[str, Any] = field(default_factory=dict)  # what the test changes in our learner; see tests/references
    notes: str = ""
    fields: tuple[str, ...] = ()  # optional ones of a batch that the loss reads
    arrays: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([*self.name.encode()])
        required = ("observations", "actions", "rewards", "next_observations", "terminals")
        values = self._batch_fields()
        self.arrays |= {f"batch/{name}": coarse(values[name]) for name in (*required, *self.fields)}

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.algorithm}-{self.variant}"

    def _batch_fields(self) -> dict[str, Array]:
        """Every field that a loss may read, (steps, 1, rows, ...)."""
        lead = (STEPS, 1, ROWS)
        return {
            "observations": self.rng.normal(size=(*lead, OBSERVATION_DIM)),
            "actions": self.rng.uniform(-0.95, 0.95, (*lead, ACTION_DIM)),
            "rewards": self.rng.normal(size=lead),
            "next_observations": self.rng.normal(size=(*lead, OBSERVATION_DIM)),
            "terminals": (self.rng.random(lead) < 0.25).astype(np.float64),
            "next_actions": self.rng.uniform(-0.95, 0.95, (*lead, ACTION_DIM)),
            "returns_to_go": self.rng.normal(size=lead),
        }

    def batch(self, step: int) -> dict[str, Array]:
        """Return the fields of a step's batch, (rows, ...)."""
        return {
            name.removeprefix("batch/"): values[step, 0] for name, values in self.arrays.items() if name.startswith("batch/")
        }

    def normals(self, step: int, stream: str, *shape: int) -> Array:
        """Draw and record a step's standard normals of one of our streams."""
        return self._noise(step, stream, self.rng.normal(size=shape))

    def uniforms(self, step: int, stream: str, *shape: int) -> Array:
        """Draw and record a step's uniforms in [0, 1) of one of our streams."""
        return self._noise(step, stream, self.rng.random(shape))

    def _noise(self, step: int, stream: str, drawn: Array) -> Array:
        values = coarse(drawn)
        whole = self.arrays.setdefault(f"noise/{stream}", np.full((STEPS, 1, *values.shape), np.nan))
        whole[step, 0] = values
        return values

    def losses(self, step: int, values: Mapping[str, float]) -> None:
        """Record the losses of a step by the names of our metrics; a step without one keeps NaN."""
        for name, value in values.items():
            self.arrays.setdefault(f"losses/{name}", np.full(STEPS, np.nan))[step] = float(value)

    def initial(self, values: Values) -> None:
        """Record the parameters before the first update, targets as `target/...`; weights are (in, out)."""
        self._parameters("initial", values)

    def gradients(self, values: Values) -> None:
        """Record the gradient of each parameter at the first update that trains it."""
        self._parameters("gradients", values)

    def final(self, values: Values) -> None:
        """Record the parameters after the last update, targets as `target/...`."""
        self._parameters("final", values)

    def _parameters(self, kind: str, values: Values) -> None:
        for name, value in values.items():
            self.arrays[f"{kind}/{name}"] = np.array(value, dtype=np.float64)[None]

    def save(self, versions: Mapping[str, str], folder: Path = REFERENCES) -> Path:
        """Write the file."""
        meta = {
            "algorithm": self.algorithm,
            "repository": self.source.repository,
            "commit": self.source.commit,
            "file": self.file,
            "versions": {"numpy": np.__version__, **versions},
            "knobs": self.knobs,
            "networks": self.networks,
            "alignment": self.alignment,
            "notes": self.notes,
        }
        path = folder / f"{self.name}.npz"
        arrays: dict[str, Any] = {"meta": np.array(json.dumps(meta, indent=1)), **self.arrays}
        np.savez_compressed(path, **arrays)
        return path


def main(repository: str, recorders: Sequence[Callable[[Source], Recording]], versions: Mapping[str, str]) -> None:
    """Record each reference of a project, or those named, from the checkout on the command line."""
    parser = ArgumentParser(description=f"Record references from a checkout of {repository}.")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("only", nargs="*", help=f"of {', '.join(record.__name__ for record in recorders)}")
    arguments = parser.parse_args()
    source = Source(repository, arguments.checkout.resolve())
    for record in recorders:
        if not arguments.only or record.__name__ in arguments.only:
            print(record(source).save(versions))
