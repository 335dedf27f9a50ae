"""What type checkers and editors learn of the public names, and the stubs that tell them."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from tools.stubs import Settings, package_stub

from rl_training.config.base import StrictModel
from rl_training.registry import REGISTRY
from tests.helpers import ROOT, environment

USES = Path(__file__).with_name("uses.py")
WRONG = [number for number, line in enumerate(USES.read_text().splitlines(), 1) if line.endswith("# wrong")]


def run(*command):
    """A module's output, with the settings and the cache that the linters have."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment(PYRIGHT_PYTHON_IGNORE_WARNINGS="1"),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_mypy_tells_right_from_wrong():
    done = run("mypy", "--strict", "--output", "json", str(USES))
    faults = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    lines = {fault["line"] for fault in faults if fault["severity"] == "error" and Path(fault["file"]).name == USES.name}
    assert sorted(lines) == WRONG, done.stdout + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright, of the dev extra, is not installed")
def test_pyright_tells_right_from_wrong():
    done = run("pyright", "--pythonpath", sys.executable, "--outputjson", str(USES))
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    faults = [fault for fault in json.loads(done.stdout)["generalDiagnostics"] if fault["severity"] == "error"]
    assert sorted({fault["range"]["start"]["line"] + 1 for fault in faults}) == WRONG, done.stdout


def test_the_stubs_are_up_to_date():
    done = run("tools.stubs", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", ["rl_training", "rl_training.api"])
def test_a_new_algorithm_leaves_the_first_stubs_as_they_are(package):
    text = package_stub(package)
    assert [spec.name for spec in REGISTRY.values() if re.search(rf"\b{spec.name}", text)] == []


def test_a_field_of_another_type_is_written_with_all_others():
    class Parent(StrictModel):
        size: int = 1
        rate: float = 1.0

    class Same(Parent):
        rate: float = 2.0

    class Other(Same):
        size: Literal[1, 2] = 1

    settings = Settings(omit=())
    assert settings.add(Same) == [Parent]
    assert settings.add(Other) == [Other]
    parent = ["class _Parent(TypedDict, total=False):", "    size: int", "    rate: float", ""]
    other = ["class _Other(TypedDict, total=False):", "    size: Literal[1, 2]", "    rate: float", ""]
    assert settings.lines == [*parent, *other]
