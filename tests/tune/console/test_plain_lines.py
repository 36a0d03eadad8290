"""What a search writes where nobody watches."""

import pytest

from syncline.tune.console.reporter import LineReporter
from syncline.tune.experiment.trial import Trial


def run(reporter, trials, clock, *, seconds):
    """Ask the reporter ten times a second, as the controller does."""
    for _ in range(int(seconds * 10)):
        clock.now += 0.1
        if reporter.should_report(trials):
            reporter.report(trials, False, "CPU 2/2")
    if reporter.should_report(trials, True):
        reporter.report(trials, True, "CPU 2/2")


@pytest.fixture
def written() -> list[str]:
    return []


@pytest.fixture
def trials(make_trial):
    return [make_trial(at, losses=[1.0 + at]) for at in range(49)] + [
        make_trial(49, status=Trial.ERROR)
    ]


def test_quick_search_writes_four_lines(trials, clock, written) -> None:
    reporter = LineReporter(experiment_path="/results/x", write=written.append, clock=clock)
    reporter.setup(clock.now, 50, "loss", "min")
    run(reporter, trials, clock, seconds=5)
    assert written[0] == "Tune: results are in /results/x"
    assert written[1] == "Tune: 50 trials: 49 TERMINATED, 1 ERROR, after 5.0 s."
    assert written[2].startswith("Best trial: train_1a2b_00000 with loss=1 ")
    assert written[3].startswith("train_1a2b_00049 failed")
    assert len(written) == 4


def test_progress_is_told_at_doubling_intervals(trials, clock, written) -> None:
    reporter = LineReporter(write=written.append, clock=clock)
    reporter.setup(clock.now, 60, "loss", "min")
    run(reporter, trials, clock, seconds=300)
    told = [
        line.partition(", after ")[2].partition(";")[0]
        for line in written
        if line.startswith("Tune: 50 of 60 trials")
    ]
    assert [text.removesuffix(" s") for text in told] == ["30", "1 min 00", "2 min 00", "4 min 00"]
    assert "CPU 2/2" in written[0]
    assert "best: train_1a2b_00000" in written[0]


def test_verbose_names_the_latest_ended_trial_every_few_seconds(make_trial, clock, written) -> None:
    reporter = LineReporter(verbose=2, write=written.append, clock=clock)
    reporter.setup(clock.now, None, "loss", "min")
    trials: list[Trial] = []
    for at in range(10):  # one in a second
        trials.append(make_trial(at, losses=[0.5]))
        clock.now += 1
        if reporter.should_report(trials):
            reporter.report(trials, False)
    assert written == [
        "train_1a2b_00000 TERMINATED after 1 iteration and 0.5 s: loss=0.5; 1 have ended",
        (
            "train_1a2b_00005 TERMINATED after 1 iteration and 0.5 s: loss=0.5 (and 4 others); 6"
            " have ended"
        ),
    ]


def test_more_verbose_names_every_trial_once(make_trial, clock, written) -> None:
    reporter = LineReporter(verbose=3, write=written.append, clock=clock)
    failed = make_trial(1, status=Trial.ERROR)
    failed.error_text = "ValueError: bad"
    trials = [make_trial(0, losses=[0.5]), failed, make_trial(2, status=Trial.RUNNING)]
    for _ in range(3):
        clock.now += 1
        reporter.report(trials, False)
    assert len(written) == 2
    assert written[1] == "train_1a2b_00001 ERROR after 0 iterations and 0.0 s: ValueError: bad"


def test_trials_are_not_walked_through_between_lines(clock) -> None:
    reporter = LineReporter(clock=clock, write=lambda line: None)
    reporter.setup(clock.now)
    assert not reporter.should_report([])
