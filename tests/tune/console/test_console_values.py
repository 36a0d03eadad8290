"""Texts of what trials hold."""

from syncline.tune.console import values


def test_names_are_cut_to_what_tells_them_apart() -> None:
    assert values.short_names(["model/lr", "optimizer/lr", "model/layers", "seed"]) == {
        "model/lr": "model/lr",
        "optimizer/lr": "optimizer/lr",
        "model/layers": "layers",
        "seed": "seed",
    }
    assert values.short_names(["a/b/lr", "c/d/lr"]) == {"a/b/lr": "b/lr", "c/d/lr": "d/lr"}


def test_name_that_is_the_end_of_another_stays_whole() -> None:
    assert values.short_names(["lr", "model/lr"]) == {"lr": "lr", "model/lr": "model/lr"}


def test_last_line_of_an_error() -> None:
    assert (
        values.last_line(None, "Traceback …\n  File …\nValueError: no data\n")
        == "ValueError: no data"
    )
    assert values.last_line(ValueError("no data")) == "ValueError: no data"
    assert values.last_line(None) == "no reason is known"


def test_parameters_in_one_line() -> None:
    assert (
        values.parameters_text({"lr": 0.01234567, "name": "x" * 50}, 10)
        == "{'lr': 0.0123457, 'name': ...xxxxxx'}"
    )
