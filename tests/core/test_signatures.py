"""Parameter lists, and whether calls fit them, against the calls that Python accepts."""

import functools
import inspect
import itertools

import pytest

from syncline.core.signatures import call_check, parameter_list


def plain(a, b=1): ...
def nothing(): ...
def only_positional(a, b=1, /, c=2): ...
def only_keywords(a, *, b, c=0): ...
def everything(a, /, b, c=1, *rest, d, e=2, **others): ...
def rest(a, *rest): ...
def keywords(**others): ...


@functools.wraps(everything)
def wrapped(*args, **kwargs): ...


FUNCTIONS = (
    plain, nothing, only_positional, only_keywords, everything, rest, keywords, wrapped
)  # fmt: skip
NAMES = ("a", "b", "c", "d", "e", "x")


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_call_is_accepted_exactly_if_python_accepts_it(function):
    # `Signature.bind` of Python 3.13.0 accepts some calls that the interpreter refuses.
    check, called = call_check(parameter_list(function)), inspect.unwrap(function)
    for count, number in itertools.product(range(5), range(len(NAMES) + 1)):
        for names in itertools.combinations(NAMES, number):
            args, kwargs = (0,) * count, dict.fromkeys(names)
            try:
                called(*args, **kwargs)
            except TypeError:
                with pytest.raises(TypeError, match="cannot be called with these arguments"):
                    check("f", args, kwargs)
            else:
                check("f", args, kwargs)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_fast_path_writes_what_the_signature_says(function):
    @functools.wraps(function)
    def other(): ...

    assert parameter_list(other) == parameter_list(function)


def test_the_text_of_a_method_has_no_self():
    class Owner:
        def method(self, a, b=1): ...
        def loose(*args): ...
        def bare(self, /, a): ...

    assert parameter_list(Owner.method, skip_first=True) == "a, b=…"
    assert parameter_list(Owner.loose, skip_first=True) == "*args"
    assert parameter_list(Owner.bare, skip_first=True) == "a"


def test_a_function_without_a_signature_takes_everything():
    call_check(None)("f", (1, 2), {"x": 3})
