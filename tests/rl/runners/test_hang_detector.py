"""Runners that take steps are slow; those that take none are given up."""

from syncline.rl.runners.hang_detector import HangDetector, Verdict


def begun(limit_s=60.0, grace_s=30.0, progress=5, can_restart=True):
    detector = HangDetector(limit_s, grace_s)
    detector.begin(100.0, progress, can_restart=can_restart)
    return detector


def test_a_runner_without_steps_is_reported_and_then_given_up():
    detector = begun()
    assert detector.check(159.0, 5) is Verdict.WAIT
    assert detector.check(161.0, 5) is Verdict.REPORT
    assert detector.check(189.0, 5) is Verdict.WAIT
    assert detector.check(190.0, 5) is Verdict.RESTART


def test_a_slow_runner_is_reported_and_never_given_up():
    detector = begun()
    reports = sum(
        detector.check(100.0 + second, 5 + second // 50) is Verdict.REPORT
        for second in range(0, 1000, 10)
    )
    assert reports == 16
    assert detector.still_s(1090.0) < 60


def test_a_runner_that_does_not_count_steps_is_only_reported():
    detector = begun(progress=None)
    verdicts = [detector.check(100.0 + second, None) for second in range(0, 500, 10)]
    assert Verdict.RESTART not in verdicts
    assert Verdict.REPORT in verdicts


def test_calls_that_take_no_steps_are_only_reported():
    detector = begun(can_restart=False)
    assert detector.check(500.0, 5) is Verdict.REPORT
    assert detector.check(501.0, 5) is Verdict.WAIT


def test_the_next_check_is_when_the_verdict_changes():
    detector = begun()
    assert round(detector.next_check_s(100.0)) == 60
    detector.check(161.0, 5)
    assert round(detector.next_check_s(161.0)) == 29
    assert begun(limit_s=None).next_check_s(100.0) is None
