"""Computed columns: a small language of arithmetic over the columns of a table, parsed here and never executed.

`-(abs(T1 - TSP1) + abs(T2 - TSP2))`, `diff(IAE)`, `` (`T [F]` - 32) * 5 / 9 ``. A text is parsed into a list of steps for a
stack of columns, so evaluating it neither recurses nor runs anything but the numpy functions listed here.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import did_you_mean

MAX_LENGTH = 1000  # characters of an expression
MAX_DEPTH = 40  # of parentheses, calls and signs inside one another
MAX_LAG = 1000  # rows

Values = NDArray[np.float64] | np.float64


class ExpressionError(ValueError):
    """A text that is no expression; the message says what is wrong and where."""


@dataclass(frozen=True)
class _Step:
    """Push a number or a column, or replace the last `count` values by one."""

    kind: str  # `number`, `column`, or the name of an operator or a function
    value: float = 0.0  # of a number; the rows of `lag`
    name: str = ""  # of a column
    count: int = 0


@dataclass(frozen=True)
class Expression:
    """A parsed expression over columns; a name alone is the column itself."""

    text: str
    steps: tuple[_Step, ...]
    columns: Mapping[str, int]  # the columns it reads, each with the position of its first use, counted from 1

    @property
    def is_column(self) -> bool:
        """Whether it is a column and nothing else."""
        return len(self.steps) == 1 and self.steps[0].kind == "column"

    @property
    def reach(self) -> int:
        """How many rows it looks back: that many rows at the start of every episode have no value."""
        stack: list[int] = []
        for step in self.steps:
            inner = max((stack.pop() for _ in range(step.count)), default=0)
            stack.append(inner + (int(step.value) if step.kind in _LOOKS_BACK else 0))
        return stack[0]

    def evaluate(self, columns: Mapping[str, NDArray[np.float64]], age: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the value of every row, (rows,); `age` counts the rows since the start of each row's episode.

        A row that lacks a predecessor, and one computed from NaN, is NaN.
        """
        stack: list[Values] = []
        with np.errstate(all="ignore"):
            for step in self.steps:
                if step.kind == "number":
                    stack.append(np.float64(step.value))
                elif step.kind == "column":
                    stack.append(columns[step.name])
                else:
                    inputs = [stack.pop() for _ in range(step.count)][::-1]
                    stack.append(_apply(step, inputs, age))
        return np.array(np.broadcast_to(stack[0], age.shape))


def column(name: str) -> Expression:
    """Return the expression that is one column, whatever characters its name holds."""
    return Expression(name, (_Step("column", name=name),), {name: 1})


