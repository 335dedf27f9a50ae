"""What a config should reach, as it was measured: `<name>.expected.json` beside its YAML file; free of torch."""

from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from rl_training.config.base import Seed, StrictModel
from rl_training.config.loading import config_text, packaged_configs
from rl_training.config.yaml_loader import parse_yaml
from rl_training.errors import ConfigError
from rl_training.storage import MAX_JSON_BYTES, canonical_json, parse_json, read_regular_file, replace_file, sha256

SUFFIX = ".expected.json"
FEWEST_SCORES = 3


class Expectation(StrictModel):
    """The score of every seed, and how the scores were measured."""

    settings: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What was changed in the config, as `--set` takes it; the environment of a config that leaves it open, for example."""
    episodes: int = Field(ge=1)
    """Episodes of which a score is the mean return, under the last checkpoint; with an `episode_seed`, none of training's."""
    episode_seed: Seed | None = None
    """Seed of the episodes, which are then the same for every seed; null where each had its own."""
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=FEWEST_SCORES)]
    """The seeds, trained as one population."""
    scores: Annotated[tuple[float | None, ...], Field(strict=False)]
    """The score of each seed; null for one that diverged."""
    iqm: float | None
    """Interquartile mean of the scores; null if a seed diverged."""
    interval: Annotated[tuple[float, float], Field(strict=False)] | None
    """95 % bootstrap interval of the interquartile mean, as `rl-training compare` makes it."""
    step: int = Field(ge=0)
    """Gradient steps that were taken."""
    env_step: int | None = None
    """Environment steps that were taken; null offline."""
    minutes: float = Field(ge=0.0)
    """How long training took there, roughly."""
    device: str
    """Where it was measured: cpu, or the name of a GPU."""
    versions: dict[str, str]
    """The versions it was measured with."""
    dataset: str | None = None
    """Fingerprint of the data; null for an algorithm that takes none."""
    recipe: str
    """SHA-256 of the settings in the YAML file: whether it has changed since."""
    command: str
    """The command that measured it."""
    weak: str | None = None
    """Why a replication of it proves little, as a sentence; written by hand, and kept when it is measured again."""

    @model_validator(mode="after")
    def _one_score_each(self) -> Self:
        if len(self.scores) != len(self.seeds) or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"there are {len(self.scores)} `scores` for {len(self.seeds)} `seeds`, one each is needed")
        return self


class Expectations(StrictModel):
    """The content of the file: results by the name of the environment or of the data set."""

    needs: str | None = None
    """What a config that leaves its data open needs, as a sentence."""
    results: dict[str, Expectation] = Field(default_factory=dict)
    """What was measured."""


def expectation_path(name: str) -> Path:
    """Return where the expectations of a packaged config or of a YAML file are kept."""
    if name in packaged_configs():
        return Path(str(resources.files("rl_training"))) / "assets" / "configs" / f"{name}{SUFFIX}"
    return Path(name).with_suffix(SUFFIX)


def read_expectations(name: str) -> Expectations | None:
    """Return what a config should reach; None if nobody has measured it."""
    path = expectation_path(name)
    if not path.exists():
        return None
    values = parse_json(read_regular_file(path, MAX_JSON_BYTES, ConfigError), str(path), ConfigError)
    return Expectations.checked(values, f"{path}: ")


def write_expectation(name: str, case: str, found: Expectation) -> Path:
    """Keep a result beside the config, in the place of an earlier one of the same name; return the file."""
    known = read_expectations(name) or Expectations()
    if found.weak is None and case in known.results:
        found = found.model_copy(update={"weak": known.results[case].weak})
    changed = known.model_copy(update={"results": {**known.results, case: found}})
    path = expectation_path(name)
    replace_file(path, canonical_json(changed.model_dump(mode="json")))
    return path


def recipe_digest(name: str) -> str:
    """Return the SHA-256 of a config's settings as they are written; comments do not count."""
    values: Any = parse_yaml(*config_text(name))[0]
    return sha256(canonical_json({"settings": values}))
