"""Metrics in the output of a program."""

from __future__ import annotations

import math

import pytest

from syncline.launcher.metric_reader import MetricReader


def read(*lines: str, metric: str = "val_loss") -> dict[str, float]:
    reader = MetricReader(metric, lambda found: None)
    for line in lines:
        reader.read(line)
    return reader.metrics


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("val_loss=0.25", 0.25),
        ("epoch 3: loss 1.5, val_loss: 2e-3, lr 1", 0.002),
        ("'val_loss': -.5}", -0.5),
        ("[rank 0] val_loss = 3", 3.0),
        ("val_loss=inf", math.inf),
    ],
)
def test_the_metric_is_found_anywhere_in_a_line(line: str, value: float) -> None:
    assert read(line) == {"val_loss": value}


@pytest.mark.parametrize(
    "line", ["my_val_loss=1", "val_loss_ema=1", "val_loss", "val_loss=high", "a/val_loss=1", ""]
)
def test_other_names_and_texts_are_not_the_metric(line: str) -> None:
    assert read(line) == {}


def test_lines_of_json_give_all_their_numbers() -> None:
    line = '{"val_loss": 1, "acc": {"top1": 0.5}, "done": true, "name": "x"}'
    assert read(line) == {"val_loss": 1.0, "acc/top1": 0.5}


def test_integers_beyond_the_range_of_a_float_are_left_out() -> None:
    assert read(f'{{"val_loss": 1, "n": {10**400}}}') == {"val_loss": 1.0}


def test_the_last_value_counts() -> None:
    assert read("val_loss=3 val_loss=2", '{"val_loss": 1.5}', "{not json}") == {"val_loss": 1.5}


def test_a_metric_with_a_slash_and_nan() -> None:
    assert math.isnan(read("eval/loss=nan", metric="eval/loss")["eval/loss"])


def test_each_line_with_metrics_is_a_report() -> None:
    reports: list[dict[str, float]] = []
    reader = MetricReader("x", lambda found: reports.append(dict(found)))
    for line in ("x=1", "nothing", '{"x": 2, "y": 3}'):
        reader.read(line)
    assert reports == [{"x": 1.0}, {"x": 2.0, "y": 3.0}]
