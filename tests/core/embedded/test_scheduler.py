"""The scheduler's decisions, as instruction lists."""

from __future__ import annotations

import pytest

from syncline.core.embedded.instructions import (
    Assign,
    AssignActor,
    GroupReady,
    StartWorker,
    StopWorker,
)
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.resources import Infeasible
from tests.core.embedded.scheduler_invariants import check_scheduler


def machine(workers: int = 0, **total: float) -> Scheduler:
    """A machine with workers 0, 1, … that are idle."""
    scheduler = Scheduler(total or {"CPU": 2})
    for worker in range(workers):
        assert not scheduler.worker_ready(worker)
    return scheduler


def assigned(worker: int, *tasks: int) -> list[Assign]:
    return [Assign(worker, task, ()) for task in tasks]


# Tasks and workers


def test_first_task_starts_one_process_and_runs_when_it_is_ready() -> None:
    scheduler = machine()
    cpu = scheduler.shape({"CPU": 1})
    assert scheduler.submit(10, cpu) == [StartWorker("", 1)]
    assert scheduler.worker_ready(0) == assigned(0, 10)
    assert scheduler.available() == {"CPU": 1}
    assert not scheduler.finished(0, 10)
    assert scheduler.available() == {"CPU": 2}


def test_never_more_processes_than_cpus() -> None:
    scheduler = machine()
    cpu = scheduler.shape({"CPU": 1})
    steps = [step for task in range(10) for step in scheduler.submit(task, cpu)]
    assert steps == [StartWorker("", 1)]
    assert scheduler.worker_ready(0) == [*assigned(0, 0), StartWorker("", 1)]
    assert scheduler.worker_ready(1) == assigned(1, 1)
    assert scheduler.statistics().queued == 8
    assert scheduler.finished(0, 0) == assigned(0, 2)
    check_scheduler(scheduler)


def test_tasks_run_in_the_order_in_which_they_came() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    order = [step.task_id for task in range(5) for step in scheduler.submit(task, cpu)]
    for task in range(4):
        order += [step.task_id for step in scheduler.finished(0, task)]
    assert order == [0, 1, 2, 3, 4]


def test_same_demand_is_the_same_shape() -> None:
    scheduler = machine(CPU=2)
    assert scheduler.shape({"CPU": 1, "GPU": 0}) == scheduler.shape({"CPU": 1.0})
    assert scheduler.shape({"CPU": 1}) != scheduler.shape({"CPU": 1}, environment="abc")


def test_infeasible_demands_are_refused_with_numbers() -> None:
    scheduler = machine(CPU=2, GPU=1)
    with pytest.raises(
        Infeasible, match=r"asked \{'CPU': 8\} but this machine has \{'CPU': 2\}: .*lower num_cpus"
    ):
        scheduler.shape({"CPU": 8})
    with pytest.raises(Infeasible, match=r"asked \{'GPU': 2\} but this machine has \{'GPU': 1\}"):
        scheduler.shape({"CPU": 1, "GPU": 2})
    with pytest.raises(Infeasible, match=r"\{'tpu': 0\}"):
        scheduler.shape({"tpu": 1})


def test_infeasible_group_waits_until_the_machine_grows() -> None:
    scheduler = machine(workers=1, CPU=2)
    with pytest.raises(Infeasible):
        scheduler.create_group(1, [{"CPU": 3, "tpu": 1}], "PACK")
    assert not scheduler.create_group(1, [{"CPU": 3, "tpu": 1}], "PACK", is_feasible=False)
    apart = [{"CPU": 1}, {"CPU": 1}]
    assert not scheduler.create_group(2, apart, "STRICT_SPREAD", is_feasible=False)
    cpu = scheduler.shape({"CPU": 2})
    assert scheduler.submit(1, cpu)  # nothing is reserved for them
    scheduler.finished(0, 1)
    assert not scheduler.resize({"CPU": 8})
    assert scheduler.resize({"tpu": 1}) == [GroupReady(1)]
    check_scheduler(scheduler)


def test_cancel_removes_unassigned_tasks_only() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.submit(1, cpu)
    scheduler.submit(2, cpu)
    assert scheduler.cancel(2)
    assert not scheduler.cancel(2)
    assert not scheduler.cancel(1)
    assert not scheduler.finished(0, 1)
    check_scheduler(scheduler)


