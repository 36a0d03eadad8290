"""Which trials are shown, and which one is the best."""

from collections import Counter

from syncline.tune.console.trial_selection import group_trials, select_trials
from syncline.tune.experiment.trial import Trial


def states(trials):
    return dict(Counter(trial.status for trial in trials))


def test_counts_come_in_the_order_of_tables(make_trial) -> None:
    trials = [
        make_trial(at, status=status)
        for at, status in enumerate(["ERROR", "PENDING", "RUNNING", "TERMINATED", "RUNNING"])
    ]
    assert list(group_trials(trials).counts.items()) == [
        ("RUNNING", 2),
        ("PENDING", 1),
        ("TERMINATED", 1),
        ("ERROR", 1),
    ]


def test_best_is_by_the_latest_finite_value(make_trial) -> None:
    losses = [[0.1, 3.0], [2.0], [float("nan")], [float("-inf")], []]
    trials = [make_trial(at, losses=values) for at, values in enumerate(losses)]
    assert group_trials(trials, "loss", "min").best is trials[1]
    assert group_trials(trials, "loss", "max").best is trials[0]
    assert group_trials(trials, "accuracy", "max").best is None
    assert group_trials(trials).best is None


def test_best_finds_nested_metrics_and_whole_numbers(make_trial) -> None:
    trials = [
        make_trial(at, losses=[0.0], val={"correct": correct})
        for at, correct in enumerate([3, 9, 5])
    ]
    assert group_trials(trials, "val/correct", "max").best is trials[1]


def test_all_are_shown_where_there_is_room(make_trial) -> None:
    trials = [
        make_trial(at, status=status)
        for at, status in enumerate(["TERMINATED", "RUNNING", "PENDING"])
    ]
    assert [
        trial.status for trial in select_trials(group_trials(trials), 20, best_first=False)
    ] == ["RUNNING", "PENDING", "TERMINATED"]


def test_running_trials_come_first_and_every_state_is_seen(make_trial) -> None:
    trials = [make_trial(at, status=Trial.RUNNING) for at in range(30)]
    trials += [make_trial(at, status=Trial.TERMINATED) for at in range(30, 60)]
    trials += [make_trial(at, status=Trial.PENDING) for at in range(60, 90)]
    assert states(select_trials(group_trials(trials), 10, best_first=False)) == {
        "RUNNING": 8,
        "PENDING": 1,
        "TERMINATED": 1,
    }


def test_room_goes_to_trials_with_results_before_those_that_wait(make_trial) -> None:
    trials = [make_trial(at, status=Trial.TERMINATED) for at in range(30)]
    trials += [make_trial(at, status=Trial.PENDING) for at in range(30, 60)]
    trials += [make_trial(60, status=Trial.ERROR)]
    assert states(select_trials(group_trials(trials), 12, best_first=False)) == {
        "PENDING": 1,
        "TERMINATED": 10,
        "ERROR": 1,
    }


def test_best_of_the_ended_trials_are_shown_sorted(make_trial) -> None:
    trials = [
        make_trial(at, losses=[loss]) for at, loss in enumerate([5.0, 1.0, float("nan"), 3.0, 1.0])
    ]
    chosen = select_trials(group_trials(trials, "loss", "min"), 4, best_first=True)
    assert [trial.index for trial in chosen] == [1, 4, 3, 0]


def test_latest_of_the_ended_trials_are_shown_without_a_metric(make_trial) -> None:
    trials = [make_trial(at) for at in range(10)]
    assert [trial.index for trial in select_trials(group_trials(trials), 3, best_first=True)] == [
        7,
        8,
        9,
    ]


def test_fewer_rows_than_states(make_trial) -> None:
    trials = [
        make_trial(at, status=status)
        for at, status in enumerate(["TERMINATED", "RUNNING", "PENDING", "ERROR"])
    ]
    assert states(select_trials(group_trials(trials), 1, best_first=False)) == {"RUNNING": 1}
    assert select_trials(group_trials(trials), 0, best_first=False) == []
    assert select_trials(group_trials([]), 5, best_first=False) == []


def test_trials_that_failed_and_went_on_are_found(make_trial) -> None:
    went_on, failed, fine = (
        make_trial(0, status=Trial.RUNNING),
        make_trial(1, status=Trial.ERROR),
        make_trial(2),
    )
    went_on.num_failures = 2
    assert group_trials([went_on, failed, fine]).failed == [went_on, failed]
