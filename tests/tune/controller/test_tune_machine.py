"""Decisions of a search, event by event."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest

from syncline.core.error_frames import pack_error
from syncline.tune.config import CheckpointConfig
from syncline.tune.controller import events
from syncline.tune.error import TuneError
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers.trial_scheduler import ControllerView, FIFOScheduler
from syncline.tune.stopper import Stopper, make_stopper
from syncline.tune.workers.messages import Resume, Save, Step
from tests.tune.controller.simulation import ONE_CPU, Choosy, Simulation, failing, rules, statuses


def test_the_first_events_of_a_search() -> None:
    search = Simulation(samples=1)
    search.begin()
    assert search.kinds() == ["AskSearcher", "ReserveResources"]
    search.go_on()
    assert search.kinds()[2:] == ["StartTrial", "AskSearcher"]
    search.go_on()
    assert search.kinds()[4:] == ["NotifyCallbacks", "RunCommand"]
    assert search.commands(Step) == [Step(checkpoint_index=0)]


def test_every_trial_runs_to_its_end_on_what_there_is() -> None:
    search = Simulation(samples=7, cpus=2)
    search.run()
    assert statuses(search) == [Trial.TERMINATED] * 7
    assert search.most_at_once == 2
    assert search.steps.count(("t_00003", 5)) == 1
    assert len(search.steps) == 35
    assert search.ended == events.EndSearch()
    assert search.held == {}


def test_no_more_trials_run_at_once_than_allowed() -> None:
    search = Simulation(rules=rules(max_concurrent=3), samples=9, cpus=16)
    search.run()
    assert search.most_at_once == 3
    assert statuses(search) == [Trial.TERMINATED] * 9


def test_only_one_trial_waits_whatever_the_number_of_samples() -> None:
    search = Simulation(samples=1000, cpus=1)
    search.begin()
    for _ in range(20):
        search.go_on()
    assert len(search.machine.get_live_trials()) <= 2
    assert search.suggested <= 5


def test_a_result_that_says_done_ends_the_trial() -> None:
    search = Simulation(
        samples=1, step=lambda trial, iteration: {"score": 1.0, "done": iteration == 2}
    )
    search.run()
    assert search.steps == [("t_00000", 1), ("t_00000", 2)]
    assert search.machine.trials[0].last_result["done"] is True


def test_a_function_that_has_returned_ends_its_trial_without_a_further_result() -> None:
    search = Simulation(
        rules=rules(is_function=True),
        samples=1,
        stopper=make_stopper(None),
        step=lambda trial, iteration: {"score": float(iteration), "ended": iteration == 4},
    )
    search.run()
    told = [
        do.subject["training_iteration"]
        for do in search.done
        if isinstance(do, events.NotifyCallbacks) and do.hook == "result"
    ]
    assert told == [1, 2, 3]
    assert search.machine.trials[0].last_result["training_iteration"] == 3
    assert search.machine.trials[0].last_result["done"] is True


def test_a_trial_that_ran_in_a_batch_ends_as_one_that_started_and_stepped() -> None:
    result = {"score": 2.0, "training_iteration": 2}
    outcome = {
        "trial_id": "t_00000",
        "attempt": 1,
        "result": result,
        "earlier": ({"score": 1.0, "training_iteration": 1}, dict(result)),
        "checkpoint": None,
        "ended": True,
    }
    start = {"location": "here:1", "now": 1.0}
    told: list[list[Any]] = []
    for happened in (
        [
            events.TrialStarted(trial_id="t_00000", attempt=1, **start),
            events.TrialStepped(**outcome),
        ],
        [events.TrialRan(**start, **outcome)],
    ):
        search = Simulation(rules=rules(is_function=True), samples=1, stopper=make_stopper(None))
        search.begin()
        search.go_on()
        search.waiting.clear()
        before = len(search.done)
        for event in happened:
            search.take(event)
        (trial,) = search.machine.trials
        assert (trial.status, trial.location, trial.start_time) == ("TERMINATED", "", 1.0)
        assert trial.last_result["done"] is True
        assert search.ended is not None
        told.append(search.done[before:])
    assert told[0] == told[1]
    assert [do.hook for do in told[1] if isinstance(do, events.NotifyCallbacks)] == [
        "start",
        "result",
        "result",
        "complete",
    ]


def test_a_function_that_never_reports_has_one_result() -> None:
    search = Simulation(
        rules=rules(is_function=True, metric=None),
        samples=1,
        step=lambda trial, iteration: {"ended": True},
    )
    search.run()
    told = [
        do.subject["training_iteration"]
        for do in search.done
        if isinstance(do, events.NotifyCallbacks) and do.hook == "result"
    ]
    assert told == [1]
    assert statuses(search) == [Trial.TERMINATED]


def test_the_searcher_hears_of_results_and_of_ends() -> None:
    search = Simulation(samples=1, stopper=make_stopper({"training_iteration": 2}))
    search.run()
    told = [
        do for do in search.done if isinstance(do, (events.ReportResult, events.ReportCompletion))
    ]
    assert [type(do).__name__ for do in told] == ["ReportResult", "ReportCompletion"]
    assert isinstance(told[1], events.ReportCompletion)
    assert told[1].result is not None
    assert told[1].result["score"] == 2.0
    assert not told[1].error


def test_callbacks_hear_in_order() -> None:
    search = Simulation(
        samples=1,
        stopper=make_stopper({"training_iteration": 1}),
        rules=rules(checkpoint_config=CheckpointConfig(checkpoint_at_end=True)),
    )
    search.run()
    assert [do.hook for do in search.done if isinstance(do, events.NotifyCallbacks)] == [
        "start",
        "result",
        "checkpoint",
        "complete",
    ]


def test_the_scheduler_stops_a_trial() -> None:
    search = Simulation(scheduler=Choosy({(0, 2): "STOP"}), samples=2)
    search.run()
    assert [step for step in search.steps if step[0] == "t_00000"] == [
        ("t_00000", 1),
        ("t_00000", 2),
    ]
    assert search.machine.trials[0].last_result["done"] is True
    assert statuses(search) == [Trial.TERMINATED] * 2
    assert search.scheduler.completed == [1]  # type: ignore[attr-defined]


def test_a_paused_trial_is_saved_gives_its_place_back_and_goes_on_from_there() -> None:
    search = Simulation(scheduler=Choosy({(0, 3): "PAUSE"}), samples=2, cpus=1)
    search.run()
    order = [name for name, _ in search.steps]
    assert order[:3] == ["t_00000"] * 3
    assert search.steps.count(("t_00000", 4)) == 1  # from its checkpoint, not from its beginning
    assert len(search.steps) == 10
    assert statuses(search) == [Trial.TERMINATED] * 2


def test_class_trainables_are_saved_as_often_as_asked_and_at_the_end() -> None:
    config = CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True, num_to_keep=2)
    search = Simulation(rules=rules(checkpoint_config=config), samples=1)
    search.run()
    assert [command.checkpoint_index for command in search.commands(Save)] == [0, 1, 2]
    deleted = [do.checkpoint.path for do in search.done if isinstance(do, events.DeleteCheckpoint)]
    assert deleted == ["/nowhere/search/t_00000/checkpoint_000000"]
    assert search.machine.trials[0].checkpoint_iteration == 5


def test_no_second_checkpoint_of_the_last_iteration() -> None:
    config = CheckpointConfig(checkpoint_frequency=1, checkpoint_at_end=True)
    search = Simulation(
        rules=rules(checkpoint_config=config),
        samples=1,
        stopper=make_stopper({"training_iteration": 3}),
    )
    search.run()
    assert len(search.commands(Save)) == 3


def test_a_failed_trial_ends_and_the_others_go_on() -> None:
    search = Simulation(samples=3, step=failing(4, 1))
    search.run()
    assert statuses(search) == [Trial.ERROR, Trial.TERMINATED, Trial.TERMINATED]
    failed = search.machine.trials[0]
    assert isinstance(failed.exception, RuntimeError)
    assert failed.error_text == "RuntimeError: no more memory"
    told = [
        do
        for do in search.done
        if isinstance(do, events.ReportCompletion) and do.trial_id == "t_00000"
    ]
    assert [do.error for do in told] == [True]


def test_a_failed_trial_starts_again_from_its_checkpoint() -> None:
    search = Simulation(rules=rules(max_failures=2), samples=1, step=failing(4, 2))
    search.run()
    assert statuses(search) == [Trial.TERMINATED]
    assert [iteration for _, iteration in search.steps] == [1, 2, 3, 4, 3, 4, 3, 4, 5]
    assert search.machine.trials[0].num_failures == 2
    starts = [do for do in search.done if isinstance(do, events.StartTrial)]
    assert [do.attempt for do in starts] == [1, 2, 3]
    assert [
        do.hook
        for do in search.done
        if isinstance(do, events.NotifyCallbacks) and do.hook in ("recover", "restore")
    ] == ["recover", "restore"] * 2
    assert search.machine.trials[0].restored_iteration == 2


def test_events_of_an_earlier_attempt_are_ignored() -> None:
    search = Simulation(rules=rules(max_failures=1), samples=1, step=failing(2, 1))
    search.run()
    late = events.TrialStepped(
        trial_id="t_00000",
        attempt=1,
        result={"training_iteration": 9, "score": 9.0},
        checkpoint=None,
        ended=False,
    )
    before = search.machine.trials[0].last_result
    assert search.machine.handle(late) == []
    assert search.machine.trials[0].last_result == before


def test_fail_fast_ends_the_search_with_the_error() -> None:
    search = Simulation(rules=rules(fail_fast=True), samples=5, step=failing(2, 1))
    search.run()
    assert statuses(search)[0] == Trial.ERROR
    assert set(statuses(search)[1:]) == {Trial.TERMINATED}
    assert len(search.machine.trials) < 5
    assert search.ended is not None
    assert "fail_fast" in (search.ended.problem or "")
    assert search.held == {}


def test_a_trial_that_can_never_be_placed_fails_at_once() -> None:
    search = Simulation(samples=1)
    search.begin()
    search.waiting.clear()
    search.machine._table.reserving = "t_00000"
    search.take(
        events.ReservationRefused(
            trial_id="t_00000",
            error=pack_error(ValueError("8 CPU but there are 2")),
            text="ValueError: 8 CPU",
        )
    )
    assert statuses(search) == [Trial.ERROR]
    assert search.ended is not None


def test_the_time_budget_ends_everything() -> None:
    search = Simulation(samples=100, stopper=make_stopper(None))
    search.begin()
    for _ in range(10):
        search.go_on()
    search.take(events.TimeBudgetExhausted())
    assert search.ended == events.EndSearch(problem="its time budget is used up")
    assert set(statuses(search)) == {Trial.TERMINATED}
    assert search.held == {}


def test_a_stopper_may_end_the_whole_search() -> None:
    class Enough(Stopper):
        seen = 0

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            self.seen += 1
            return False

        def stop_all(self) -> bool:
            return self.seen >= 6

    search = Simulation(samples=100, stopper=Enough())
    search.run()
    assert set(statuses(search)) == {Trial.TERMINATED}
    assert len(search.steps) <= 8


def test_a_searcher_that_waits_is_asked_again_when_a_trial_has_ended() -> None:
    search = Simulation(samples=6, cpus=4, concurrency_of_searcher=2)
    search.run()
    assert statuses(search) == [Trial.TERMINATED] * 6
    assert search.most_at_once == 2


def test_a_searcher_that_gives_nothing_for_ever_is_an_error() -> None:
    search = Simulation(samples=1, concurrency_of_searcher=0)
    with pytest.raises(TuneError, match="has suggested nothing"):
        search.run()


class Exploiting(FIFOScheduler):
    """Scheduler that continues trial 0 from the checkpoint of trial 1, once."""

    done = False

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        donor = tune_controller.get_trial("t_00001")
        if (
            not self.done
            and trial.index == 0
            and result["training_iteration"] >= 3
            and donor is not None
            and donor.checkpoint is not None
        ):
            self.done = True
            tune_controller.exploit(trial, donor, config={"x": "exploited"}, tag="x=exploited")
            return self.NOOP
        return self.CONTINUE


def test_a_trial_goes_on_from_the_weights_of_another() -> None:
    config = CheckpointConfig(checkpoint_frequency=1, checkpoint_at_end=False)
    search = Simulation(
        scheduler=Exploiting(),
        samples=2,
        rules=rules(checkpoint_config=config),
        stopper=make_stopper({"training_iteration": 9}),
    )
    search.run()
    donation = next(do for do in search.done if isinstance(do, events.CopyCheckpoint))
    assert donation.source.path.startswith("/nowhere/search/t_00001/")
    trial = search.machine.trials[0]
    assert trial.config == {"x": "exploited"}
    assert trial.experiment_tag == "0_x=exploited"
    again = [
        do for do in search.done if isinstance(do, events.StartTrial) and do.trial_id == "t_00000"
    ][1]
    assert again.checkpoint is not None
    assert (
        again.checkpoint.path
        == f"/nowhere/search/t_00000/checkpoint_{donation.checkpoint_index:06d}"
    )
    assert statuses(search) == [Trial.TERMINATED] * 2


def test_a_checkpoint_that_cannot_be_copied_leaves_the_trial_as_it_was() -> None:
    config = CheckpointConfig(checkpoint_frequency=1, checkpoint_at_end=False)
    search = Simulation(
        scheduler=Exploiting(),
        samples=2,
        rules=rules(checkpoint_config=config),
        stopper=make_stopper({"training_iteration": 9}),
    )
    original = search.carry_out

    def carry_out(do: Any) -> Any:
        if isinstance(do, events.CopyCheckpoint):
            return events.CheckpointCopied(
                trial_id=do.trial_id, checkpoint=None, problem="the disk is failing"
            )
        return original(do)

    search.carry_out = carry_out  # type: ignore[method-assign]
    search.run()
    assert search.machine.trials[0].config == {"x": 1}
    assert statuses(search) == [Trial.TERMINATED] * 2


class Resizing(FIFOScheduler):
    """Scheduler that gives trial 0 two CPUs after its second result."""

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        if trial.index == 0 and result["training_iteration"] == 2:
            tune_controller.update_resources(trial, PlacementGroupFactory([{"CPU": 2}]))
        return self.CONTINUE


def test_a_trial_with_other_resources_is_saved_and_starts_again_next() -> None:
    search = Simulation(scheduler=Resizing(), samples=6, cpus=2)
    search.run()
    reserved = [
        (do.trial_id, do.factory.required_resources["CPU"])
        for do in search.done
        if isinstance(do, events.ReserveResources)
    ]
    assert reserved.count(("t_00000", 2)) == 1
    assert search.steps.count(("t_00000", 3)) == 1
    assert statuses(search) == [Trial.TERMINATED] * 6
    waited_behind = reserved.index(("t_00000", 2))
    assert waited_behind <= 3


def test_a_trainer_inside_a_trial_gets_its_place_and_no_other_trial_starts_meanwhile() -> None:
    search = Simulation(samples=8, cpus=2)
    search.begin()
    search.go_on()
    search.go_on()
    search.take(events.WorkersRequested(trial_id="t_00000", attempt=1))
    assert "t_00000" not in search.held
    assert isinstance(search.done[-1], events.LendResources)
    before = search.kinds().count("ReserveResources")
    search.waiting = [
        event for event in search.waiting if getattr(event, "trial_id", "") != "t_00000"
    ]  # it waits
    while search.waiting:
        search.go_on()
    assert search.kinds().count("ReserveResources") == before
    search.take(events.WorkersReserved(trial_id="t_00000", attempt=1))
    assert search.commands(Resume) == [Resume()]
    assert search.kinds().count("ReserveResources") == before + 1


@pytest.mark.parametrize("seed", range(20))
def test_a_search_that_is_killed_anywhere_and_goes_on_runs_no_finished_trial_again(
    seed: int,
) -> None:
    choose = random.Random(seed)
    search = Simulation(
        samples=8, cpus=2, rules=rules(checkpoint_config=CheckpointConfig(checkpoint_frequency=1))
    )
    search.begin()
    for _ in range(4):
        for _ in range(choose.randrange(25)):
            if search.ended is None:
                search.go_on(choose)
        if search.ended is not None:
            break
        finished = {
            trial.trial_id: len([step for step in search.steps if step[0] == trial.trial_id])
            for trial in search.machine.trials
            if trial.is_finished()
        }
        machine = pickle.loads(pickle.dumps(search.machine))
        machine.search_alg = None
        search.machine = machine
        search.restart()
        assert {
            name: len([step for step in search.steps if step[0] == name]) for name in finished
        } == finished
    search.run(choose)
    assert statuses(search) == [Trial.TERMINATED] * 8
    assert {trial.iteration for trial in search.machine.trials} == {5}


def test_a_restored_search_continues_failed_trials_if_requested() -> None:
    search = Simulation(samples=3, step=failing(4, 1))
    search.run()
    trained = len(search.steps)
    search.samples += 1
    search.restart(errored="RESUME")
    search.run()
    assert statuses(search) == [Trial.TERMINATED] * 4
    assert [step for step in search.steps[trained:] if step[0] == "t_00000"] == [
        ("t_00000", iteration) for iteration in (3, 4, 5)
    ]
    assert [step for step in search.steps[trained:] if step[0] == "t_00001"] == []


def test_restarted_trials_begin_anew_and_lose_their_checkpoints() -> None:
    search = Simulation(samples=1, step=failing(4, 1))
    search.run()
    trained = len(search.steps)
    search.restart(errored="RESTART")
    search.run()
    assert [iteration for _, iteration in search.steps[trained:]] == [1, 2, 3, 4, 5]
    assert any(isinstance(do, events.DeleteCheckpoint) for do in search.done)


def test_skipped_trials_end() -> None:
    search = Simulation(samples=4, cpus=1)
    search.begin()
    for _ in range(4):
        search.go_on()
    search.restart(unfinished="SKIP")
    search.run()
    assert statuses(search)[0] == Trial.TERMINATED
    assert len([step for step in search.steps if step[0] == "t_00000"]) < 5


def test_the_cost_of_an_event_does_not_grow_with_the_number_of_trials() -> None:
    """Count walks through the list of all trials: no event may do one."""
    search = Simulation(samples=300, cpus=2, stopper=make_stopper({"training_iteration": 1}))
    search.run()
    walked = 0

    class Counting(list[Trial]):
        def __iter__(self) -> Any:
            nonlocal walked
            walked += 1
            return super().__iter__()

    search.machine.trials = Counting(search.machine.trials)
    search.samples += 50
    search.ended, search.machine.ended, search.machine._searcher = None, False, "ready"
    search.take(events.Tick())
    search.run()
    assert len(search.machine.trials) == 350
    assert walked == 0


def test_one_cpu_is_what_a_trial_holds() -> None:
    assert ONE_CPU.required_resources == {"CPU": 1.0}


def test_results_are_collected_only_where_nobody_decides() -> None:
    def collects(**changes: Any) -> bool:
        search = Simulation(**({"samples": 1, "stopper": make_stopper(None)} | changes))
        search.begin()
        while not (steps := search.commands(Step)):
            search.go_on()
        return steps[0].batch_s > 0

    assert collects()
    assert not collects(stopper=make_stopper({"training_iteration": 3}))
    assert not collects(scheduler=Choosy())
    assert not collects(rules=rules(checkpoint_config=CheckpointConfig(checkpoint_frequency=2)))


def test_collected_results_are_told_one_by_one() -> None:
    search = Simulation(samples=1, stopper=make_stopper(None))
    search.begin()
    search.go_on()
    search.go_on()
    search.waiting.clear()
    earlier = tuple(
        {"training_iteration": iteration, "score": float(iteration)} for iteration in (1, 2)
    )
    last = {"training_iteration": 3, "score": 3.0}
    search.take(
        events.TrialStepped(
            trial_id="t_00000",
            attempt=1,
            result=last,
            checkpoint=None,
            ended=False,
            earlier=earlier,
        )
    )
    notified = [
        do.subject["score"]
        for do in search.done
        if isinstance(do, events.NotifyCallbacks) and do.hook == "result"
    ]
    told = [do.result["score"] for do in search.done if isinstance(do, events.ReportResult)]
    assert notified == told == [1.0, 2.0, 3.0]
    assert search.machine.trials[0].last_result["score"] == 3.0
    assert search.machine.iteration == 3
    assert search.machine.trials[0].summary("score") == {
        "max": 3.0, "min": 1.0, "avg": 2.0, "last": 3.0, "last-5-avg": 2.0, "last-10-avg": 2.0,
    }  # fmt: skip


def test_a_trial_that_waits_to_start_again_does_not_keep_the_next_one_away() -> None:
    search = Simulation(rules=rules(max_failures=1), samples=4, cpus=1, step=failing(1, 1))
    search.begin()
    while len(search.steps) < 2:
        search.go_on()
    assert statuses(search) == [Trial.PENDING, Trial.RUNNING, Trial.PENDING]


def test_a_searcher_is_asked_no_sooner_than_a_trial_may_run() -> None:
    search = Simulation(rules=rules(max_concurrent=1), samples=3)
    search.begin()
    while search.ended is None:
        running = [trial for trial in search.machine.trials if trial.status == Trial.RUNNING]
        assert not running or len(search.machine.get_live_trials()) == 1
        search.go_on()
    assert statuses(search) == [Trial.TERMINATED] * 3


def test_a_function_that_is_paused_without_a_checkpoint_is_warned_of_once() -> None:
    search = Simulation(
        scheduler=Choosy({(0, 2): "PAUSE", (1, 3): "PAUSE"}),
        samples=2,
        cpus=1,
        rules=rules(is_function=True),
    )
    search.run()
    warnings = [do.text for do in search.done if isinstance(do, events.LogWarning)]
    assert len(warnings) == 1
    assert "at 0 of 2 iterations" in warnings[0]
    assert statuses(search) == [Trial.TERMINATED] * 2


def test_a_trial_that_its_process_did_not_begin_starts_again_before_new_ones() -> None:
    search = Simulation(samples=3, cpus=1)
    search.begin()
    search.go_on()
    record = search.machine._table["t_00000"]
    assert record.attempt is not None
    done = search.machine.handle(events.TrialReturned(trial_id="t_00000", attempt=1))
    assert events.StopTrial(trial_id="t_00000", attempt=1, failed=False) in done
    assert record.trial.status == Trial.PENDING
    assert next(iter(search.machine.pending_trials())) is record.trial
    assert record.trial.num_failures == 0