def test_dead_worker_leaves_its_tasks_and_its_resources() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.set_depth(cpu, 3)
    for task in range(4):
        scheduler.submit(task, cpu)
    loss = scheduler.worker_died(0)
    assert loss.tasks == [0, 1, 2]
    assert loss.actor_id is None
    assert loss.instructions == [StartWorker("", 1)]
    assert not scheduler.worker_died(0).tasks
    assert scheduler.worker_ready(1) == assigned(1, 3)
    check_scheduler(scheduler)


def test_process_that_fails_to_start_is_requested_again() -> None:
    scheduler = machine()
    scheduler.submit(1, scheduler.shape({"CPU": 1}, environment="e"))
    assert scheduler.start_failed("e") == [StartWorker("e", 1)]


def test_environments_have_their_own_workers_and_idle_ones_are_stopped_for_others() -> None:
    scheduler = machine(workers=2)
    other = scheduler.shape({"CPU": 1}, environment="e")
    assert scheduler.submit(1, other) == [StartWorker("e", 1)]
    assert scheduler.worker_ready(9, "e") == [*assigned(9, 1)]
    scheduler.submit(2, scheduler.shape({"CPU": 1}))
    assert not scheduler.finished(9, 1)
    assert scheduler.retire(9) == [StopWorker(9)]
    check_scheduler(scheduler)


def test_idle_workers_beyond_the_cpus_are_stopped() -> None:
    scheduler = machine(workers=2)
    assert scheduler.worker_ready(2) == [StopWorker(0)]
    check_scheduler(scheduler)


def test_prestarted_workers_are_at_most_one_per_cpu() -> None:
    scheduler = machine(workers=1, CPU=3)
    assert scheduler.prestart("", 8) == [StartWorker("", 2)]
    assert not scheduler.prestart("", 8)


def test_retired_worker_gets_no_more_tasks_and_is_stopped() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.submit(1, cpu)
    scheduler.submit(2, cpu)
    assert not scheduler.retire(0)
    assert scheduler.finished(0, 1) == [StopWorker(0), StartWorker("", 1)]
    assert scheduler.worker_ready(1) == assigned(1, 2)
    scheduler.finished(1, 2)
    assert scheduler.retire(1) == [StopWorker(1)]
    check_scheduler(scheduler)


def test_tasks_without_cpu_run_beside_full_cpus_up_to_a_bound() -> None:
    scheduler = machine(workers=1, CPU=1)
    scheduler.submit(0, scheduler.shape({"CPU": 1}))
    free = scheduler.shape({})
    for task in range(1, 10):
        scheduler.submit(task, free)
    worker = 0
    while scheduler.statistics().starting:
        worker += 1
        scheduler.worker_ready(worker)
    assert scheduler.statistics().running == 5
    assert scheduler.statistics().queued == 5
    assert scheduler.blocked(2) == [StartWorker("", 1)]
    check_scheduler(scheduler)


# Fairness and pipelining


def test_shape_that_cannot_run_never_blocks_another() -> None:
    scheduler = machine(workers=2, CPU=2, GPU=1)
    gpu, cpu = scheduler.shape({"CPU": 1, "GPU": 1}), scheduler.shape({"CPU": 1})
    assert scheduler.submit(1, gpu) == [Assign(1, 1, ("0",))]
    assert not scheduler.submit(2, gpu)
    assert scheduler.submit(3, cpu) == assigned(0, 3)
    scheduler.submit(4, cpu)
    assert scheduler.finished(0, 3) == assigned(0, 4)
    assert scheduler.finished(1, 1) == [Assign(1, 2, ("0",))]
    check_scheduler(scheduler)


def test_shapes_are_served_round_robin() -> None:
    scheduler = machine(workers=1, CPU=1)
    small, large = scheduler.shape({"CPU": 0.6}), scheduler.shape({"CPU": 1})
    order: list[int] = []
    for task in range(8):
        order += [step.task_id for step in scheduler.submit(task, small if task < 4 else large)]
    while len(order) < 8:
        order += [step.task_id for step in scheduler.finished(0, order[-1])]
    assert order == [0, 1, 4, 2, 5, 3, 6, 7]


def test_pipelining_only_when_no_worker_can_take_the_task() -> None:
    scheduler = machine(workers=2)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.set_depth(cpu, 2)
    steps = [step for task in range(6) for step in scheduler.submit(task, cpu)]
    assert steps == [*assigned(1, 0), *assigned(0, 1), *assigned(1, 2), *assigned(0, 3)]
    assert scheduler.available() == {"CPU": 0}
    assert scheduler.statistics().pipelined == 2
    assert scheduler.finished(1, 0) == assigned(1, 4)
    assert scheduler.available() == {"CPU": 0}
    check_scheduler(scheduler)


