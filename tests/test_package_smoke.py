import tomllib

import rl_training
from tests.helpers import ROOT, run_cli


def test_version_and_metadata_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == rl_training.__version__
    assert project["name"] == "rl-training"
    assert (ROOT / "src" / "rl_training" / "py.typed").exists()
    assert f"## {rl_training.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_tested_version_is_pinned():
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {entry.split(">=")[0].split("[")[0].lower() for entry in wanted}
    assert names <= pinned


def test_the_package_runs_as_a_module():
    assert "iql" in run_cli("list").stdout


def test_every_extra_is_used_by_the_package():
    """What no code imports is no extra yet; each one's library is imported somewhere in the package."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for name, libraries in extras.items():
        others = {"parquet": "import pyarrow", "render": "from PIL import", "robotics": "import gymnasium_robotics"}
        others |= {"plot": "from matplotlib", "tensorboard": "from tensorboard.", "sweep": "import optuna"}
        others |= {"slurm": "import submitit", "remote": "import fsspec"}
        imported = others.get(name, f"import {name}")
        assert name == "dev" or imported in source, (name, libraries)
