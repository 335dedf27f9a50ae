"""Write the stubs of the lazy packages and of the managed classes: `python -m tools.stubs`, or `--check` to compare alone.

Packages serve their public names by `__getattr__`, and the managed classes are made from the registry, so the sources tell a
type checker nothing. The stubs repeat what is declared elsewhere: the names in `rl_training._exports`, the settings in the
config classes, the other parameters in `ManagedAlgorithm`.
"""

import argparse
import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator

from rl_training._exports import EXPORTS
from rl_training.config.base import StrictModel
from rl_training.config.run import RunConfig
from rl_training.registry import REGISTRY

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 126
MANAGED = "rl_training.api.algorithms"
TYPING = {  # where the words that types are written with come from
    **dict.fromkeys(("Mapping", "Sequence"), "collections.abc"),
    **dict.fromkeys(("Any", "Literal", "TypedDict", "Unpack"), "typing"),
}


def stubs() -> dict[Path, str]:
    """Return the text of every stub by its path."""
    places = {package: _path(f"{package}.__init__") for package in EXPORTS}
    return {path: package_stub(package) for package, path in places.items()} | {_path(MANAGED): managed_stub()}


def _path(module: str, suffix: str = ".pyi") -> Path:
    return ROOT.joinpath("src", *module.split(".")).with_suffix(suffix)


def package_stub(package: str) -> str:
    """Return the stub of a lazy package.

    The managed classes come with a star, so that a new algorithm changes nothing here; a list of names would hide them.
    """
    exports = {name: place.split(":") for name, place in EXPORTS[package].items()}
    star = MANAGED in {module for module, _ in exports.values()}
    lines = _imports({name: module for name, (module, own) in exports.items() if name == own and module != MANAGED}, star)
    if star:
        lines = sorted([*lines, f"from {MANAGED} import *  # noqa: F403"], key=lambda line: line.split()[1])
    listed = ["__all__: list[str]"] if star else _listed(exports)
    version = ["__version__: str"] if hasattr(import_module(package), "__version__") else []
    aliases = [f"{name} = {own}" for name, (_, own) in exports.items() if name != own]
    return _text("the table of public names", lines, [*listed, *version, *aliases])


def managed_stub() -> str:
    """Return the stub of the managed classes, with every setting by name and type."""
    parameters, places = _constructor()
    settings = Settings(omit={"algo", "algo_kwargs", *parameters})
    run = settings.add(RunConfig)
    classes: list[str] = []
    for spec in REGISTRY.values():
        settings.write(f"_{spec.name}Settings", [*settings.add(spec.config), *run])
        own = [text for name, text in parameters.items() if spec.takes_data or name != "dataset"]
        packed = _packed(["self", *own, f"**settings: Unpack[_{spec.name}Settings]"], WIDTH - 9)
        signature = ",\n        ".join(packed)
        classes += [f"class {spec.name}(ManagedAlgorithm):", f"    def __init__(\n        {signature}\n    ) -> None: ..."]
    body = ["# fmt: off", *settings.lines, *classes]
    learners = {f"{spec.name}Algorithm": "rl_training.algorithms" for spec in REGISTRY.values()}
    words = set(re.findall(r"\w+", "\n".join(body)))
    used = {name: module for name, module in (places | TYPING).items() if name in words}
    listed = _listed([*learners, *(spec.name for spec in REGISTRY.values())])
    return _text("the config classes", _imports(used | learners), [*listed, "", *body])


class Settings:
    """TypedDicts that mirror config classes, each with the fields that its bases do not have already."""

    def __init__(self, omit: Iterable[str]) -> None:
        self.lines: list[str] = []
        self._omit = set(omit)
        self._known: dict[type[StrictModel], list[type[StrictModel]]] = {}

    def add(self, model: type[StrictModel]) -> list[type[StrictModel]]:
        """Write the TypedDict of a class after those of its bases; one that adds nothing is stood for by its bases."""
        if model not in self._known:
            parents = [base for base in model.__bases__ if issubclass(base, StrictModel) and base is not StrictModel]
            bases = list(dict.fromkeys(found for parent in parents for found in self.add(parent)))
            bases = [base for base in bases if not any(issubclass(other, base) for other in bases if other is not base)]
            fields = self._fields(model)
            inherited = {item for parent in parents for item in self._fields(parent).items()}
            changed = not inherited <= fields.items()  # a TypedDict cannot give an inherited field another type
            own = fields if changed else {name: text for name, text in fields.items() if (name, text) not in inherited}
            if own:
                self.write(f"_{model.__name__}", [] if changed else bases, own)
            self._known[model] = [model] if own else bases
        return self._known[model]

    def write(self, name: str, bases: Iterable[type], fields: Mapping[str, str] | None = None) -> None:
        """Write one TypedDict."""
        named = ", ".join([f"_{base.__name__}" for base in bases] or ["TypedDict"]) + ", total=False"
        lines = [f"    {field}: {text}" for field, text in (fields or {}).items()]
        end = ":" if lines else ": ..."
        head = f"class {name}({named}){end}"
        self.lines += [head] if len(head) <= WIDTH else [f"class {name}(", f"    {named}", f"){end}"]
        self.lines += [*lines, ""]

    def _fields(self, model: type[StrictModel]) -> dict[str, str]:
        return {
            name: type_text(field.annotation, field.metadata)
            for name, field in model.model_fields.items()
            if name not in self._omit
        }


