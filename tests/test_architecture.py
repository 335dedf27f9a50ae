"""The layers of the package, and that nothing in a file is ever executed."""

import ast
import re
import subprocess
import sys
from collections import Counter

import pytest

from rl_training.registry import REGISTRY
from tests.helpers import ROOT, environment

PACKAGE = ROOT / "src" / "rl_training"
FILES = sorted(PACKAGE.rglob("*.py"))
LAYERS = [
    *(
        "cli",
        "bench",
        "api",
        "tuning",
        "report",
        "analysis",
        "deploy",
        "integrity",
        "experiment",
        "tracking",
        "runtime",
        "ope",
        "doctor",
        "envs",
        "algorithms",
        "models",
    ),
    "data",
    *(("config", "_exports"), "registry", "remote", ("rng", "rng_kernel", "storage"), "faults", ("errors", "output")),
]
RUNTIME_LAYERS = ["phases", "execution", "batches", "checkpoints"]  # rooms of `runtime`, each above the next
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in ([names] if isinstance(names, str) else names)}


def module_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """Every package module a file imports, wherever in the file the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "rl_training":
                yield from (alias.name for alias in node.names)
            elif node.module and node.module.startswith("rl_training."):
                yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("rl_training."))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    here = module_of(path)
    if here in ("__init__", "__main__"):
        return
    for target in imports(path):
        assert LEVEL[target] >= LEVEL[here], f"{here} imports {target}, which stands above it"


@pytest.mark.parametrize("room", RUNTIME_LAYERS)
def test_rooms_of_the_runtime_import_downwards(room):
    above = RUNTIME_LAYERS[: RUNTIME_LAYERS.index(room)]
    for path in (PACKAGE / "runtime" / room).glob("*.py"):
        text = path.read_text()
        assert not [other for other in (*above, "loop", "trainer") if f"rl_training.runtime.{other}" in text], path


def test_algorithms_and_execution_keep_to_their_own():
    for path in (PACKAGE / "algorithms").glob("*.py"):
        assert set(imports(path)) <= {"algorithms", "models", "data", "rng", "errors", "config", "_exports"}
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rl_training.data"):
                assert node.module == "rl_training.data.batch"
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("item", "cpu", "numpy"), f"{path}: a host synchronisation in an algorithm"
    for room in RUNTIME_LAYERS:
        for path in (PACKAGE / "runtime" / room).glob("*.py"):
            assert not re.search(r"rl_training\.algorithms\.(?!learner)", path.read_text()), path


def test_the_config_is_free_of_torch():
    files = [path.relative_to(PACKAGE.parent).with_suffix("") for path in (PACKAGE / "config").rglob("*.py")]
    modules = [".".join(file.parts) for file in files if file.name != "__init__"]
    code = f"import sys, {', '.join(modules)}; print(sorted({{'torch', 'numpy', 'gymnasium'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_rooms_stay_small():
    """No folder holds more than fifteen modules, files that there is one of for each algorithm not counted."""
    rooms = ("algorithms/{}.py", "config/algorithms/{}.py", "runtime/{}_trainer.py")
    per_algorithm = {room.format(algo) for algo in REGISTRY for room in rooms}
    modules = [path for path in FILES if str(path.relative_to(PACKAGE)) not in per_algorithm and path.stem != "__init__"]
    sizes = Counter(str(path.parent.relative_to(PACKAGE)) for path in modules)
    assert {room: size for room, size in sizes.items() if size > 15} == {}


FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "subprocess"}
STARTING = [  # the Python that the user names; our own; ffmpeg; a C compiler, and what it made of our own header
    *(
        PACKAGE / "bench" / "worker.py",
        PACKAGE / "integrity" / "processes.py",
        PACKAGE / "envs" / "animation.py",
        PACKAGE / "deploy" / "compiled.py",
    ),
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_in_a_file_is_executed(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                assert node.func.id not in FORBIDDEN_CALLS
            if isinstance(node.func, ast.Attribute):
                owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
                assert (owner, node.func.attr) not in {
                    ("torch", "load"),
                    ("yaml", "load"),
                    ("os", "system"),
                    ("yaml", "unsafe_load"),
                }
                if (owner, node.func.attr) == ("np", "load"):
                    options = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
                    assert options.get("allow_pickle") is False
            if isinstance(node.func, ast.Name) and node.func.id == "import_module":
                assert path.name in ("_exports.py", "registry.py", "imports.py"), "only literal tables, and what a user types"
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        started = {"subprocess"} if path in STARTING else set()
        assert not {name.split(".")[0] for name in names} & (FORBIDDEN_MODULES - started)


def depends_on_the_locale(call):
    """Whether a call reads or writes text without naming its encoding, as far as the call itself shows."""
    options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if "encoding" in options:
        return False
    name = ast.unparse(call.func).rpartition(".")[2]
    if name in ("open", "fdopen"):
        modes = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        return any("b" not in mode for mode in modes) or (isinstance(call.func, ast.Name) and not modes)
    return name in ("read_text", "write_text") or options.get("text") == "True"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_texts_are_utf_8_whatever_the_locale(path):
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert [ast.unparse(call) for call in calls if depends_on_the_locale(call)] == []


@pytest.mark.parametrize("path", STARTING, ids=lambda path: path.stem)
def test_a_program_is_started_without_a_shell(path):
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    (start,) = [call for call in calls if ast.unparse(call.func).startswith("subprocess.")]
    assert ast.unparse(start.func) == "subprocess.Popen"
    assert "shell" not in {keyword.arg for keyword in start.keywords}


def test_files_stay_readable():
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in long.items() if lines > 400} == {}