def test_no_pipelining_while_a_process_is_starting() -> None:
    scheduler = machine(workers=1, CPU=2)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.set_depth(cpu, 4)
    assert scheduler.submit(0, cpu) == assigned(0, 0)
    assert scheduler.submit(1, cpu) == [StartWorker("", 1)]
    assert not scheduler.submit(2, cpu)
    assert scheduler.worker_ready(1) == [*assigned(1, 1), *assigned(0, 2)]


def test_gpu_tasks_are_never_pipelined() -> None:
    scheduler = machine(workers=2, CPU=2, GPU=1)
    gpu = scheduler.shape({"GPU": 1})
    scheduler.set_depth(gpu, 8)
    scheduler.submit(0, gpu)
    assert not scheduler.submit(1, gpu)


def test_returned_tasks_are_next_and_their_worker_gets_no_more() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.set_depth(cpu, 3)
    for task in range(5):
        scheduler.submit(task, cpu)
    assert not scheduler.returned(0, [1, 2])
    assert scheduler.statistics().queued == 4
    check_scheduler(scheduler)
    assert scheduler.finished(0, 0) == assigned(0, 1, 2, 3)


def test_worker_that_returns_a_task_when_its_current_one_has_ended_is_idle() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.set_depth(cpu, 2)
    scheduler.submit(0, cpu)
    scheduler.submit(1, cpu)
    assert not scheduler.finished(0, 0)
    assert scheduler.returned(0, [1]) == assigned(0, 1)
    check_scheduler(scheduler)
    assert not scheduler.finished(0, 1)
    assert scheduler.available() == {"CPU": 1}


def test_task_that_was_cancelled_before_it_began_leaves_a_blocked_worker_without_cpu() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.set_depth(cpu, 2)
    scheduler.submit(0, cpu)
    scheduler.submit(1, cpu)
    scheduler.blocked(0)
    assert not scheduler.dropped(0, 1)
    assert scheduler.available() == {"CPU": 1}
    check_scheduler(scheduler)
    scheduler.finished(0, 0)
    assert scheduler.statistics().idle == 1
    check_scheduler(scheduler)


def test_pipelining_shape_gives_way_to_another_after_a_while() -> None:
    scheduler = machine(workers=1, CPU=1)
    first, second = scheduler.shape({"CPU": 1}), scheduler.shape({"CPU": 0.5})
    scheduler.set_depth(first, 4)
    queue = [step.task_id for task in range(1000) for step in scheduler.submit(task, first)]
    scheduler.submit(1000, second)
    done = 0
    while 1000 not in queue:
        queue += [step.task_id for step in scheduler.finished(0, queue[done])]
        done += 1
    assert done < 100


# Waiting in get


def test_blocked_worker_releases_its_cpu_and_takes_it_back() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.submit(1, cpu)
    assert not scheduler.submit(2, cpu)
    assert scheduler.blocked(0) == [StartWorker("", 1)]
    assert scheduler.worker_ready(1) == assigned(1, 2)
    assert not scheduler.unblocked(0)
    check_scheduler(scheduler)
    assert scheduler.available() == {"CPU": 0}
    scheduler.submit(3, cpu)
    assert scheduler.finished(1, 2) == assigned(1, 3)
    assert not scheduler.finished(0, 1)
    scheduler.finished(1, 3)
    assert scheduler.available() == {"CPU": 1}
    check_scheduler(scheduler)


def test_blocked_worker_returns_unstarted_tasks_so_that_nested_tasks_cannot_deadlock() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.set_depth(cpu, 2)
    scheduler.submit(1, cpu)
    scheduler.submit(2, cpu)
    assert scheduler.blocked(0, [2]) == [StartWorker("", 1)]
    assert scheduler.worker_ready(1) == assigned(1, 2)
    check_scheduler(scheduler)


def test_gpu_is_kept_while_blocked() -> None:
    scheduler = machine(workers=1, CPU=1, GPU=1)
    gpu = scheduler.shape({"CPU": 1, "GPU": 1})
    scheduler.submit(1, gpu)
    scheduler.blocked(0)
    assert scheduler.available() == {"CPU": 1, "GPU": 0}
    assert not scheduler.submit(2, gpu)


