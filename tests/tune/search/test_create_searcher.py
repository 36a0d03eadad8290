"""Searchers by name."""

import subprocess
import sys

import pytest

from syncline.tune import search
from syncline.tune.search import BasicVariantGenerator, create_searcher


def test_searchers_have_names_in_any_case():
    for name in ("random", "variant_generator", "RANDOM"):
        assert type(create_searcher(name)) is BasicVariantGenerator


def test_keywords_that_a_searcher_does_not_take_are_left_out():
    assert (
        create_searcher("random", max_concurrent=3, metric="loss", mode="min").max_concurrent == 3
    )


def test_a_searcher_that_takes_any_keyword_gets_them_all(monkeypatch):
    monkeypatch.setitem(search.SEARCH_ALG_IMPORT, "mine", lambda: lambda **keywords: keywords)
    assert create_searcher("mine", a=1) == {"a": 1}


@pytest.mark.parametrize(
    ("name", "hint"),
    [("optunna", "Did you mean 'optuna'"), ("zzz", "There are variant_generator, random, ax")],
)
def test_an_unknown_name_is_an_error_with_the_nearest(name, hint):
    with pytest.raises(ValueError, match=f"no searcher '{name}'. {hint}"):
        create_searcher(name)


def test_names_are_those_of_ray():
    assert sorted(search.SEARCH_ALG_IMPORT) == sorted(
        [
            "variant_generator",
            "random",
            "ax",
            "hyperopt",
            "bayesopt",
            "bohb",
            "nevergrad",
            "optuna",
            "zoopt",
            "hebo",
        ]
    )
    for name in search.__all__:
        assert getattr(search, name) is not None


def test_importing_the_package_loads_no_library_of_searchers():
    heavy = "('optuna', 'hyperopt', 'ax', 'torch', 'pandas')"
    code = (
        f"import sys, syncline.tune.search; print([name for name in {heavy} if name in"
        " sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    assert done.stdout.strip() == "[]"