def type_text(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Return what may be given for a value of this type, as Python writes it."""
    options = dict.fromkeys(_options(annotation, metadata))
    return " | ".join([*(option for option in options if option != "None"), *(["None"] if "None" in options else [])])


def _options(annotation: Any, metadata: Iterable[Any] = ()) -> Iterator[str]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _options(arguments[0], arguments[1:])
    elif origin in (Union, UnionType):
        for argument in arguments:
            yield from _options(argument)
    elif origin is Literal:
        yield _literal(arguments)
    elif origin is tuple:
        items = " | ".join(dict.fromkeys(type_text(argument) for argument in arguments if argument is not ...))
        yield f"Sequence[{items}]"
    elif origin is dict:
        yield f"Mapping[{', '.join(map(type_text, arguments))}]"
    elif annotation is Any:
        yield "Any"
    elif annotation in (bool, int, float, str, NoneType):
        yield "None" if annotation is NoneType else annotation.__name__
    elif inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield "Mapping[str, Any]"
    else:
        raise TypeError(f"there is no rule for the stub of {annotation}")
    for validator in metadata:
        if isinstance(validator, BeforeValidator):
            yield from _texts(validator.func, annotation)


def _texts(validate: Callable[..., Any], annotation: Any) -> Iterator[str]:
    """The text that a validator makes a value of: any, or some of the words in the type."""
    words = [word for word in dict.fromkeys(("1", *_words(annotation))) if _reads(validate, word)]
    if words:
        yield "str" if "1" in words else _literal(words)


def _literal(values: Iterable[Any]) -> str:
    return f"Literal[{', '.join(json.dumps(value) if isinstance(value, str) else repr(value) for value in values)}]"


def _reads(validate: Callable[..., Any], word: str) -> bool:
    try:
        return not isinstance(validate(word), str)
    except ValueError:
        return False


def _words(annotation: Any) -> Iterator[str]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        for field in annotation.model_fields.values():
            yield from _words(field.annotation)
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)


def _constructor() -> tuple[dict[str, str], dict[str, str]]:
    """The parameters of `ManagedAlgorithm` as they are written, less the settings, and the module of each name there."""
    module = "rl_training.api.managed"
    source = _path(module, ".py").read_text()
    places: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom):
            places |= {alias.name: str(node.module) for alias in node.names}
        elif isinstance(node, ast.Assign):
            places |= {ast.unparse(target): module for target in node.targets}
        elif isinstance(node, ast.ClassDef):
            places[node.name] = module
            given = next(item.args for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
    parameters: dict[str, str] = {}
    for argument, default in zip([*given.args[1:], *given.kwonlyargs], [*given.defaults, *given.kw_defaults], strict=True):
        parameters |= {"*": "*"} if argument is given.kwonlyargs[0] else {}
        words = [ast.get_source_segment(source, part) for part in (argument, default) if part]
        parameters[argument.arg] = " = ".join(word for word in words if word)
    return parameters, places


def _imports(places: Mapping[str, str], public: bool = False) -> list[str]:
    """The import statements for names with their modules, ours last; `public` marks each name as exported."""
    ours: list[str] = []
    others: list[str] = []
    for module in sorted(set(places.values())):
        names = sorted(name for name, place in places.items() if place == module)
        names.sort(key=lambda name: (_rank(name), name.lower()))
        lines = [f"from {module} import {', '.join(names)}"]
        if public:
            lines = [f"from {module} import {name} as {name}" for name in names]
        elif len(lines[0]) > WIDTH:
            lines = [f"from {module} import (", *(f"    {name}," for name in names), ")"]
        (ours if module.startswith("rl_training") else others).extend(lines)
    return [*others, *([""] if others else []), *ours]


def _rank(name: str) -> int:
    """The place of a name among others: constants, classes, functions."""
    return 0 if name.isupper() else 1 if name[0].isupper() else 2


def _listed(names: Iterable[str]) -> list[str]:
    """`__all__`, in as few lines as there is room for."""
    quoted = [json.dumps(name) for name in sorted(names, key=lambda name: (_rank(name), name))]
    packed = _packed(quoted, WIDTH - len("__all__ += []"))
    return [f"__all__ {'+=' if place else '='} [{line}]" for place, line in enumerate(packed)]


def _packed(items: Iterable[str], room: int) -> list[str]:
    """The items with commas between them, in lines of at most `room` characters."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 2 + len(item) <= room:
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return lines


def _text(origin: str, imports: Iterable[str], body: Iterable[str]) -> str:
    return "\n".join([f"# Generated by `make stubs` from {origin}; do not edit.", *imports, "", *body, ""])


def main() -> int:
    """Write the stubs that have changed, or with `--check` name them and return 1."""
    parser = argparse.ArgumentParser(description="Write the stubs of the package, or check that they are up to date.")
    parser.add_argument("--check", action="store_true", help="write nothing; name the stale files and exit with 1")
    check = parser.parse_args().check
    stale = {path: text for path, text in stubs().items() if not path.is_file() or path.read_text() != text}
    for path, text in stale.items():
        print(f"{path.relative_to(ROOT)}{': is stale, run `make stubs`' if check else ''}")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
