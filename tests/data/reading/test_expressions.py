"""The language of computed columns, against numpy on random columns and random expressions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.data.reading.tables.expressions import MAX_DEPTH, ExpressionError, parse

ROWS = 12
ENDS = np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1], dtype=bool)
EPISODES = [slice(0, 4), slice(4, 10), slice(10, 12)]
AGE = np.concatenate([np.arange(part.stop - part.start) for part in EPISODES])
COLUMNS = {
    "a": np.linspace(-3.0, 4.0, ROWS),
    "b": np.array([0, 1, 2, 0, 1, 2, 3, 0, 0, 1, 5, 1], dtype=float),
    "T [°C]": np.linspace(20.0, 90.0, ROWS) ** 1.1,
}
NAN = np.nan


def value(text, columns=COLUMNS):
    return parse(text).evaluate(columns, AGE)


def per_episode(function, values):
    """The definition of what looks back: a function of each episode alone."""
    return np.concatenate([function(values[part]) for part in EPISODES])


def lagged(values, rows):
    return per_episode(
        lambda own: np.concatenate((np.full(min(rows, len(own)), NAN), own[: max(len(own) - rows, 0)])), values
    )


def truth(values):
    return np.where(np.isnan(values), NAN, (values != 0).astype(float))


def compared(operator):
    return lambda x, y: np.where(np.isnan(x) | np.isnan(y), NAN, operator(x, y).astype(float))


BINARY = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.mod,
    "**": np.power,
    "<": compared(np.less),
    "<=": compared(np.less_equal),
    ">": compared(np.greater),
    ">=": compared(np.greater_equal),
    "==": compared(np.equal),
    "!=": compared(np.not_equal),
    "and": lambda x, y: truth(x) * truth(y),
    "or": lambda x, y: np.maximum(truth(x), truth(y)),
}
UNARY = {
    "abs({})": np.abs,
    "exp({})": np.exp,
    "log({})": np.log,
    "sqrt({})": np.sqrt,
    "sign({})": np.sign,
    "diff({})": lambda x: x - lagged(x, 1),
    "lag({}, 2)": lambda x: lagged(x, 2),
    "(-{})": np.negative,
    "(not {})": lambda x: 1.0 - truth(x),
}
SEVERAL = {
    "min({}, {}, {})": lambda x, y, z: np.minimum(np.minimum(x, y), z),
    "max({}, {}, {})": lambda x, y, z: np.maximum(np.maximum(x, y), z),
    "clip({}, {}, {})": lambda x, y, z: np.minimum(np.maximum(x, y), z),
}
leaves = st.one_of(
    st.sampled_from([("a", COLUMNS["a"]), ("b", COLUMNS["b"]), ("`T [°C]`", COLUMNS["T [°C]"])]),
    st.floats(0.0, 100.0).map(lambda number: (repr(number), np.full(ROWS, number))),
)


def nodes(inner):
    """Expressions with their value by numpy, fully parenthesised."""
    return st.one_of(
        st.tuples(st.sampled_from(sorted(BINARY)), inner, inner).map(
            lambda p: (f"({p[1][0]} {p[0]} {p[2][0]})", BINARY[p[0]](p[1][1], p[2][1]))
        ),
        st.tuples(st.sampled_from(sorted(UNARY)), inner).map(lambda p: (p[0].format(p[1][0]), UNARY[p[0]](p[1][1]))),
        st.tuples(st.sampled_from(sorted(SEVERAL)), inner, inner, inner).map(
            lambda p: (p[0].format(*(x[0] for x in p[1:])), SEVERAL[p[0]](*(x[1] for x in p[1:])))
        ),
    )


with np.errstate(all="ignore"):
    expressions = st.recursive(leaves, nodes, max_leaves=12)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_random_expressions_equal_numpy(data):
    with np.errstate(all="ignore"):
        text, expected = data.draw(expressions)
    assert np.array_equal(value(text), np.broadcast_to(expected, ROWS), equal_nan=True), text


PLAIN = st.recursive(
    st.sampled_from(["a", "b", "2", "0.5", "3"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "%", "**"]), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("-{}".format),
    ),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(PLAIN)
def test_precedence_is_that_of_python(text):
    """Without parentheses the text means what Python means by it; Python evaluates it here, in the test, over arrays."""
    columns = {"a": np.linspace(0.5, 2.0, ROWS), "b": np.linspace(3.0, 1.0, ROWS)}
    with np.errstate(all="ignore"):
        numbers = {"2": "np.float64(2.0)", "3": "np.float64(3.0)", "0.5": "np.float64(0.5)"}
        code = " ".join(
            numbers.get(word, word) for word in text.replace("(", " ( ").replace(")", " ) ").replace("-", " - ").split()
        )
        expected = eval(code, {"np": np, **columns})  # noqa: S307 - our own text
    assert np.array_equal(value(text, columns), np.broadcast_to(expected, ROWS), equal_nan=True), text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-2 ** 2", -4.0),
        ("2 ** 3 ** 2", 512.0),
        ("2 ** -1", 0.5),
        ("10 - 4 - 3", 3.0),
        ("7 % 4 * 2", 6.0),
        ("not 1 < 2", 0.0),
        ("1 < 2 < 3", 1.0),
        ("1 < 3 < 2", 0.0),
        ("3 > 2 > 1 == 1", 1.0),
        ("1 or 0 and 0", 1.0),
        ("not 0 and 1", 1.0),
        ("1 + 2 == 3", 1.0),
        (" 1e-3*.5 ", 0.0005),
        ("--1", 1.0),
    ],
)
def test_precedence(text, expected):
    assert value(text).tolist() == [expected] * ROWS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is expected before the end"),
        ("a +", "is expected before the end"),
        ("(a", "`\\)` is expected before the end"),
        ("a b", "an operator is expected before `b` at position 3"),
        ("2a", "before `a` at position 2"),
        ("a ^ 2", "unexpected `\\^` at position 3; write `\\*\\*`"),
        ("a && b", "write `and`"),
        ("a = 1", "write `==`"),
        ("sqr(a)", "no function `sqr` \\(position 1\\). Did you mean `sqrt`"),
        ("eval(a)", "no function `eval`"),
        ("__import__('os')", "unexpected `'`"),
        ("a[0]", "unexpected `\\[` at position 2"),
        ("(lambda: 1)()", "unexpected `:`"),
        ("abs()", "takes abs\\(x\\), not 0 arguments"),
        ("clip(a, 1)", "takes clip\\(x, low, high\\), not 2"),
        ("min(a)", "min\\(x, y, ...\\)"),
        ("lag(a, b)", "rows from 0 to 1000"),
        ("lag(a, -1)", "rows from 0 to 1000"),
        ("lag(a, 1.5)", "rows from 0 to 1000"),
        ("1e999", "too large"),
        ("`a", "unexpected ```"),
        ("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1), "nested more than"),
        ("-" * 100 + "a", "nested more than"),
        ("not " * 100 + "a", "nested more than"),
        ("a" + "+a" * 600, "longer than 1000"),
    ],
)
def test_faults_have_a_position(text, message):
    with pytest.raises(ExpressionError, match=message):
        parse(text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab12.(),+-*/%<>=! `&|^notdlg'\n\"", max_size=40))
def test_any_text_is_parsed_or_refused(text):
    """Nothing but an ExpressionError ever leaves the parser, and what it accepts can be evaluated."""
    try:
        expression = parse(text)
    except ExpressionError:
        return
    columns = dict.fromkeys(expression.columns, COLUMNS["a"])
    assert expression.evaluate(columns, AGE).shape == (ROWS,)


def test_a_sum_of_many_terms_is_no_depth():
    assert value("+".join(["a"] * 400)) == pytest.approx(400 * COLUMNS["a"])


def test_reach_is_what_is_missing_at_the_start_of_an_episode():
    for text, reach in {"a": 0, "diff(a)": 1, "lag(a, 3)": 3, "diff(lag(a, 2)) + diff(b)": 3, "lag(a, 0)": 0}.items():
        expression = parse(text)
        assert expression.reach == reach
        assert np.array_equal(np.isnan(expression.evaluate(COLUMNS, AGE)), reach > AGE)


def test_names_may_be_those_of_functions():
    assert np.array_equal(
        parse("max + max(max, 1)").evaluate({"max": COLUMNS["b"]}, AGE), COLUMNS["b"] + np.maximum(COLUMNS["b"], 1)
    )
