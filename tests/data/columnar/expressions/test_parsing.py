"""Predicates as text."""

import pytest

from syncline.data.columnar.expressions import parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 3 and s in ['a', 'b']", "(col('a') > 3) & col('s').is_in(['a', 'b'])"),
        ("a > 3 or b < 2 or c == 1", "(col('a') > 3) | (col('b') < 2) | (col('c') == 1)"),
        (" 1 < a <= 3", "(1 < col('a')) & (col('a') <= 3)"),
        ("not (a == -1)", "~(col('a') == -1)"),
        ("(a > 1) & ~(b > 2) | (c != 'x')", "(col('a') > 1) & ~(col('b') > 2) | (col('c') != 'x')"),
        ("a.b.c + 2 * d - 1 > 1.5", "col('a.b.c') + 2 * col('d') - 1 > 1.5"),
        ("a // 2 % 3 / 4 >= 1", "col('a') // 2 % 3 / 4 >= 1"),
        ("s is None", "col('s').is_null()"),
        ("s is not None", "col('s').is_not_null()"),
        ("is_null(s) or is_not_null(t)", "col('s').is_null() | col('t').is_not_null()"),
        ("is_in(a, [1, -2])", "col('a').is_in([1, -2])"),
        ("a not in (1, 2)", "col('a').not_in([1, 2])"),
        ("a == True", "col('a') == True"),
    ],
)
def test_predicates(text: str, expected: str) -> None:
    assert repr(parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a >", "is not an expression"),
        ("", "is not an expression"),
        ("f(x) > 1", "'f\\(x\\)' is not supported"),
        ("a[0] > 1", "is not supported"),
        ("a is 3", "`is` only goes with None, not with '3'"),
        ("a in [b]", "'b' is not a constant"),
        ("__import__('os').system('x')", "is not supported"),
        ("lambda: 1", "is not supported"),
        ("a ** 2", "is not supported"),
        ("f(x).y > 1", "is not the name of a column"),
    ],
)
def test_what_is_not_understood_is_quoted(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)
