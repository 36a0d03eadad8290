"""Operators and methods of expressions: values, types, nulls, how they read, what is refused."""

import datetime
import operator
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest

from syncline.data import DataType, UnknownColumnError
from syncline.data.columnar.expressions import (
    AliasExpr,
    BinaryExpr,
    Expr,
    LiteralExpr,
    Operation,
    col,
    lit,
    random,
    udf,
    uuid,
)

TABLE = pa.table(
    {
        "a": [7, -7, None],
        "b": [2, 2, 2],
        "f": [7.5, -7.5, None],
        "s": ["a", None, "c"],
        "d": pa.array(["p", "q", "p"]).dictionary_encode(),
        "t": pa.array([True, False, None]),
        "n": pa.nulls(3),
        "day": [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1), None],
    }
)
# (expression, values, as written)
CASES: list[tuple[Expr, list[Any], str]] = [
    (col("a") + 1, [8, -6, None], "col('a') + 1"),
    (1 + col("a"), [8, -6, None], "1 + col('a')"),
    (col("a") + col("f"), [14.5, -14.5, None], "col('a') + col('f')"),
    (col("s") + "!", ["a!", None, "c!"], "col('s') + '!'"),
    ("x" + col("d"), ["xp", "xq", "xp"], "'x' + col('d')"),
    (col("a") - (col("b") - 1), [6, -8, None], "col('a') - (col('b') - 1)"),
    (10 - col("b"), [8, 8, 8], "10 - col('b')"),
    ((col("a") + 1) * 2, [16, -12, None], "(col('a') + 1) * 2"),
    (col("a") / col("b"), [3.5, -3.5, None], "col('a') / col('b')"),
    (1 / col("b"), [0.5, 0.5, 0.5], "1 / col('b')"),
    (col("a") / 0, [float("inf"), float("-inf"), None], "col('a') / 0"),
    (col("a") // col("b"), [3, -4, None], "col('a') // col('b')"),
    (col("a") // -2, [-4, 3, None], "col('a') // -2"),
    (col("f") // 2, [3.0, -4.0, None], "col('f') // 2"),
    (col("a") % 3, [1, 2, None], "col('a') % 3"),
    (col("a") % -3, [-2, -1, None], "col('a') % -3"),
    (col("f") % 2, [1.5, 0.5, None], "col('f') % 2"),
    (7 % col("b"), [1, 1, 1], "7 % col('b')"),
    (col("a") == 7, [True, False, None], "col('a') == 7"),
    (col("a") != 7.0, [False, True, None], "col('a') != 7.0"),
    (col("a") < col("f"), [True, False, None], "col('a') < col('f')"),
    (col("a") <= 7, [True, True, None], "col('a') <= 7"),
    (lit(3) < col("a"), [True, False, None], "3 < col('a')"),
    (col("a") >= 7, [True, False, None], "col('a') >= 7"),
    (col("d") == "p", [True, False, True], "col('d') == 'p'"),
    (
        col("day") >= datetime.date(2020, 6, 1),
        [False, True, None],
        "col('day') >= datetime.date(2020, 6, 1)",
    ),
    ((col("a") < 1) == (col("b") < 2), [True, False, None], "(col('a') < 1) == (col('b') < 2)"),
    (~col("t"), [False, True, None], "~col('t')"),
    (~(col("a") > 1), [False, True, None], "~(col('a') > 1)"),
    (
        col("t") & (col("a") > 1) | col("s").is_null(),
        [True, True, None],
        "col('t') & (col('a') > 1) | col('s').is_null()",
    ),
    (col("t") & False, [False, False, False], "col('t') & False"),
    (True | col("t"), [True, True, True], "True | col('t')"),
    (col("n") & col("t"), [None, False, None], "col('n') & col('t')"),
    (col("n") + 1, [None, None, None], "col('n') + 1"),
    (col("a").is_null(), [False, False, True], "col('a').is_null()"),
    ((col("a") + 1).is_not_null(), [True, True, False], "(col('a') + 1).is_not_null()"),
    (col("s").is_in(["a", None]), [True, True, False], "col('s').is_in(['a', None])"),
    (col("a").is_in([7.0, 8]), [True, False, False], "col('a').is_in([7.0, 8])"),
    (col("a").is_in(pa.array([7])), [True, False, False], "col('a').is_in([7])"),
    (col("a").is_in(lit([7])), [True, False, False], "col('a').is_in([7])"),
    (col("a").is_in([]), [False, False, False], "col('a').is_in([])"),
    (col("d").is_in({"p"}), [True, False, True], "col('d').is_in(['p'])"),
    (col("s").not_in(["a"]), [False, True, True], "col('s').not_in(['a'])"),
    (col("a").cast(DataType.string()), ["7", "-7", None], "col('a').cast(string)"),
    (col("f").cast(pa.int32(), safe=False), [7, -7, None], "col('f').cast(int32)"),
    (-col("a"), [-7, 7, None], "negate_checked(col('a'))"),
    (col("a").abs().alias("x"), [7, 7, None], "abs_checked(col('a')).alias('x')"),
    ((col("a") + 1).alias("x"), [8, -6, None], "(col('a') + 1).alias('x')"),
    (col("a").sign(), [1, -1, None], "sign(col('a'))"),
    (col("a").power(2), [49, 49, None], "power(col('a'), 2)"),
    (col("b").power(col("b")), [4, 4, 4], "power(col('b'), col('b'))"),
    (col("f").round(), [8.0, -8.0, None], "round(col('f'))"),
    (col("f").ceil(), [8.0, -7.0, None], "ceil(col('f'))"),
    (col("f").floor(), [7.0, -8.0, None], "floor(col('f'))"),
    (col("f").trunc(), [7.0, -7.0, None], "trunc(col('f'))"),
    (col("b").log2(), [1.0, 1.0, 1.0], "log2(col('b'))"),
    (lit(100).log10(), [2.0, 2.0, 2.0], "log10(100)"),
    (lit(0).exp().ln(), [0.0, 0.0, 0.0], "ln(exp(0))"),
    (lit(0.0).sin() + lit(0.0).cos() + lit(0.0).tan(), [1.0] * 3, "sin(0.0) + cos(0.0) + tan(0.0)"),
    (
        lit(0.0).asin() + lit(1.0).acos() + lit(0.0).atan(),
        [0.0] * 3,
        "asin(0.0) + acos(1.0) + atan(0.0)",
    ),
    (lit("x"), ["x", "x", "x"], "'x'"),
    (lit([1, 2]), [[1, 2]] * 3, "[1, 2]"),
    (lit(None), [None, None, None], "None"),
]


@pytest.mark.parametrize(("expr", "expected", "text"), CASES, ids=[text for _, _, text in CASES])
def test_values_types_and_text(expr: Expr, expected: list[Any], text: str) -> None:
    found = expr.evaluate(TABLE)
    assert found.to_pylist() == expected
    assert repr(expr) == text
    assert expr.get_type(TABLE.schema) == found.type
    chunked = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)])
    assert expr.evaluate(chunked).to_pylist() == expected
    assert expr.evaluate(TABLE.slice(2)).to_pylist() == expected[2:]
    assert len(expr.evaluate(TABLE.slice(0, 0))) == 0