def test_worker_that_dies_blocked_frees_exactly_what_it_held() -> None:
    scheduler = machine(workers=1, CPU=1, GPU=1)
    scheduler.submit(1, scheduler.shape({"CPU": 1, "GPU": 0.5}))
    scheduler.blocked(0)
    scheduler.worker_died(0)
    assert scheduler.available() == {"CPU": 1, "GPU": 1}
    check_scheduler(scheduler)


# GPUs


def test_fractions_share_one_gpu_and_whole_gpus_stay_whole() -> None:
    scheduler = machine(workers=4, CPU=4, GPU=2)
    half, whole = scheduler.shape({"GPU": 0.5}), scheduler.shape({"GPU": 1})
    assert scheduler.submit(1, half) == [Assign(3, 1, ("0",))]
    assert scheduler.submit(2, half) == [Assign(2, 2, ("0",))]
    assert scheduler.submit(3, whole) == [Assign(1, 3, ("1",))]
    assert not scheduler.submit(4, half)
    check_scheduler(scheduler)


def test_gpu_ids_can_be_named() -> None:
    scheduler = Scheduler({"CPU": 1, "GPU": 2}, gpu_ids=["4", "6"])
    scheduler.worker_ready(0)
    assert scheduler.submit(1, scheduler.shape({"GPU": 2})) == [Assign(0, 1, ("4", "6"))]
    with pytest.raises(ValueError, match="one for each GPU"):
        Scheduler({"GPU": 2}, gpu_ids=["0"])


# Actors


def test_actor_needs_a_cpu_to_be_placed_and_keeps_its_own_resources() -> None:
    scheduler = machine(workers=1, CPU=1)
    place, keep = scheduler.shape({"CPU": 1}), scheduler.shape({})
    assert scheduler.reserve_actor(1, place, keep) == [AssignActor(0, 1, ())]
    assert scheduler.available() == {"CPU": 1}
    assert scheduler.reserve_actor(2, place, keep) == [StartWorker("", 1)]
    assert scheduler.available() == {"CPU": 0}
    assert scheduler.worker_ready(1) == [AssignActor(1, 2, ())]
    check_scheduler(scheduler)
    assert scheduler.release_actor(2) == [StopWorker(1)]
    assert scheduler.worker_died(0).actor_id == 1
    assert not scheduler.actor_died(1)
    check_scheduler(scheduler)


def test_actor_waits_for_its_resources_and_goes_before_tasks() -> None:
    scheduler = machine(workers=2, CPU=2)
    cpu = scheduler.shape({"CPU": 1})
    for task in range(4):
        scheduler.submit(task, cpu)
    assert not scheduler.reserve_actor(7, scheduler.shape({"CPU": 2}))
    assert not scheduler.finished(1, 0)
    assert scheduler.finished(0, 1) == [AssignActor(0, 7, ())]
    assert scheduler.release_actor(7) == [StopWorker(0), *assigned(1, 2), StartWorker("", 1)]
    check_scheduler(scheduler)


def test_tasks_continue_while_an_actor_waits_for_other_actors() -> None:
    scheduler = machine(workers=2, CPU=2)
    one = scheduler.shape({"CPU": 1})
    scheduler.reserve_actor(1, one)
    assert not scheduler.reserve_actor(2, scheduler.shape({"CPU": 2}))
    assert scheduler.submit(1, one) == assigned(0, 1)
    check_scheduler(scheduler)


def test_released_unplaced_actor_leaves_nothing() -> None:
    scheduler = machine(CPU=1)
    one = scheduler.shape({"CPU": 1})
    assert scheduler.reserve_actor(1, one) == [StartWorker("", 1)]
    assert not scheduler.reserve_actor(2, one)
    assert not scheduler.release_actor(2)
    assert not scheduler.release_actor(1)
    assert not scheduler.worker_ready(0)
    assert scheduler.available() == {"CPU": 1}
    check_scheduler(scheduler)


def test_blocked_actor_releases_its_cpu() -> None:
    scheduler = machine(workers=1, CPU=1)
    one = scheduler.shape({"CPU": 1})
    scheduler.reserve_actor(1, one)
    scheduler.submit(1, one)
    assert scheduler.blocked(0) == [StartWorker("", 1)]
    scheduler.unblocked(0)
    check_scheduler(scheduler)


def test_actor_cannot_keep_more_than_it_was_placed_with() -> None:
    scheduler = machine(CPU=2)
    with pytest.raises(ValueError, match="must be part of"):
        scheduler.reserve_actor(1, scheduler.shape({"CPU": 1}), scheduler.shape({"CPU": 2}))


# Placement groups


