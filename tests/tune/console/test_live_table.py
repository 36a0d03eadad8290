"""The live table, on a terminal that is a text."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import pytest
from rich.console import Console

from syncline.core.live_region import REDRAW_INTERVAL_S, RedirectedStream
from syncline.testing.waiting import eventually
from syncline.tune.console.live_table import LiveReporter
from syncline.tune.experiment.trial import Trial


class Terminal(io.StringIO):
    """A text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def console(terminal: Terminal) -> Console:
    return Console(
        file=terminal, force_terminal=True, width=120, height=30, color_system=None, highlight=False
    )


@contextmanager
def before(terminal: Terminal) -> Iterator[None]:
    """The program runs in that terminal. (pytest puts its own streams in place between a fixture
    and the test.)
    """
    with redirect_stdout(terminal), redirect_stderr(terminal):
        yield


def test_table_is_drawn_and_the_summary_stays(make_trial, terminal, console, clock) -> None:
    reporter = LiveReporter(experiment_path="/results/x", console=console, clock=clock)
    reporter.setup(clock.now, 3, "loss", "min")
    trials = [make_trial(0, losses=[0.5]), make_trial(1, status=Trial.RUNNING, losses=[0.7])]
    with before(terminal):
        reporter.report(trials, False, "CPU 1/2")
        eventually(lambda: "2 of 3 trials" in terminal.getvalue())
        print("from a trial")
        trials[1].status = Trial.TERMINATED
        clock.now += 65
        reporter.report(trials, True, "CPU 1/2")
        assert sys.stdout is terminal
    end = terminal.getvalue()
    assert "CPU 1/2" in end
    assert "from a trial\n" in end
    assert "Tune: 2 trials: 2 TERMINATED, after 1 min 05 s." in end
    assert "Best trial: train_1a2b_00000 with loss=0.5" in end
    assert end.rstrip().endswith("Results: /results/x")


def test_looks_at_trials_at_most_twice_a_second(clock, console) -> None:
    reporter = LiveReporter(console=console, clock=clock)
    assert reporter.should_report([])
    try:
        reporter.report([], False)
        assert not reporter.should_report([])
        assert reporter.should_report([], done=True)
        clock.now += REDRAW_INTERVAL_S
        assert reporter.should_report([])
    finally:
        reporter.close()


def test_small_screens_show_fewer_trials(make_trial, terminal, clock) -> None:
    console = Console(file=terminal, force_terminal=True, width=120, height=16, color_system=None)
    reporter = LiveReporter(console=console, clock=clock)
    trials = [make_trial(at, status=Trial.RUNNING) for at in range(50)]
    try:
        reporter.report(trials, False)
        eventually(lambda: "more trials not shown" in terminal.getvalue())
    finally:
        reporter.close()
    assert "... 44 more trials not shown (44 RUNNING)" in terminal.getvalue()


def test_closing_without_an_end_gives_the_streams_back(terminal, console, clock) -> None:
    reporter = LiveReporter(console=console, clock=clock)
    with before(terminal):
        reporter.report([], False)
        assert isinstance(sys.stdout, RedirectedStream)
        reporter.close()
        reporter.close()
        assert sys.stdout is terminal
        assert sys.stderr is terminal
