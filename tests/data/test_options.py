"""Shared keyword arguments: shown in signatures, checked by name."""

import inspect
import sys
from pathlib import Path

import pytest

from syncline.data.options import keywords
from syncline.data.read import read_text

SHARED = {"color": None, "size": 3}


@keywords(SHARED)
def strict(path, *, own=1, **options):
    """Says what it got."""
    return path, own, options


@keywords(SHARED, changed={"size": 7}, without=("color",), rest="further", known=("deep",))
def with_known_rest(path, **options):
    return options


@keywords(SHARED, rest="further")
def with_any_rest(path, **options):
    return options


def test_only_what_is_given_arrives():
    assert strict("p", color="red") == ("p", 1, {"color": "red"})


def test_changed_defaults_arrive_unless_something_else_is_given():
    assert with_known_rest("p") == {"size": 7}
    assert with_known_rest("p", size=1, deep=2) == {"size": 1, "deep": 2}


def test_the_signature_shows_all_of_them():
    assert str(inspect.signature(strict)) == "(path, *, own=1, color=None, size=3)"
    assert str(inspect.signature(with_known_rest)) == "(path, *, size=7, **further)"
    assert strict.__doc__ == "Says what it got."


def test_an_unknown_keyword_is_an_error_with_the_nearest_name():
    with pytest.raises(TypeError, match="strict takes no argument 'colour'. Did you mean 'color'"):
        strict("p", colour="red")
    with pytest.raises(TypeError, match="'deeep'. Did you mean 'deep'"):
        with_known_rest("p", deeep=1)
    with pytest.raises(TypeError, match="'color'"):
        with_known_rest("p", color=1)


def test_keywords_of_another_library_pass_where_their_names_are_not_known():
    assert with_any_rest("p", anything=1) == {"anything": 1}


def test_errors_are_those_of_the_programs_call():
    with pytest.raises(FileNotFoundError) as caught:
        read_text("/there/is/no/such/file")
    # Python 3.10 also shows the frame of the reader itself.
    depth = 2 if sys.version_info < (3, 11) else 1
    assert caught.traceback[-depth].path == Path(__file__)