def test_group_is_reserved_immediately_and_its_tasks_run_inside() -> None:
    scheduler = machine(workers=2, CPU=2, GPU=2)
    assert scheduler.create_group(5, [{"CPU": 1, "GPU": 1}, {"GPU": 1}], "STRICT_PACK") == [
        GroupReady(5)
    ]
    assert scheduler.available() == {"CPU": 1, "GPU": 0}
    second = scheduler.shape({"GPU": 1}, group=(5, 1))
    assert scheduler.submit(1, second) == [Assign(1, 1, ("1",))]
    assert not scheduler.submit(2, second)
    anywhere = scheduler.shape({"GPU": 0.5}, group=(5, -1))
    assert scheduler.submit(3, anywhere) == [Assign(0, 3, ("0",))]
    check_scheduler(scheduler)


def test_group_waits_for_running_tasks_and_small_tasks_cannot_starve_it() -> None:
    scheduler = machine(workers=2, CPU=2)
    cpu = scheduler.shape({"CPU": 1})
    for task in range(6):
        scheduler.submit(task, cpu)
    assert not scheduler.create_group(5, [{"CPU": 1}, {"CPU": 1}], "PACK")
    assert not scheduler.finished(1, 0)
    assert scheduler.finished(0, 1) == [GroupReady(5)]
    check_scheduler(scheduler)
    assert scheduler.statistics().queued == 4
    removal = scheduler.remove_group(5)
    assert removal.instructions == [*assigned(0, 2), *assigned(1, 3)]


def test_pipelined_tasks_do_not_starve_a_waiting_group() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.set_depth(cpu, 2)
    for task in range(10):
        scheduler.submit(task, cpu)
    scheduler.create_group(5, [{"CPU": 1}], "PACK")
    assert not scheduler.finished(0, 0)
    assert scheduler.finished(0, 1) == [GroupReady(5)]


def test_tasks_of_a_waiting_group_wait_with_it() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.submit(1, cpu)
    scheduler.create_group(5, [{"CPU": 1}], "PACK")
    assert not scheduler.submit(2, scheduler.shape({"CPU": 1}, group=(5, 0)))
    assert not scheduler.submit(3, scheduler.shape({}, group=(5, 0)))
    assert scheduler.finished(0, 1) == [GroupReady(5), *assigned(0, 2), StartWorker("", 1)]
    check_scheduler(scheduler)


def test_removed_group_frees_the_unused_part_now_and_the_rest_later() -> None:
    scheduler = machine(workers=1, CPU=3)
    scheduler.create_group(5, [{"CPU": 1}, {"CPU": 1}, {"CPU": 1}], "SPREAD")
    inside = scheduler.shape({"CPU": 1}, group=(5, 0))
    scheduler.submit(1, inside)
    scheduler.submit(2, inside)
    scheduler.reserve_actor(9, scheduler.shape({"CPU": 1}, group=(5, 1)))
    removal = scheduler.remove_group(5)
    assert (removal.queued, removal.running, removal.actors) == ([2], [(0, [1])], [9])
    assert scheduler.available() == {"CPU": 1}
    check_scheduler(scheduler)
    assert scheduler.worker_died(0).tasks == [1]
    assert scheduler.available() == {"CPU": 2}
    scheduler.release_actor(9)
    assert scheduler.available() == {"CPU": 3}
    check_scheduler(scheduler)
    with pytest.raises(Infeasible, match="was removed"):
        scheduler.submit(3, inside)
    with pytest.raises(Infeasible, match="was removed"):
        scheduler.shape({"CPU": 1}, group=(5, 0))