@pytest.mark.parametrize(("expr", "expected", "text"), CASES, ids=[text for _, _, text in CASES])
def test_what_is_pushed_to_a_scan_gives_the_same_there(
    expr: Expr, expected: list[Any], text: str
) -> None:
    pushed = expr.to_arrow(TABLE.schema)
    if pushed is not None:
        scanned = pyarrow.dataset.dataset(TABLE).to_table(columns={"x": pushed})
        assert scanned["x"].to_pylist() == expected


@pytest.mark.parametrize(
    ("expr", "pushed"),
    [
        ((col("a") > 1) & col("s").is_in(["a"]), True),
        (~col("s").is_null() | (col("a") + 1 > 3), True),
        (col("s").str.starts_with("a"), True),
        (col("a").cast(pa.float64()) < 3, True),
        (operator.eq(col("a"), None), True),
        (col("a") / 2 > 1, False),
        (col("a") // 2 > 1, False),
        (col("a") % 2 == 1, False),
        (col("s") + "x" == "ax", False),
        (col("s") + col("s") == "aa", False),
        (random(seed=1) < 0.5, False),
        ((col("a") > 1) & (uuid() == "x"), False),
        (udf(pa.bool_())(lambda x: x)(col("t")), False),
    ],
)
def test_only_what_means_the_same_is_pushed(expr: Expr, pushed: bool) -> None:
    assert (expr.to_arrow() is not None) == pushed
    if not pushed:
        with pytest.raises(ValueError, match="has no pyarrow equivalent"):
            expr.to_pyarrow()


def test_a_scan_that_would_refuse_the_types_gets_nothing() -> None:
    assert col("d").str.upper().to_arrow() is not None
    assert col("d").str.upper().to_arrow(TABLE.schema) is None
    assert col("s").str.upper().to_arrow(TABLE.schema) is not None


def test_conjuncts_can_be_pushed_one_by_one() -> None:
    parts = ((col("a") > 1) & (random(seed=1) < 0.5) & (col("b") < 2)).conjuncts()
    assert [part.to_arrow() is not None for part in parts] == [True, False, True]
    assert [repr(part) for part in (col("a") | col("b")).conjuncts()] == ["col('a') | col('b')"]


@pytest.mark.parametrize(
    ("expr", "error", "message"),
    [
        (col("A"), UnknownColumnError, "no column 'A' among"),
        (col("days") > 1, UnknownColumnError, "Did you mean 'day'"),
        (
            col("a") == col("s"),
            TypeError,
            "in col\\('a'\\) == col\\('s'\\): equal does not take int64 and string",
        ),
        (col("a") & col("t"), TypeError, "and does not take int64 and bool"),
        (~col("a"), TypeError, "invert does not take int64"),
        (col("a").is_in(["x"]), TypeError, "int64 cannot be compared with values of type string"),
        (col("a").str.upper(), TypeError, "utf8_upper does not take int64"),
        (col("a") + "x", TypeError, "add does not take int64 and string"),
        (col("a").list.get(0), TypeError, "this takes lists, not int64"),
    ],
)
def test_mistakes_are_found_before_and_while_evaluating(
    expr: Expr, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        expr.evaluate(TABLE)
    with pytest.raises(error, match=message):
        expr.get_type(TABLE.schema)


@pytest.mark.parametrize(
    ("expr", "error", "message"),
    [
        (col("a") // 0, ZeroDivisionError, "in col\\('a'\\) // 0: .*divides an integer by 0"),
        (col("f").cast(pa.int64()), ValueError, "in col\\('f'\\).cast\\(int64\\): .*7.5"),
    ],
)
def test_values_that_cannot_be_computed_are_an_error(
    expr: Expr, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        expr.evaluate(TABLE)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: col("a") > 1 and col("b") > 2,
        lambda: col("a") > 1 or col("b") > 2,
        lambda: not col("a"),
        lambda: 1 < col("a") < 3,
        lambda: bool(col("a") == col("b")),
        lambda: 3 if col("a") else 4,
    ],
)
def test_truth_is_refused_with_the_remedy(misuse: Any) -> None:
    with pytest.raises(TypeError, match="write & \\| ~ with parentheses"):
        misuse()


def test_membership_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match="use col\\('a'\\).is_in"):
        operator.contains(col("a"), 3)
    with pytest.raises(TypeError, match="write \\['abc'\\]"):
        col("a").is_in("abc")
    with pytest.raises(TypeError, match="not col\\('b'\\)"):
        col("a").is_in(col("b"))


def test_other_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot be a literal"):
        lit(object())
    with pytest.raises(TypeError, match="cannot be a literal"):
        col("a").is_in([1, "a"])
    with pytest.raises(TypeError, match="for a constant write lit\\(3\\)"):
        col(3)
    with pytest.raises(ValueError, match="no compute function 'nope'"):
        col("a").compute("nope")
    with pytest.raises(TypeError, match="a type is a DataType"):
        col("a").cast(int)


def test_names() -> None:
    assert col("a").name == "a"
    assert (col("a") + 1).name is None
    assert (col("a") + 1).alias("x").alias("y").name == "y"
    assert isinstance((col("a") + 1).alias("x"), AliasExpr)


def test_types_that_the_tree_alone_tells() -> None:
    assert (col("a") > 1).data_type == DataType.bool()
    assert lit(1.5).data_type == DataType.float64()
    assert col("a").cast(DataType.int8()).alias("x").data_type == DataType.int8()
    assert col("a").data_type == DataType(object)


def test_columns_and_their_replacement() -> None:
    expr = (col("a") + col("b") * 2 > 3) & col("s").str.starts_with("x")
    assert expr.columns() == {"a", "b", "s"}
    assert expr.renamed({"a": "z", "s": "a"}).columns() == {"z", "b", "a"}
    assert repr((col("a") > 1).substituted({"a": col("q") * 2})) == "col('q') * 2 > 1"
    assert expr.renamed({"other": "x"}) is expr
    assert lit(1).columns() == frozenset()


def test_structural_equality() -> None:
    def build() -> Expr:
        return (col("a") + 1 > lit(2)) & col("s").str.starts_with("x") | col("b").is_in(
            [1, 2]
        ).alias("q")

    assert build().structurally_equals(build())
    for left, right in [
        (col("a"), col("b")),
        (col("a") + 1, col("a") - 1),
        (col("a") + 1, col("a") + 1.0),
        (lit(1), lit(True)),
        (col("a").alias("x"), col("a").alias("y")),
        (col("a").is_in([1]), col("a").is_in([2])),
        (col("s").str.starts_with("x"), col("s").str.starts_with("x", ignore_case=True)),
        (col("a").cast(pa.int8()), col("a").cast(pa.int16())),
        (col("a"), "a"),
    ]:
        assert not left.structurally_equals(right)
    assert len({build(), build()}) == 2


def test_a_tree_can_be_walked() -> None:
    expr = (col("a") + 1) * 2
    assert isinstance(expr, BinaryExpr)
    assert expr.op is Operation.MUL
    assert [node.value for node in expr.walk() if isinstance(node, LiteralExpr)] == [1, 2]
    assert expr.is_idempotent()
    assert not (expr + random()).is_idempotent()


def test_str_is_a_tree_and_repr_the_notation() -> None:
    @udf(return_dtype=pa.int64())
    def joined(x: pa.Array, y: pa.Array) -> pa.Array:
        return x

    condition = (col("a") + 1 > 3) & ~col("b").is_in([1, 2])
    assert str(condition).splitlines() == [
        "&",
        "├── left: >",
        "│   ├── left: +",
        "│   │   ├── left: col('a')",
        "│   │   └── right: 1",
        "│   └── right: 3",
        "└── right: ~",
        "    └── is_in",
        "        ├── left: col('b')",
        "        └── right: [1, 2]",
    ]
    assert repr(condition) == "(col('a') + 1 > 3) & ~col('b').is_in([1, 2])"
    assert str(joined(col("a"), y=lit(1)).cast(pa.int32()).alias("z")).splitlines() == [
        "alias('z')",
        "└── cast(int32)",
        "    └── joined()",
        "        ├── col('a')",
        "        └── y: 1",
    ]
    found = str(col("s").str.starts_with("x")).splitlines()
    assert found == ["starts_with(pattern='x', ignore_case=False)", "└── col('s')"]
    assert str(col("a")) == "col('a')"


def test_expressions_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        col("a").column = "b"  # type: ignore[misc]