def parse(text: str) -> Expression:
    """Return the parsed expression, or an ExpressionError that names the fault and its position."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"it is longer than {MAX_LENGTH} characters")
    parser = _Parser(text)
    steps = parser.whole()
    return Expression(text.strip(), tuple(steps), parser.columns)


def _lagged(values: Values, rows: int, age: NDArray[np.int64]) -> NDArray[np.float64]:
    """The value of `rows` rows before, NaN where that is another episode."""
    whole = np.broadcast_to(values, age.shape)
    before = np.concatenate((np.full(min(rows, len(whole)), np.nan), whole[: max(len(whole) - rows, 0)]))
    return np.where(age >= rows, before, np.nan)


def _truth(values: Any) -> Any:
    """1 for any number but 0; NaN stays NaN."""
    return np.where(np.isnan(values), np.nan, values != 0.0)


def _compared(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, compare(a, b))


_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.mod,
    "**": np.power,
    "negative": np.negative,
    "<": _compared(np.less),
    "<=": _compared(np.less_equal),
    ">": _compared(np.greater),
    ">=": _compared(np.greater_equal),
    "==": _compared(np.equal),
    "!=": _compared(np.not_equal),
    "and": lambda a, b: _truth(a) * _truth(b),
    "or": lambda a, b: np.maximum(_truth(a), _truth(b)),
    "not": lambda a: 1.0 - _truth(a),
}
_FUNCTIONS: Final[dict[str, tuple[str, int, int, Callable[..., Any] | None]]] = {  # usage, fewest and most arguments
    "abs": ("abs(x)", 1, 1, np.abs),
    "min": ("min(x, y, ...)", 2, 100, lambda *values: reduce(np.minimum, values)),
    "max": ("max(x, y, ...)", 2, 100, lambda *values: reduce(np.maximum, values)),
    "clip": ("clip(x, low, high)", 3, 3, lambda x, low, high: np.minimum(np.maximum(x, low), high)),
    "exp": ("exp(x)", 1, 1, np.exp),
    "log": ("log(x)", 1, 1, np.log),
    "sqrt": ("sqrt(x)", 1, 1, np.sqrt),
    "sign": ("sign(x)", 1, 1, np.sign),
    "diff": ("diff(x)", 1, 1, None),
    "lag": ("lag(x, rows)", 2, 2, None),
}
_LOOKS_BACK = ("diff", "lag")
_LEVELS: Final = (("or",), ("and",), ("<", "<=", ">", ">=", "==", "!="), ("+", "-"), ("*", "/", "%"))  # loosest first
_NOT, _COMPARISON = 2, 2  # `not` stands above the level of comparisons
_TOKEN = re.compile(
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[^\W\d]\w*(?:\.\w+)*)"
    r"|`(?P<quoted>[^`]+)`"
    r"|(?P<mark>\*\*|<=|>=|==|!=|[-+*/%()<>,])"
)
_OTHER_MARKS = {"^": "**", "&": "and", "|": "or", "!": "not", "=": "==", "\N{MINUS SIGN}": "-"}


def _apply(step: _Step, inputs: list[Values], age: NDArray[np.int64]) -> Values:
    if step.kind in _LOOKS_BACK:
        before = _lagged(inputs[0], int(step.value), age)
        return inputs[0] - before if step.kind == "diff" else before
    operator = _OPERATORS.get(step.kind) or _FUNCTIONS[step.kind][3]
    assert operator is not None  # noqa: S101 - the parser knows no other
    result: Values = operator(*inputs)
    return result


@dataclass(frozen=True)
class _Token:
    kind: str  # number, name, quoted, mark or end
    text: str
    position: int  # counted from 1


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        found = _TOKEN.match(text, position)
        if found is None:
            mark = text[position]
            other = f"; write `{_OTHER_MARKS[mark]}`" if mark in _OTHER_MARKS else ""
            quotes = "; a name with such a character stands in backquotes" if not other and mark != "`" else ""
            raise ExpressionError(f"unexpected `{mark}` at position {position + 1}{other}{quotes}")
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind], position + 1)
        position = found.end()
    yield _Token("end", "", len(text) + 1)


class _Parser:
    """Recursive descent by precedence; every rule returns the steps that leave one value on the stack."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0
        self.columns: dict[str, int] = {}

    def whole(self) -> list[_Step]:
        """Return the steps of the whole text."""
        steps = self._level(0)
        if self._token.kind != "end":
            raise self._unexpected("an operator")
        return steps

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _at(self, *marks: str) -> bool:
        return self._token.kind in ("mark", "name") and self._token.text in marks

    def _unexpected(self, wanted: str) -> ExpressionError:
        token = self._token
        found = "the end" if token.kind == "end" else f"`{token.text}` at position {token.position}"
        return ExpressionError(f"{wanted} is expected before {found}")

    def _deeper(self, rule: Callable[[], list[_Step]]) -> list[_Step]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"it is nested more than {MAX_DEPTH} deep")
        steps = rule()
        self._depth -= 1
        return steps

    def _level(self, level: int) -> list[_Step]:
        """Operators of one precedence from left to right; `a < b < c` means both."""
        if level == len(_LEVELS):
            return self._sign()
        if level == _NOT and self._at("not"):
            self._take()
            return [*self._deeper(lambda: self._level(_NOT)), _Step("not", count=1)]
        steps = right = self._level(level + 1)
        links = 0
        while self._at(*_LEVELS[level]):
            operator, left = self._take().text, right
            right = self._level(level + 1)
            links += 1
            if level == _COMPARISON and links > 1:
                steps = [*steps, *left, *right, _Step(operator, count=2), _Step("and", count=2)]
            else:
                steps = [*steps, *right, _Step(operator, count=2)]
        return steps

    def _sign(self) -> list[_Step]:
        """A sign binds less than a power: -2 ** 2 is -4."""
        if self._at("-", "+"):
            negative = self._take().text == "-"
            return [*self._deeper(self._sign), *[_Step("negative", count=1)] * negative]
        base = self._operand()
        if not self._at("**"):
            return base
        self._take()
        return [*base, *self._deeper(self._sign), _Step("**", count=2)]

    def _operand(self) -> list[_Step]:
        token = self._token
        if token.kind == "number":
            self._take()
            return [_Step("number", value=_finite(token))]
        if token.kind == "quoted" or (token.kind == "name" and token.text not in ("and", "or", "not")):
            self._take()
            if token.kind == "name" and self._at("("):
                return self._deeper(lambda: self._call(token))
            self.columns.setdefault(token.text, token.position)
            return [_Step("column", name=token.text)]
        if self._at("("):
            self._take()
            steps = self._deeper(lambda: self._level(0))
            self._close()
            return steps
        raise self._unexpected("a number, a column or `(`")

    def _close(self) -> None:
        if not self._at(")"):
            raise self._unexpected("`)`")
        self._take()

    def _call(self, name: _Token) -> list[_Step]:
        if name.text not in _FUNCTIONS:
            near = did_you_mean(name.text, _FUNCTIONS) or f" There are: {', '.join(_FUNCTIONS)}"
            raise ExpressionError(f"there is no function `{name.text}` (position {name.position}).{near}")
        usage, fewest, most, _ = _FUNCTIONS[name.text]
        self._take()
        given = [] if self._at(")") else [self._level(0)]
        while self._at(","):
            self._take()
            given.append(self._level(0))
        self._close()
        if not fewest <= len(given) <= most:
            got = f"{len(given)} arguments"
            raise ExpressionError(f"`{name.text}` at position {name.position} takes {usage}, not {got}")
        if name.text == "lag":
            return [*given[0], _Step("lag", value=_lag_rows(given[1], name), count=1)]
        back = 1.0 if name.text == "diff" else 0.0
        return [*(step for steps in given for step in steps), _Step(name.text, value=back, count=len(given))]


def _finite(token: _Token) -> float:
    value = float(token.text)
    if not np.isfinite(value):
        raise ExpressionError(f"the number `{token.text}` at position {token.position} is too large")
    return value


def _lag_rows(steps: list[_Step], name: _Token) -> float:
    """The second argument of `lag`: a whole number written out, since it decides which rows have a value."""
    if len(steps) != 1 or steps[0].kind != "number" or not steps[0].value.is_integer() or steps[0].value > MAX_LAG:
        raise ExpressionError(f"`lag` at position {name.position} takes lag(x, rows) with rows from 0 to {MAX_LAG}")
    return steps[0].value
