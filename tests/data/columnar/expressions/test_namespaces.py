"""The namespaces .str, .list, .arr, .struct, .map and .dt."""

import datetime
import inspect
from typing import Any

import pyarrow as pa
import pytest

from syncline.data.columnar.expressions import Expr, col
from syncline.data.columnar.expressions.namespaces import Namespace

TEXT = pa.table({"s": ["héllo wOrld", " ab ", None], "n": [0, 1, 2]})
S = col("s").str
LISTS = pa.table(
    {
        "l": [[3, 1, None, 2], [], None],
        "ll": [[[1], [2, 3], None], [], None],
        "fixed": pa.array([[2, 1], None, [4, 3]], pa.list_(pa.int64(), 2)),
        "large": pa.array([[2, 1], [], None], pa.large_list(pa.int64())),
        "nested_fixed": pa.array([[[1, 2], None], [[3, 4]], []], pa.list_(pa.list_(pa.int64(), 2))),
        "m": pa.array([[("a", 1), ("b", 2)], None, []], pa.map_(pa.string(), pa.int64())),
        "st": [{"x": 1, "y": {"z": "q"}}, None, {"x": None, "y": None}],
    }
)
TIMES = pa.table(
    {
        "t": [datetime.datetime(2020, 2, 3, 14, 35, 6), None],
        "d": [datetime.date(2021, 12, 31), None],
    }
)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (S.len(), [11, 4, None]),
        (S.byte_len(), [12, 4, None]),
        (S.upper(), ["HÉLLO WORLD", " AB ", None]),
        (S.lower(), ["héllo world", " ab ", None]),
        (S.capitalize(), ["Héllo world", " ab ", None]),
        (S.title(), ["Héllo World", " Ab ", None]),
        (S.swapcase(), ["HÉLLO WoRLD", " AB ", None]),
        (S.is_alpha(), [False, False, None]),
        (S.is_ascii(), [False, True, None]),
        (S.is_lower(), [False, True, None]),
        (S.starts_with("h"), [True, False, None]),
        (S.starts_with("H", ignore_case=True), [True, False, None]),
        (S.ends_with("ld"), [True, False, None]),
        (S.contains("wO"), [True, False, None]),
        (S.match("h%d"), [True, False, None]),
        (S.match_regex("^ *ab"), [False, True, None]),
        (S.find("ab"), [-1, 1, None]),
        (S.find_regex("[ab]+"), [-1, 1, None]),
        (S.count("l"), [3, 0, None]),
        (S.count_regex("[lo]"), [4, 0, None]),
        (S.reverse(), ["dlrOw olléh", " ba ", None]),
        (S.slice(1, 3), ["él", "ab", None]),
        (S.slice(-2), ["ld", "b ", None]),
        (S.replace("l", "L", max_replacements=1), ["héLlo wOrld", " ab ", None]),
        (S.replace_regex("(l+)", r"<\1>"), ["hé<ll>o wOr<l>d", " ab ", None]),
        (S.replace_slice(0, 1, "J"), ["Jéllo wOrld", "Jab ", None]),
        (S.split(" "), [["héllo", "wOrld"], ["", "ab", ""], None]),
        (S.split("l", max_splits=1, reverse=True), [["héllo wOr", "d"], [" ab "], None]),
        (S.split_regex("[ lo]+"), [["hé", "wOr", "d"], ["", "ab", ""], None]),
        (S.split_whitespace(), [["héllo", "wOrld"], ["", "ab", ""], None]),
        (
            S.extract("(?P<first>[a-z])(?P<second>[a-z])"),
            [{"first": "l", "second": "l"}, {"first": "a", "second": "b"}, None],
        ),
        (S.repeat(2), ["héllo wOrldhéllo wOrld", " ab  ab ", None]),
        (S.repeat(col("n")), ["", " ab ", None]),
        (S.strip(), ["héllo wOrld", "ab", None]),
        (S.strip("hd "), ["éllo wOrl", "ab", None]),
        (S.lstrip(), ["héllo wOrld", "ab ", None]),
        (S.rstrip("d"), ["héllo wOrl", " ab ", None]),
        (S.lpad(6, "."), ["héllo wOrld", ".. ab ", None]),
        (S.rpad(6), ["héllo wOrld", " ab   ", None]),
        (S.center(6, "."), ["héllo wOrld", ". ab .", None]),
        (S.pad(6, ".", "left"), ["héllo wOrld", ".. ab ", None]),
        (S.pad(6, "."), ["héllo wOrld", " ab ..", None]),
        (S.pad(6, ".", side="both"), ["héllo wOrld", ". ab .", None]),
    ],
    ids=repr,
)
def test_text(expr: Expr, expected: list[Any]) -> None:
    assert expr.evaluate(TEXT).to_pylist() == expected
    dictionary = TEXT.set_column(0, "s", TEXT["s"].dictionary_encode())
    assert expr.evaluate(dictionary).to_pylist() == expected
    assert expr.get_type(TEXT.schema) == expr.evaluate(TEXT).type


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("l").list.len(), [4, 0, None]),
        (col("l").list.get(1), [1, None, None]),
        (col("l").list[0], [3, None, None]),
        (col("l").list[-1], [2, None, None]),
        (col("l").list[-5], [None, None, None]),
        (col("fixed").list[1], [1, None, 3]),
        (col("large").list[1], [1, None, None]),
        (col("l").list[1:3], [[1, None], [], None]),
        (col("l").list.slice(2), [[None, 2], [], None]),
        (col("l").list[-2:], [[None, 2], [], None]),
        (col("l").list[::-1], [[2, None, 1, 3], [], None]),
        (col("l").list[::2], [[3, None], [], None]),
        (col("large").list[:1], [[2], [], None]),
        (col("l").list.sort(), [[1, 2, 3, None], [], None]),
        (col("l").list.sort("descending"), [[3, 2, 1, None], [], None]),
        (col("l").list.sort(null_placement="at_start"), [[None, 1, 2, 3], [], None]),
        (col("fixed").list.sort(), [[1, 2], None, [3, 4]]),
        (col("large").list.sort(), [[1, 2], [], None]),
        (col("ll").list.flatten(), [[1, 2, 3], [], None]),
        (col("nested_fixed").list.flatten(), [[1, 2], [3, 4], []]),
        (col("fixed").arr.to_list(), [[2, 1], None, [4, 3]]),
        (col("l").arr.to_list(), [[3, 1, None, 2], [], None]),
        (col("m").map.keys(), [["a", "b"], None, []]),
        (col("m").map.values(), [[1, 2], None, []]),
        (col("st").struct["x"], [1, None, None]),
        (col("st").struct.field("x"), [1, None, None]),
        (col("st").struct[0], [1, None, None]),
        (col("st").struct.field_by_index(1), [{"z": "q"}, None, None]),
        (col("st").struct["y"].struct["z"], ["q", None, None]),
    ],
    ids=repr,
)
def test_nested(expr: Expr, expected: list[Any]) -> None:
    found = expr.evaluate(LISTS)
    assert found.to_pylist() == expected
    assert expr.get_type(LISTS.schema) == found.type
    assert expr.evaluate(LISTS.slice(1)).to_pylist() == expected[1:]
    assert (
        expr.evaluate(pa.concat_tables([LISTS.slice(0, 2), LISTS.slice(2)])).to_pylist() == expected
    )