def test_groups_that_can_never_be_reserved_are_refused() -> None:
    scheduler = machine(CPU=2, GPU=2)
    with pytest.raises(Infeasible, match="STRICT_SPREAD.* 2 bundles .*one machine"):
        scheduler.create_group(1, [{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD")
    with pytest.raises(Infeasible, match=r"asked \{'CPU': 3\} but this machine has \{'CPU': 2\}"):
        scheduler.create_group(1, [{"CPU": 2}, {"CPU": 1}], "PACK")
    with pytest.raises(Infeasible, match="must be on a single GPU"):
        scheduler.create_group(1, [{"GPU": 0.6}] * 3, "PACK")
    with pytest.raises(ValueError, match="reserves nothing"):
        scheduler.create_group(1, [], "PACK")
    with pytest.raises(ValueError, match="use one of PACK"):
        scheduler.create_group(1, [{"CPU": 1}], "TIGHT")
    assert scheduler.create_group(1, [{"CPU": 1}], "STRICT_SPREAD") == [GroupReady(1)]


def test_shapes_of_a_group_are_checked_against_its_bundles() -> None:
    scheduler = machine(CPU=4)
    scheduler.create_group(1, [{"CPU": 1}, {"CPU": 2}], "PACK")
    with pytest.raises(
        Infeasible, match=r"asked \{'CPU': 2\} but bundle 0 of the placement group has \{'CPU': 1\}"
    ):
        scheduler.shape({"CPU": 2}, group=(1, 0))
    with pytest.raises(
        Infeasible,
        match=r"asked \{'CPU': 3\} but the largest bundle of the placement group has \{'CPU': 2\}",
    ):
        scheduler.shape({"CPU": 3}, group=(1, -1))
    with pytest.raises(ValueError, match="has 2 bundles. Use an index from 0 to 1"):
        scheduler.shape({"CPU": 1}, group=(1, 2))


# A machine that grows and shrinks


def test_larger_machine_starts_waiting_work() -> None:
    scheduler = machine(workers=1, CPU=1)
    cpu = scheduler.shape({"CPU": 1})
    assert scheduler.submit(1, cpu) == assigned(0, 1)
    assert not scheduler.submit(2, cpu)
    assert scheduler.resize({"CPU": 3}) == [StartWorker("", 1)]
    assert (scheduler.total(), scheduler.available()) == ({"CPU": 3}, {"CPU": 2})
    check_scheduler(scheduler)
    assert scheduler.worker_ready(1) == assigned(1, 2)


def test_smaller_machine_ends_nothing_and_places_nothing_until_its_debt_is_paid() -> None:
    scheduler = machine(workers=3, CPU=3)
    cpu = scheduler.shape({"CPU": 1})
    for task in range(3):
        scheduler.submit(task, cpu)
    assert not scheduler.submit(3, cpu)
    assert not scheduler.resize({"CPU": 1})
    assert (scheduler.total(), scheduler.available()) == ({"CPU": 1}, {"CPU": 0})
    check_scheduler(scheduler)
    assert not scheduler.finished(2, 0)
    assert scheduler.finished(1, 1) == [StopWorker(2)]  # one that rests is enough for one CPU
    check_scheduler(scheduler)
    assert scheduler.finished(0, 2) == assigned(0, 3)
    check_scheduler(scheduler)


def test_smaller_machine_queues_nothing_behind_busy_workers() -> None:
    scheduler = machine(workers=2, CPU=2)
    cpu = scheduler.shape({"CPU": 1})
    scheduler.set_depth(cpu, 4)
    for task in range(2):
        scheduler.submit(task, cpu)
    scheduler.resize({"CPU": 1})
    assert not scheduler.submit(2, cpu)
    check_scheduler(scheduler)


def test_groups_that_no_longer_fit_wait_and_new_ones_are_refused() -> None:
    scheduler = machine(CPU=4)
    scheduler.create_group(1, [{"CPU": 3}], "PACK")
    assert not scheduler.create_group(2, [{"CPU": 3}], "PACK")
    scheduler.resize({"CPU": 2})
    assert not scheduler.remove_group(1).instructions
    check_scheduler(scheduler)
    with pytest.raises(Infeasible, match=r"asked \{'CPU': 3\} but this machine has \{'CPU': 2\}"):
        scheduler.create_group(3, [{"CPU": 3}], "PACK")
    assert scheduler.resize({"CPU": 4}) == [GroupReady(2)]
    check_scheduler(scheduler)


def test_new_resource_can_be_used_in_existing_groups() -> None:
    scheduler = machine(workers=1, CPU=4)
    scheduler.create_group(1, [{"CPU": 1}], "PACK")
    assert not scheduler.resize({"disk": 2})
    assert scheduler.create_group(2, [{"CPU": 1, "disk": 1}], "PACK") == [GroupReady(2)]
    assert scheduler.available() == {"CPU": 2, "disk": 1}
    assert scheduler.submit(1, scheduler.shape({"disk": 1}, group=(2, 0))) == assigned(0, 1)
    check_scheduler(scheduler)
    assert not scheduler.resize({"disk": 0})
    assert scheduler.total() == {"CPU": 4}
    check_scheduler(scheduler)


def test_number_of_gpus_cannot_change() -> None:
    with pytest.raises(ValueError, match="2 GPUs, and this number is fixed"):
        machine(CPU=1, GPU=2).resize({"GPU": 1})
