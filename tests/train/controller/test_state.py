"""State machine of a run: feed events, compare instructions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from syncline.core.state_machine import InvalidTransition
from syncline.runs.verdicts import Cause, Verdict
from syncline.train.config import FailureConfig
from syncline.train.controller.attempt import FailureBudgets, WorkerFailure
from syncline.train.controller.events import (
    CancelTimer,
    CapacityChanged,
    CheckCapacity,
    CompleteRound,
    ControllerFailed,
    DrainValidations,
    DrainWorkers,
    End,
    GroupStarted,
    GroupStopped,
    Instruction,
    Interrupted,
    LaunchTraining,
    MessageReceived,
    NotifyFailure,
    NotifyPreemption,
    NotifyResize,
    NotifyRestart,
    NotifyStall,
    ProgramTerminated,
    RankFailed,
    RecordReport,
    RequestStacks,
    Reserve,
    Reserved,
    RunStarted,
    Send,
    SendCheckpoints,
    SetTimer,
    StacksReceived,
    StartFailed,
    StartGroup,
    StopGroup,
    StreamEnded,
    TimerFired,
    ValidationsEnded,
    VerdictFound,
    Warn,
)
from syncline.train.controller.state import TrainStateMachine
from syncline.train.controller.transitions import (
    PREEMPTION_TIMER,
    RESIZE_TIMER,
    TRANSITIONS,
    Limits,
    State,
)
from syncline.train.errors import (
    ControllerError,
    NCCLHangError,
    PreemptionError,
    PreemptionInfo,
    WorkerGroupError,
)
from syncline.train.workers.messages import (
    UPLOAD_GRACE_S,
    BarrierReached,
    BarrierReleased,
    CheckpointPart,
    CheckpointsRequested,
    Debugging,
    Finished,
    PreemptionNoticed,
    Reported,
    Stalled,
    StateMessage,
    Terminating,
    Uploaded,
)


class Run:
    """A state machine with two running ranks by default, and the number of its attempt."""

    def __init__(self, *, world_size: int = 2, start: bool = True, **failures: int) -> None:
        self.machine = TrainStateMachine(
            budgets=FailureBudgets(FailureConfig(**failures)),
            limits=Limits(report_s=60, collective_s=90, grace_s=1, drain_s=2),
        )
        self.attempt = 0
        self.world_size = world_size
        if start:
            assert self.machine.handle(RunStarted(next_index=0)) == [Reserve()]
            self.start()

    def start(self) -> None:
        self.attempt += 1
        (start,) = self.machine.handle(Reserved(world_size=self.world_size))
        assert isinstance(start, StartGroup)
        assert start.attempt == self.attempt
        assert self.machine.handle(GroupStarted(attempt=self.attempt)) == [
            LaunchTraining(attempt=self.attempt)
        ]

    def says(self, rank: int, message: StateMessage) -> list[Instruction]:
        return self.machine.handle(
            MessageReceived(attempt=self.attempt, rank=rank, message=message)
        )

    def fails(self, rank: int, error: BaseException) -> list[Instruction]:
        failure = WorkerFailure(exception=error, traceback=f"Traceback of {error}")
        return self.machine.handle(RankFailed(attempt=self.attempt, rank=rank, failure=failure))

    def ends(self, rank: int, error: BaseException | None = None) -> list[Instruction]:
        failure = WorkerFailure(exception=error, died=True) if error is not None else None
        return self.machine.handle(StreamEnded(attempt=self.attempt, rank=rank, failure=failure))

    def stopped(self) -> list[Instruction]:
        return self.machine.handle(GroupStopped(attempt=self.attempt))


def part(index: int) -> CheckpointPart:
    return CheckpointPart(dir_name=f"c{index}", staged=f".tmp-{index}")


def report(index: int, *, checkpoint: bool = False, uploading: bool = False) -> Reported:
    return Reported(
        index=index,
        metrics={"index": index},
        time=0.0,
        part=part(index) if checkpoint else None,
        uploading=uploading,
    )


def kinds(instructions: list[Instruction]) -> list[type]:
    return [type(instruction) for instruction in instructions]


def only(instructions: list[Instruction], kind: type) -> Any:
    (found,) = [instruction for instruction in instructions if isinstance(instruction, kind)]
    return found


def test_a_run_that_succeeds_ends_with_rank_zeros_value() -> None:
    run = Run()
    assert run.says(1, Finished(return_value=None)) == []
    finishing = run.says(0, Finished(return_value=b"value"))
    assert StopGroup(attempt=1, graceful=True) in finishing
    assert DrainValidations() in finishing
    assert run.machine.state is State.FINISHING
    assert run.stopped() == []
    assert run.machine.handle(ValidationsEnded()) == [
        End(outcome="finished", return_value=b"value")
    ]
    assert run.machine.state is State.FINISHED


def test_metrics_are_recorded_immediately_and_need_no_timer() -> None:
    run = Run()
    assert kinds(run.says(0, report(0))) == [RecordReport]
    assert kinds(run.says(1, report(0))) == [RecordReport, CompleteRound]


def test_the_list_of_checkpoints_is_sent_once_all_ranks_have_made_the_reports_of_its_rank() -> None:
    run = Run()
    run.says(1, report(0))
    asked = CheckpointsRequested(request=3, validated=True)
    assert run.says(1, asked) == []
    assert run.says(1, CheckpointsRequested(request=4, validated=False, complete=False)) == [
        SendCheckpoints(rank=1, request=4, validated=False)
    ]
    instructions = run.says(0, report(0, checkpoint=True))
    assert kinds(instructions) == [RecordReport, CompleteRound, SendCheckpoints]
    assert instructions[-1] == SendCheckpoints(rank=1, request=3, validated=True)
    run.says(1, report(1))
    assert run.says(1, asked) == []
    assert run.says(0, Finished(return_value=None)) == [
        SendCheckpoints(rank=1, request=3, validated=True)
    ]


def test_a_checkpoint_starts_a_timer_until_every_rank_has_reported() -> None:
    run = Run()
    assert run.says(0, report(0, checkpoint=True))[1:] == [SetTimer(name="report", seconds=60)]
    assert kinds(run.says(1, report(0, checkpoint=True))) == [
        RecordReport,
        CompleteRound,
        CancelTimer,
    ]


def test_ranks_that_miss_the_report_limit_fail_with_their_stacks() -> None:
    run = Run()
    run.says(0, report(0, checkpoint=True))
    assert run.machine.handle(TimerFired(name="report")) == [RequestStacks(ranks=(1,))]
    run.machine.handle(StacksReceived(attempt=1, stacks={1: 'File "train.py", line 7, in loop'}))
    run.ends(0)
    down = run.ends(1)
    failure = only(down, NotifyFailure).failures[1]
    assert "Rank 1" in str(failure.exception)
    assert "train.py" in str(failure.exception)


def test_a_rank_that_arrives_while_stacks_are_collected_does_not_fail() -> None:
    run = Run()
    run.says(0, report(0, checkpoint=True))
    run.machine.handle(TimerFired(name="report"))
    run.says(1, report(0, checkpoint=True))
    assert run.machine.handle(StacksReceived(attempt=1, stacks={})) == []
    assert run.machine.state is State.RUNNING


def test_a_rank_that_returns_without_a_report_of_the_others_fails_immediately() -> None:
    run = Run()
    run.says(0, report(0, checkpoint=True))
    run.says(1, Finished(return_value=None))
    assert run.machine.state is State.DRAINING
    run.ends(1)
    down = run.ends(0)
    assert "Rank 1 returned" in str(only(down, NotifyFailure).failures[1].exception)


def test_a_checkpoint_after_another_rank_has_returned_fails_too() -> None:
    run = Run()
    run.says(1, Finished(return_value=None))
    run.says(0, report(0, checkpoint=True))
    assert run.machine.state is State.DRAINING


def test_collective_lets_ranks_through_together() -> None:
    run = Run()
    assert run.says(0, BarrierReached(sequence=0, data=b"x")) == [
        SetTimer(name="collective", seconds=90)
    ]
    assert run.says(1, BarrierReached(sequence=0, data=None)) == [
        CancelTimer(name="collective"),
        Send(rank=None, message=BarrierReleased(sequence=0, data=b"x")),
    ]


def test_ranks_that_miss_the_collective_limit_fail() -> None:
    run = Run(world_size=3)
    run.says(2, BarrierReached(sequence=0, data=None))
    assert run.machine.handle(TimerFired(name="collective")) == [RequestStacks(ranks=(0, 1))]
    run.machine.handle(StacksReceived(attempt=1, stacks={}))
    run.ends(0)
    run.ends(1)
    assert set(only(run.ends(2), NotifyFailure).failures) == {0, 1}


def test_an_error_of_the_user_ends_the_run_and_is_passed_through() -> None:
    run = Run()
    down = run.fails(1, error := KeyError("mine"))
    assert DrainWorkers(ranks=(0, 1)) in down
    run.ends(1)
    stop = run.ends(0)
    assert StopGroup(attempt=1, graceful=False) in stop
    (end,) = run.stopped()
    assert isinstance(end, End)
    assert isinstance(end.error, WorkerGroupError)
    assert end.error.worker_failures[1] is error
    assert "Traceback of" in str(end.error)


def test_within_its_budget_a_failed_attempt_is_followed_by_another_that_goes_on_counting() -> None:
    run = Run(max_failures=1)
    for rank in (0, 1):
        run.says(rank, report(0, checkpoint=True))
    run.ends(1, RuntimeError("killed"))
    run.ends(0)
    again = run.stopped()
    assert kinds(again) == [NotifyRestart, Reserve]
    (start,) = run.machine.handle(Reserved(world_size=2))
    assert start == StartGroup(attempt=2, world_size=2, first_index=1)
    run.attempt = 2
    run.machine.handle(GroupStarted(attempt=2))
    run.ends(0, RuntimeError("killed"))
    run.ends(1)
    assert kinds(run.stopped()) == [End]
    assert run.machine.state is State.ERRORED


def test_a_death_precedes_the_errors_that_it_caused() -> None:
    run = Run()
    run.fails(0, ConnectionError("reset by peer"))
    run.ends(0)
    run.ends(1, RuntimeError("killed by SIGKILL"))
    (end,) = run.stopped()
    assert list(end.error.worker_failures) == [1, 0]


def test_a_checkpoint_that_survivors_complete_after_a_failure_is_committed() -> None:
    run = Run()
    run.says(1, report(0, checkpoint=True))
    waiting = run.fails(1, ValueError("x"))
    assert SetTimer(name="grace", seconds=1) in waiting
    completing = run.says(0, report(0, checkpoint=True))
    assert CompleteRound in kinds(completing)
    assert DrainWorkers(ranks=(0, 1)) in completing


def test_a_checkpoint_that_every_rank_has_reported_survives_slow_uploads_of_survivors() -> None:
    run = Run()
    run.says(0, report(0, uploading=True))
    run.says(1, report(0, checkpoint=True))
    assert SetTimer(name="grace", seconds=1) in run.fails(1, ValueError("x"))
    longer = run.machine.handle(TimerFired(name="grace"))
    assert longer == [SetTimer(name="grace", seconds=UPLOAD_GRACE_S)]
    done = run.says(0, Uploaded(index=0, part=part(0)))
    assert kinds(done) == [CompleteRound, CancelTimer, DrainWorkers, SetTimer]


@pytest.mark.parametrize("late", [TimerFired(name="grace"), None])
def test_waiting_for_uploads_ends_with_its_limit_or_with_their_worker(
    late: TimerFired | None,
) -> None:
    run = Run()
    run.says(0, report(0, uploading=True))
    run.says(1, report(0, checkpoint=True))
    run.fails(1, ValueError("x"))
    run.machine.handle(TimerFired(name="grace"))
    ended = run.machine.handle(late) if late is not None else run.ends(0, RuntimeError("killed"))
    assert DrainWorkers in kinds(ended)


def test_uploads_of_a_failed_rank_are_not_awaited() -> None:
    run = Run()
    run.says(0, report(0, checkpoint=True))
    run.says(1, report(0, uploading=True))
    assert DrainWorkers in kinds(run.ends(1, RuntimeError("killed")))


def test_waiting_for_survivors_is_limited() -> None:
    run = Run()
    run.says(1, report(0, checkpoint=True))
    run.fails(1, ValueError("x"))
    assert SetTimer(name="drain", seconds=2) in run.machine.handle(TimerFired(name="grace"))
    assert StopGroup(attempt=1, graceful=False) in run.machine.handle(TimerFired(name="drain"))


def test_events_of_earlier_attempts_are_ignored() -> None:
    run = Run(max_failures=-1)
    run.ends(0, RuntimeError("x"))
    run.ends(1)
    run.stopped()
    run.start()
    assert run.machine.handle(StreamEnded(attempt=1, rank=1)) == []
    assert run.machine.handle(MessageReceived(attempt=1, rank=1, message=report(0))) == []
    assert run.machine.state is State.RUNNING


def test_a_group_that_does_not_start_counts_as_a_failure_of_that_worker() -> None:
    run = Run(start=False)
    run.machine.handle(RunStarted(next_index=0))
    run.machine.handle(Reserved(world_size=2))
    run.attempt = 1
    down = run.machine.handle(
        StartFailed(attempt=1, failures={1: WorkerFailure(exception=OSError("no port"))})
    )
    assert kinds(down) == [NotifyFailure, StopGroup]
    (end,) = run.stopped()
    assert isinstance(end.error, WorkerGroupError)


def test_infeasible_resources_end_the_run_with_the_original_error() -> None:
    run = Run(start=False)
    run.machine.handle(RunStarted(next_index=0))
    error = ValueError("needs 8 CPUs but there are 2")
    assert run.machine.handle(ControllerFailed(error=error, retriable=False)) == [
        End(outcome="errored", error=error)
    ]


def test_an_error_of_a_callback_is_not_retried() -> None:
    run = Run()
    run.machine.handle(ControllerFailed(error=KeyError("x"), retriable=False))
    (end,) = run.stopped()
    assert isinstance(end.error, ControllerError)


def test_repeated_storage_failures_without_progress_end_the_run() -> None:
    run = Run()
    for attempt in range(3):
        assert run.machine.state is State.RUNNING, attempt
        run.machine.handle(ControllerFailed(error=OSError("disk full"), retriable=True))
        if kinds(run.stopped()) == [NotifyRestart, Reserve]:
            run.start()
    assert run.machine.state is State.ERRORED


@pytest.mark.parametrize("running", [False, True])
def test_an_interrupt_stops_whatever_runs(running: bool) -> None:
    run = Run(start=running)
    instructions = run.machine.handle(Interrupted())
    assert kinds(instructions) == ([StopGroup, End] if running else [End])
    assert run.machine.state is State.ABORTED
    assert run.machine.handle(TimerFired(name="report")) == []


def test_an_invalid_transition_names_its_history() -> None:
    run = Run()
    with pytest.raises(InvalidTransition, match="cannot go from running to starting") as raised:
        run.machine.handle(Reserved(world_size=2))
    assert "attempt 1 has started" in str(raised.value)


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(State)
    assert set(itertools.chain.from_iterable(TRANSITIONS.values())) == set(State) - {
        State.INITIALIZING
    }


def test_a_node_that_dies_while_the_group_starts_costs_no_failure() -> None:
    run = Run(start=False, max_failures=0)
    machine = run.machine
    machine.handle(RunStarted(next_index=0))
    machine.handle(Reserved(world_size=2))
    lost = WorkerFailure(exception=RuntimeError("the actor never ran"))
    assert machine.handle(StartFailed(attempt=1, failures={1: lost}, node_died=True)) == [
        StopGroup(attempt=1, graceful=False)
    ]
    assert machine.handle(GroupStopped(attempt=1)) == [Reserve()]
    assert machine.handle(Reserved(world_size=2)) == [
        StartGroup(attempt=2, world_size=2, first_index=0)
    ]


def elastic(**limits: Any) -> Run:
    run = Run(start=False)
    run.machine = TrainStateMachine(
        budgets=FailureBudgets(FailureConfig(max_failures=1)),
        limits=Limits(report_s=60, collective_s=90, grace_s=1, drain_s=2, resize_s=30, **limits),
    )
    run.machine.handle(RunStarted(next_index=0))
    run.attempt = 1
    run.machine.handle(Reserved(world_size=2))
    assert run.machine.handle(GroupStarted(attempt=1)) == [
        LaunchTraining(attempt=1),
        SetTimer(name=RESIZE_TIMER, seconds=30),
    ]
    return run


def test_an_elastic_group_grows_after_the_next_checkpoint_without_a_failure_count() -> None:
    run = elastic()
    looked = run.machine.handle(TimerFired(name=RESIZE_TIMER))
    assert looked == [CheckCapacity(attempt=1), SetTimer(name=RESIZE_TIMER, seconds=30)]
    assert run.machine.handle(CapacityChanged(attempt=1, workers=3)) == []
    run.says(0, report(0))
    assert kinds(run.says(1, report(0))) == [
        RecordReport,
        CompleteRound,
    ]  # no checkpoint: the group goes on
    run.says(0, report(1, checkpoint=True))
    resized = run.says(1, report(1, checkpoint=True))
    assert kinds(resized)[:3] == [RecordReport, CompleteRound, NotifyResize]
    assert resized[2] == NotifyResize(world_size=2, workers=3)
    assert StopGroup(attempt=1, graceful=False) in resized
    assert run.stopped() == [Reserve()]
    (start,) = run.machine.handle(Reserved(world_size=3))
    assert start == StartGroup(attempt=2, world_size=3, first_index=2)
    run.machine.handle(GroupStarted(attempt=2))
    run.attempt = 2
    run.fails(0, ValueError("once is allowed"))  # the budget of one failure is untouched
    run.ends(0), run.ends(1), run.ends(2)
    assert kinds(run.stopped()) == [NotifyRestart, Reserve]


def test_capacity_equal_to_the_group_size_resizes_nothing() -> None:
    run = elastic()
    run.machine.handle(CapacityChanged(attempt=1, workers=1))
    run.machine.handle(CapacityChanged(attempt=1, workers=2))
    run.says(0, report(0, checkpoint=True))
    assert kinds(run.says(1, report(0, checkpoint=True))) == [
        RecordReport,
        CompleteRound,
        CancelTimer,
    ]


def test_a_group_that_is_about_to_finish_is_not_resized() -> None:
    run = elastic()
    run.machine.handle(CapacityChanged(attempt=1, workers=1))
    run.says(0, report(0, checkpoint=True))
    run.says(0, Finished(return_value=None))
    assert NotifyResize not in kinds(run.says(1, report(0, checkpoint=True)))


def preempt(run: Run, rank: int, seconds_left: float = 20.0) -> list[Instruction]:
    return run.says(rank, Terminating(node_id="n0", deadline_ms=123_000, seconds_left=seconds_left))


def test_a_preempted_group_runs_on_until_all_ranks_have_ended_and_its_checkpoint_is_committed() -> (
    None
):
    run = Run(max_failures=0)
    noticed = preempt(run, 0)
    info = PreemptionInfo(123_000, {"n0": [0]})
    assert noticed == [
        NotifyPreemption(info=info, seconds_left=20.0),
        Send(rank=None, message=PreemptionNoticed(info=info)),
        SetTimer(name=PREEMPTION_TIMER, seconds=20.0),
    ]
    assert preempt(run, 0) == []  # said twice
    assert preempt(run, 1) == [
        Send(rank=None, message=PreemptionNoticed(info=PreemptionInfo(123_000, {"n0": [0, 1]})))
    ]
    run.says(0, report(0, checkpoint=True))
    assert CompleteRound in kinds(run.says(1, report(0, checkpoint=True)))
    assert run.says(0, Finished(return_value=None)) == []
    assert DrainWorkers in kinds(run.fails(1, RuntimeError("connection closed by peer")))
    run.ends(0)
    assert kinds(run.ends(1)) == [CancelTimer, CancelTimer, NotifyFailure, StopGroup]
    notice, reserve = (
        run.stopped()
    )  # the budget of preemptions is unlimited, that of worker failures is 0
    assert isinstance(notice, NotifyRestart)
    assert "preempted" in notice.cause
    assert reserve == Reserve()


def test_the_deadline_of_a_preemption_ends_ranks_that_still_run() -> None:
    run = Run(max_preemption_failures=0)
    preempt(run, 1)
    over = run.machine.handle(TimerFired(name=PREEMPTION_TIMER))
    assert DrainWorkers(ranks=(0, 1)) in over
    run.ends(0), run.ends(1)
    (end,) = run.stopped()
    assert isinstance(end, End)
    assert isinstance(end.error, PreemptionError)
    assert end.error.drain_timed_out
    assert end.error.preemption_info.preempted_node_to_ranks == {"n0": [1]}


def test_remaining_ranks_pass_barriers_if_configured() -> None:
    run = elastic(relax_on_preemption=True)
    preempt(run, 1)
    run.says(0, report(0, checkpoint=True))
    assert run.says(0, BarrierReached(sequence=0, data=b"x"))[0] == SetTimer(
        name="collective", seconds=90
    )
    released = run.says(1, Finished(return_value=None))
    assert kinds(released) == [CompleteRound, CancelTimer, Send]
    assert run.machine.state is State.RUNNING


def test_only_the_deadline_limits_a_preempted_group() -> None:
    run = Run()
    run.says(0, report(0, checkpoint=True))
    preempt(run, 1)
    assert run.machine.handle(TimerFired(name="report")) == []
    assert (
        run.says(1, Finished(return_value=None)) == []
    )  # rank 0 waits in vain, until the deadline
    assert run.machine.state is State.RUNNING


def test_sigterm_ends_the_run_regardless_of_budgets() -> None:
    run = Run()
    told = run.machine.handle(
        ProgramTerminated(nodes={"n0": (0, 1)}, deadline_ms=5, seconds_left=9)
    )
    assert SetTimer(name=PREEMPTION_TIMER, seconds=9) in told
    run.says(0, Finished(return_value=None))
    run.says(1, Finished(return_value=None))
    run.ends(0), run.ends(1)
    (end,) = run.stopped()
    assert isinstance(end, End)
    assert isinstance(end.error, PreemptionError)
    assert run.machine.state is State.ERRORED


def test_errors_of_ranks_during_a_preemption_become_its_cause() -> None:
    run = Run()
    run.machine.handle(ProgramTerminated(nodes={"n0": (0, 1)}, deadline_ms=5, seconds_left=9))
    run.fails(0, ValueError("no room"))
    run.says(1, Finished(return_value=None))
    run.ends(0), run.ends(1)
    (end,) = run.stopped()
    assert isinstance(end, End)
    assert isinstance(end.error, PreemptionError)
    assert "no room" in str(end.error.__cause__)


def test_sigterm_before_training_ends_the_run_immediately() -> None:
    run = Run(start=False)
    run.machine.handle(RunStarted(next_index=0))
    (end,) = run.machine.handle(ProgramTerminated(nodes={}, deadline_ms=5, seconds_left=9))
    assert isinstance(end, End)
    assert isinstance(end.error, PreemptionError)


def test_after_sigterm_validations_may_run_until_the_deadline() -> None:
    run = Run()
    run.says(0, Finished(return_value=b"value"))
    run.says(1, Finished(return_value=None))
    run.stopped()
    told = run.machine.handle(
        ProgramTerminated(nodes={"n0": (0, 1)}, deadline_ms=5, seconds_left=9)
    )
    assert told == [SetTimer(name=PREEMPTION_TIMER, seconds=9)]
    (end,) = run.machine.handle(TimerFired(name=PREEMPTION_TIMER))
    assert isinstance(end, End)
    assert isinstance(end.error, PreemptionError)


def test_a_stalled_collective_leads_to_a_warning_and_then_ends_the_attempt() -> None:
    run = Run()
    assert run.says(0, Stalled(seconds=30)) == [NotifyStall(seconds=30)]
    assert run.says(0, Stalled(seconds=60, warns=True)) == [RequestStacks(ranks=(0, 1))]
    (warning,) = run.machine.handle(
        StacksReceived(attempt=1, stacks={0: "in all_reduce", 1: "in sleep"})
    )
    assert isinstance(warning, Warn)
    assert "[rank 1]  <-- outlier\n  in sleep" in warning.text
    assert run.says(1, Stalled(seconds=60, warns=True)) == []  # one warning is enough
    assert run.says(1, Stalled(seconds=0)) == []
    assert run.says(0, Stalled(seconds=600, warns=True, over_limit=True)) == [
        RequestStacks(ranks=(0, 1))
    ]
    failing = run.machine.handle(
        StacksReceived(attempt=1, stacks={0: "in all_reduce", 1: "in sleep"})
    )
    assert DrainWorkers in kinds(failing)
    run.ends(0), run.ends(1)
    (end,) = run.stopped()
    assert isinstance(end, End)
    assert isinstance(end.error, NCCLHangError)
    assert list(end.error.worker_failures) == [1]
    assert "Rank 0 waited 600 s in a collective operation" in str(end.error)


def test_ranks_may_wait_without_limit_for_one_in_the_debugger() -> None:
    run = Run()
    assert run.says(1, Debugging(active=True)) == []
    assert run.says(0, Stalled(seconds=600, warns=True, over_limit=True)) == [
        NotifyStall(seconds=600)
    ]
    run.says(0, report(0, checkpoint=True))
    assert run.machine.handle(TimerFired(name="report")) == [SetTimer(name="report", seconds=60)]
    run.says(1, Debugging(active=False))
    assert run.machine.handle(TimerFired(name="report")) == [RequestStacks(ranks=(1,))]


def test_a_collective_that_ends_while_stacks_are_collected_is_no_hang() -> None:
    run = Run()
    run.says(0, Stalled(seconds=600, warns=True, over_limit=True))
    assert run.says(0, Stalled(seconds=0)) == [NotifyStall(seconds=0)]
    assert run.machine.handle(StacksReceived(attempt=1, stacks={})) == []
    assert run.machine.state is State.RUNNING


def test_the_error_of_a_run_that_ends_with_a_dead_process_says_what_happens_next() -> None:
    run = Run(max_failures=1)

    def die() -> list[Instruction]:
        run.ends(0, RuntimeError("was killed"))
        run.ends(1)
        return run.stopped()

    assert "The run has ended" not in only(die(), NotifyRestart).cause
    run.start()
    error = only(die(), End).error
    assert "ended after 2 failures" in str(error)
    assert "`FailureConfig(max_failures=1)` allows 1 restart." in str(error)


@pytest.mark.parametrize(
    ("cause", "is_told"), [(Cause.MISSING_COLLECTIVE, False), (Cause.NOT_A_NUMBER, True)]
)
def test_the_error_does_not_tell_of_a_stall_that_is_over(cause: Cause, is_told: bool) -> None:
    run = Run()
    verdict = Verdict(cause=cause, ranks=(1,), seconds=9.0, text="Rank 1 and why.")
    run.machine.handle(VerdictFound(attempt=1, verdict=verdict))
    run.machine.handle(VerdictFound(attempt=1, verdict=None))
    run.fails(0, ValueError("mine"))
    run.ends(0)
    run.ends(1)
    assert ("Rank 1 and why." in str(only(run.stopped(), End).error)) is is_told


def test_the_error_of_a_training_function_stands_alone() -> None:
    run = Run()
    run.fails(0, ValueError("mine"))
    run.ends(0)
    run.ends(1)
    assert "The run has ended" not in str(only(run.stopped(), End).error)
