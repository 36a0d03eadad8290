"""A controller without processes: trials that step when a seeded lottery says so, and a list of
everything that was decided.
"""

import itertools
import random
from collections.abc import Callable

from syncline.train.checkpoint import Checkpoint
from syncline.train.storage.context import StorageContext
from syncline.tune.config import CheckpointConfig
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers import TrialScheduler

LONGEST = 200_000


def make_trial(index: int, config: dict | None = None, *, cpus: float = 1) -> Trial:
    return Trial(
        trial_id=f"t{index:05d}",
        index=index,
        trainable_name="train",
        config=dict(config or {}),
        evaluated_params={},
        experiment_tag=f"{index}",
        placement_group_factory=PlacementGroupFactory([{"CPU": cpus}]),
        storage=StorageContext("/nowhere", f"t{index:05d}"),
        checkpoint_config=CheckpointConfig(),
    )


def good_by_index(trial: Trial, time: int) -> float:
    """Later trials are better, and all get better."""
    return trial.index + time / 1000


class World:
    """A `ControllerView` over simulated trials.

    `length` is how many results a trial has unless it is stopped; `at_once` how many run together;
    `concurrent` how many of those that have not ended the searcher suggests at most; a trial for
    which `fails(trial, time)` is true at a step ends in an error there.
    """

    def __init__(
        self,
        scheduler: TrialScheduler,
        *,
        count: int = 0,
        at_once: int = 2,
        length: int = 100,
        score: Callable[[Trial, int], float] = good_by_index,
        config: Callable[[int], dict] = lambda index: {},
        concurrent: int = LONGEST,
        fails: Callable[[Trial, int], bool] = lambda trial, time: False,
        saves: bool = True,
        seed: int = 0,
    ) -> None:
        self.scheduler = scheduler
        self.count, self.at_once, self.length, self.concurrent = count, at_once, length, concurrent
        self.score, self.config, self.fails, self.saves = score, config, fails, saves
        self.search_alg = None
        self.total_resources = {"CPU": float(at_once)}
        self.trials: list[Trial] = []
        self.times: dict[str, int] = {}
        self.decided: list[tuple] = []
        self.lines: list[tuple[str, str]] = []
        self._by_id: dict[str, Trial] = {}
        self._live: dict[str, Trial] = {}
        self._pending: dict[str, Trial] = {}
        self._paused: dict[str, Trial] = {}
        self._running: dict[str, Trial] = {}
        self._donating: list[tuple[Trial, Checkpoint, dict, dict]] = []
        self._lottery = random.Random(seed)

    # -- the view

    @property
    def searcher_finished(self):
        return len(self.trials) >= self.count

    def get_trials(self):
        return self.trials

    def get_live_trials(self):
        return self._live.values()

    def pending_trials(self):
        return self._pending.values()

    def paused_trials(self):
        return self._paused.values()

    def get_trial(self, trial_id):
        return self._by_id.get(trial_id)

    def stop_trial(self, trial):
        assert trial.trial_id in self._live, f"{trial} was stopped after its end"
        self.decided.append((trial.trial_id, self.times[trial.trial_id], "stopped"))
        self._end(trial, Trial.TERMINATED)

    def pause_trial(self, trial, should_checkpoint=True):
        self._pause(trial)

    def save_trial(self, trial):
        assert trial.status == Trial.RUNNING
        self._save(trial)

    def exploit(self, trial, donor, *, config, tag=""):
        assert trial.trial_id in self._live, f"{trial} was changed after its end"
        latest = donor.checkpoints.latest
        assert latest is not None, f"{donor} has nothing to give"
        self.decided.append(
            (
                trial.trial_id,
                self.times[trial.trial_id],
                "exploit",
                donor.trial_id,
                repr(sorted(config.items())),
            )
        )
        self._move(trial, Trial.PAUSED)
        self._paused.pop(trial.trial_id)
        trial.experiment_tag = f"{trial.index}_{tag}"
        self._donating.append((trial, latest.checkpoint, dict(latest.metrics), dict(config)))

    def update_resources(self, trial, factory):
        self.decided.append(
            (trial.trial_id, self.times[trial.trial_id], "resources", factory.required_resources)
        )
        trial.placement_group_factory = factory
        if trial.trial_id in self._running:
            self._save(trial)
            self._move(trial, Trial.PENDING)

    # -- what happens

    def add(self, trial: Trial | None = None) -> Trial:
        """A trial is suggested."""
        trial = trial or make_trial(len(self.trials), self.config(len(self.trials)))
        self.trials.append(trial)
        self.times[trial.trial_id] = 0
        self._by_id[trial.trial_id] = self._live[trial.trial_id] = self._pending[trial.trial_id] = (
            trial
        )
        self.scheduler.on_trial_add(self, trial)
        return trial

    def start(self, trial: Trial) -> None:
        self._move(trial, Trial.RUNNING)
        latest = trial.checkpoints.latest
        self.times[trial.trial_id] = (
            latest.metrics["training_iteration"] if latest is not None else 0
        )

    def report(self, trial: Trial, time: int, score: float, **more) -> str:
        """A running trial reports, and what was decided is done."""
        assert trial.status == Trial.RUNNING, f"{trial} reported while {trial.status}"
        self.times[trial.trial_id] = time
        result = {"training_iteration": time, "time_total_s": float(time), "score": score, **more}
        trial.record_result(result)
        decision = self.scheduler.on_trial_result(self, trial, result)
        self._drain()
        self.decided.append((trial.trial_id, time, decision))
        if decision == TrialScheduler.STOP:
            self._end(trial, Trial.TERMINATED)
        elif decision == TrialScheduler.PAUSE:
            self._pause(trial)
        return decision

    def finish(self, trial: Trial, time: int, score: float) -> None:
        """A running trial reports its last result."""
        self.times[trial.trial_id] = time
        trial.record_result(
            {"training_iteration": time, "time_total_s": float(time), "score": score, "done": True}
        )
        self.scheduler.on_trial_complete(self, trial, trial.last_result)
        self._save(trial)
        self.decided.append((trial.trial_id, time, "finished"))
        self._end(trial, Trial.TERMINATED)

    def fail(self, trial: Trial) -> None:
        self.scheduler.on_trial_error(self, trial)
        self.decided.append((trial.trial_id, self.times[trial.trial_id], "failed"))
        self._end(trial, Trial.ERROR)

    def settle(self) -> None:
        """Copies of checkpoints arrive."""
        for trial, checkpoint, metrics, config in self._donating:
            # Iterations never go back.
            iteration = max(self.times[trial.trial_id], metrics["training_iteration"])
            trial.record_checkpoint(checkpoint, {**metrics, "training_iteration": iteration})
            trial.config = config
            self._move(trial, Trial.PENDING)
        self._donating.clear()

    def choose(self) -> Trial | None:
        chosen = self.scheduler.choose_trial_to_run(self)
        self._drain()
        if chosen is not None:
            assert chosen.status in (Trial.PENDING, Trial.PAUSED), (
                f"{chosen} was chosen while {chosen.status}"
            )
            assert self.scheduler.choose_trial_to_run(self) is chosen, (
                "asked again, the scheduler said something else"
            )
        return chosen

    def run(self) -> "World":
        """Until all trials have ended."""
        for _ in range(LONGEST):
            self.settle()
            self._suggest()
            while len(self._running) < self.at_once:
                chosen = self.choose()
                if chosen is None or chosen.trial_id in {
                    trial.trial_id for trial, *_ in self._donating
                }:
                    break
                self.start(chosen)
                self._suggest()
            if not self._live and len(self.trials) == self.count:
                return self
            if not self._running:
                assert self._donating or not self._live, (
                    f"nothing runs, and these wait: {list(self._live.values())}"
                )
                continue
            self._step(self._lottery.choice(list(self._running.values())))
        raise AssertionError("the search does not end")

    def _suggest(self) -> None:
        """One trial that has never run waits as long as there are any."""
        if (
            all(trial.last_result for trial in self._pending.values())
            and len(self.trials) < self.count
            and len(self._live) < self.concurrent
        ):
            self.add()

    def _step(self, trial: Trial) -> None:
        time = self.times[trial.trial_id] + 1
        if self.fails(trial, time):
            self.fail(trial)
        elif time >= self.length:
            self.finish(trial, time, self.score(trial, time))
        else:
            self.report(trial, time, self.score(trial, time))

    # -- results

    def longest(self) -> dict[int, int]:
        """By trial number, how far each came."""
        reached: dict[str, int] = dict.fromkeys(self.times, 0)
        for trial_id, time, *_ in self.decided:
            reached[trial_id] = max(reached[trial_id], time)
        return {index: reached[trial.trial_id] for index, trial in enumerate(self.trials)}

    def exploits(self) -> list[tuple]:
        return [entry for entry in self.decided if entry[2] == "exploit"]

    def _drain(self) -> None:
        drain = getattr(self.scheduler, "drain_policy_log", None)
        self.lines += drain() if drain is not None else []

    def _pause(self, trial: Trial) -> None:
        self._save(trial)
        self._move(trial, Trial.PAUSED)

    def _save(self, trial: Trial) -> None:
        if self.saves and trial.last_result:
            trial.record_checkpoint(
                Checkpoint(f"/nowhere/{trial.trial_id}/{self.times[trial.trial_id]}"),
                trial.last_result,
            )

    def _end(self, trial: Trial, status: str) -> None:
        self._move(trial, status)
        del self._live[trial.trial_id]

    def _move(self, trial: Trial, status: str) -> None:
        for where in (self._pending, self._paused, self._running):
            where.pop(trial.trial_id, None)
        trial.status = status
        there = {
            Trial.PENDING: self._pending,
            Trial.PAUSED: self._paused,
            Trial.RUNNING: self._running,
        }.get(status)
        if there is not None:
            there[trial.trial_id] = trial


class Lessons(World):
    """Trials whose score is what they have learned so far, by `lesson(config)` at each step; a copy
    has learned what its donor has.
    """

    def __init__(
        self, scheduler: TrialScheduler, lesson: Callable[[dict], float], **options
    ) -> None:
        self.learned: dict[str, float] = {}
        self.lesson = lesson
        super().__init__(scheduler, score=self._learn, **options)

    def _learn(self, trial: Trial, _: int) -> float:
        self.learned[trial.trial_id] = self.learned.get(trial.trial_id, 0.0) + self.lesson(
            trial.config
        )
        return self.learned[trial.trial_id]

    def exploit(self, trial: Trial, donor: Trial, **given) -> None:
        super().exploit(trial, donor, **given)
        self.learned[trial.trial_id] = donor.checkpoints.latest.metrics["score"]


def started(scheduler: TrialScheduler, count: int, **options) -> tuple[World, list[Trial]]:
    """A world in which `count` trials run and have reported nothing."""
    world = World(scheduler, count=count, at_once=count, **options)
    trials = [world.add() for _ in range(count)]
    for trial in trials:
        world.start(trial)
    return world, trials


def grid(**axes):
    """All combinations, as dictionaries."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
