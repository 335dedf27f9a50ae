"""The layers of the package, and that nothing in a file is ever executed."""

import ast
import re

import pytest

from tests.helpers import ROOT

PACKAGE = ROOT / "src" / "rl_training"
FILES = sorted(PACKAGE.rglob("*.py"))
BOTTOM = ("errors", "rng", "knobs", "storage", "faults", "_lazy")
LAYERS = ["cli", "bench", "api", "experiment", "runtime", "algorithms", ("models", "data"), BOTTOM]
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


def test_algorithms_and_engine_keep_to_their_own():
    for path in (PACKAGE / "algorithms").glob("*.py"):
        assert set(imports(path)) <= {"algorithms", "models", "data", "rng", "errors", "knobs", "_lazy"}
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rl_training.data"):
                assert node.module == "rl_training.data.batch"
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("item", "cpu", "numpy"), f"{path}: a host synchronisation in an algorithm"
    engine = (PACKAGE / "runtime" / "engine.py").read_text()
    assert not re.search(r"rl_training\.algorithms\.(?!learner)", engine)


FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "subprocess"}


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
                assert path.name in ("_lazy.py", "registry.py"), "only the package's own literal tables import lazily"
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        started = {"subprocess"} if path == PACKAGE / "bench" / "against.py" else set()  # the Python that the user names
        assert not {name.split(".")[0] for name in names} & (FORBIDDEN_MODULES - started)


def test_a_program_is_started_without_a_shell():
    calls = [
        node for node in ast.walk(ast.parse((PACKAGE / "bench" / "against.py").read_text())) if isinstance(node, ast.Call)
    ]
    (start,) = [call for call in calls if ast.unparse(call.func).startswith("subprocess.")]
    assert ast.unparse(start.func) == "subprocess.Popen"
    assert "shell" not in {keyword.arg for keyword in start.keywords}


def test_files_stay_readable():
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in long.items() if lines > 400} == {}