def test_a_list_of_fixed_size_becomes_one_of_any_length() -> None:
    assert col("fixed").arr.to_list().get_type(LISTS.schema) == pa.list_(pa.int64())
    assert col("large").list.sort().get_type(LISTS.schema) == pa.large_list(pa.int64())


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("t").dt.year(), 2020),
        (col("t").dt.month(), 2),
        (col("t").dt.day(), 3),
        (col("t").dt.hour(), 14),
        (col("t").dt.minute(), 35),
        (col("t").dt.second(), 6),
        (col("d").dt.year(), 2021),
        (col("t").dt.strftime("%Y/%m"), "2020/02"),
        (col("t").dt.floor("hour"), datetime.datetime(2020, 2, 3, 14)),
        (col("t").dt.ceil("day"), datetime.datetime(2020, 2, 4)),
        (col("t").dt.round("hour"), datetime.datetime(2020, 2, 3, 15)),
    ],
    ids=repr,
)
def test_times(expr: Expr, expected: Any) -> None:
    assert expr.evaluate(TIMES).to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".", ['{"a": {"b": [1, "x"]}, "c d": null}', "[3, 4]", None, None]),
        (".a.b", ['[1, "x"]', None, None, None]),
        (".a.b[1]", ["x", None, None, None]),
        ('.["a"]."b"[-1]', ["x", None, None, None]),
        (".[0]", [None, "3", None, None]),
        ('."c d"', [None, None, None, None]),
        (".a.b[7]", [None, None, None, None]),
    ],
)
def test_parts_of_json_documents(path: str, expected: list[Any]) -> None:
    texts = ['{"a": {"b": [1, "x"]}, "c d": null}', "[3, 4]", "no json", None]
    assert col("j").str.jq(path).evaluate(pa.table({"j": texts})).to_pylist() == expected


@pytest.mark.parametrize("path", ["", "a", ".a | length", ".a[", "..", ".[a]"])
def test_other_programs_of_jq_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is not a path"):
        col("j").str.jq(path)


def test_unknown_fields_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match="struct_field"):
        col("st").struct["nope"].evaluate(LISTS)
    with pytest.raises(ValueError, match="side='middle'"):
        S.pad(3, side="middle")
    with pytest.raises(ValueError, match="order='up'"):
        col("l").list.sort("up")
    with pytest.raises(ValueError, match="null_placement='middle'"):
        col("l").list.sort(null_placement="middle")
    with pytest.raises(TypeError, match="list index is an integer or a slice"):
        col("l").list["a"]
    with pytest.raises(TypeError, match="field's name or position"):
        col("st").struct[1.5]
    with pytest.raises(TypeError, match="this takes lists of lists"):
        col("l").list.flatten().evaluate(LISTS)
    with pytest.raises(TypeError, match="this takes maps"):
        col("l").map.keys().evaluate(LISTS)


def test_methods_have_the_signatures_and_docstrings_of_their_rows() -> None:
    assert (
        str(inspect.signature(S.starts_with))
        == "(pattern: 'str', *, ignore_case: 'bool' = False) -> 'FunctionExpr'"
    )
    assert str(inspect.signature(S.upper)) == "() -> 'FunctionExpr'"
    with pytest.raises(TypeError, match="StringNamespace.starts_with.*'pattern'"):
        S.starts_with()
    for namespace in Namespace.__subclasses__():
        for name, member in vars(namespace).items():
            if not name.startswith("_"):
                assert member.__doc__, (namespace, name)
                assert member.__name__ == name
