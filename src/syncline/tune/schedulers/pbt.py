"""`PopulationBasedTraining`: bad trials go on from the weights of good ones, with a configuration
that is a little different.

Jaderberg, Dalibard, Osindero, Czarnecki, Donahue, Razavi, Vinyals, Green, Dunning, Simonyan,
Fernando, Kavukcuoglu: Population Based Training of Neural Networks, 2017,
https://arxiv.org/abs/1711.09846. Exploit is truncation selection, explore is perturb or resample
(section 4.1.1 and appendix A.1 of the paper).

Where fewer trials run at once than the population has, they take turns: at each perturbation a
trial gives way to the one that is furthest behind. Not covered: the changes themselves
(`explore.py`), ranks (`population.py`), the policy files (`policy_log.py`), and how weights come to
a trial (the controller). `PopulationBasedTrainingReplay` is in `pbt_replay.py`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from syncline.tune.experiment.trial import Trial
from syncline.tune.result import TRAINING_ITERATION
from syncline.tune.schedulers.explore import (
    Mutations,
    apply,
    check_mutations,
    explore,
    fill_missing,
    only_mutated,
)
from syncline.tune.schedulers.pbt_replay import PopulationBasedTrainingReplay, perturbed_tag
from syncline.tune.schedulers.policy_log import PolicyLog
from syncline.tune.schedulers.population import Member, Population
from syncline.tune.schedulers.trial_scheduler import MetricScheduler
from syncline.tune.search.search_generator import SearchGenerator

if TYPE_CHECKING:
    from syncline.tune.schedulers.trial_scheduler import ControllerView

__all__ = ["PopulationBasedTraining", "PopulationBasedTrainingReplay"]

logger = logging.getLogger(__name__)

_DRAWS = 20
"""So often a donor is drawn before all are looked at."""


class PopulationBasedTraining(MetricScheduler):
    """Every `perturbation_interval`, a trial in the lower quantile goes on from a checkpoint of one
    in the upper quantile, with that one's configuration, mutated. Trials must save and load
    checkpoints.

    Args:
        time_attr: What the intervals count: a key of results that does not decrease.
        metric: What trials are compared by; may be given to the search instead.
        mode: `"min"` or `"max"`; may be given to the search instead.
        perturbation_interval: How long a trial trains between two comparisons.
        burn_in_period: No trial is compared before.
        hyperparam_mutations: By hyperparameter: a list of values, a search space, a function
            without arguments, or a dictionary of these. Trials whose configuration lacks one start
            with a value drawn from it.
        quantile_fraction: The share of the population that is cloned, and that clones; 0 to 0.5.
        resample_probability: How often a hyperparameter is drawn anew rather than moved.
        perturbation_factors: What numbers are multiplied by when they are moved; values of lists go
            to a neighbour.
        custom_explore_fn: Gets the mutated configuration and returns the one that is used.
        log_config: Whether the policy files are written, which `PopulationBasedTrainingReplay`
            reads.
        require_attrs: Whether every result must have `time_attr` and `metric`; else those without
            are passed over.
        synch: Whether all trials are compared at the same time, each waiting for the others.

    Raises:
        ValueError: A number is out of its range, or nothing is to be mutated.
        TypeError: A mutation is of the wrong kind.
    """

    _supports_buffered_results = False

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mutations | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        mutations = dict(hyperparam_mutations or {})
        check_mutations(mutations)
        if not mutations and custom_explore_fn is None:
            raise ValueError(
                f"{type(self).__name__} has nothing to change: give `hyperparam_mutations`, such as {{'lr': tune.loguniform(1e-4, 1e-1)}}, "
                f"or `custom_explore_fn`."
            )
        if not 0 <= quantile_fraction <= 0.5:
            raise ValueError(
                f"quantile_fraction={quantile_fraction!r} must be between 0 and 0.5: so many clone, and as many are cloned."
            )
        if not perturbation_interval > 0:
            raise ValueError(
                f"perturbation_interval={perturbation_interval!r} must be more than 0: trials have to train between changes."
            )
        super().__init__(time_attr=time_attr, metric=metric, mode=mode)
        self._perturbation_interval = perturbation_interval
        self._burn_in_period = burn_in_period
        self._hyperparam_mutations = mutations
        self._resample_probability = resample_probability
        self._perturbation_factors = tuple(perturbation_factors)
        self._custom_explore_fn = custom_explore_fn
        self._log_config = log_config
        self._require_attrs = require_attrs
        self._synch = synch
        self._next_perturbation_sync = max(perturbation_interval, burn_in_period)
        self._population = Population(quantile_fraction)
        self._policy_log = PolicyLog()
        self._num_checkpoints = 0
        self._num_perturbations = 0
        self._random = random.Random(random.getrandbits(64))

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """The trial joins the population; its configuration gets what it lacks."""
        if isinstance(tune_controller.search_alg, SearchGenerator):
            raise ValueError(
                f"{type(self).__name__} changes configurations itself, so a searcher ({tune_controller.search_alg}) would learn from "
                f"configurations that no trial had: leave `search_alg` out."
            )
        self._check_properties()
        self._population.join(trial.trial_id, trial.experiment_tag)
        trial.evaluated_params.update(self._fill_missing(trial.config))

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        """Compare the trial, if it is time, and have it saved or replaced."""
        if not self._require_attrs and not (
            self._has(result, self._time_attr) and self._has(result, str(self._metric))
        ):
            return self.CONTINUE
        time, score = self._required_time(trial, result), self._score(trial, result)
        member = self._population[trial.trial_id]
        if time < self._due_at(member):
            return self.CONTINUE
        member.awaits_weights = False
        self._take_score(trial, time, score)
        if self._synch:
            return self.PAUSE
        member.perturbed_at = time
        return self._perturb_alone(tune_controller, trial, int(result.get(TRAINING_ITERATION, 0)))

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Its last score counts, and others may clone it."""
        if trial.trial_id not in self._population:
            return
        if self._has(result, str(self._metric)):
            self._population.set_score(trial.trial_id, self._score(trial, result))
        self._population.end(trial.trial_id, may_be_cloned=True)

    def on_trial_error(self, tune_controller: ControllerView, trial: Trial) -> None:
        """It is out of the comparison, unless it comes again."""
        self._population.end(trial.trial_id, may_be_cloned=False)

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """It is out of the comparison."""
        self._population.end(trial.trial_id, may_be_cloned=False)

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """The trial that is furthest behind; with `synch`, the next one when all have been
        compared.
        """
        chosen = self._furthest_behind(tune_controller)
        if chosen is not None or not self._synch or not self._all_wait(tune_controller):
            return chosen
        self._perturb_all(tune_controller)
        return self._furthest_behind(tune_controller)

    def drain_policy_log(self) -> list[tuple[str, str]]:
        """(file name, line) for each line that the experiment directory's policy files get, in
        order; each is given once.
        """
        return self._policy_log.drain()

    def debug_string(self) -> str:
        """How often trials were saved and changed."""
        return f"PopulationBasedTraining: {self._num_checkpoints} checkpoints, {self._num_perturbations} perturbs"

    # -- hooks of PB2

    def _fill_missing(self, config: dict[str, Any]) -> dict[str, Any]:
        """Give `config` what it lacks; returns that, by flat key."""
        return fill_missing(config, self._hyperparam_mutations, self._random)

    def _take_score(self, trial: Trial, time: float, score: float) -> None:
        """A trial has come to a perturbation."""
        self._population.set_score(trial.trial_id, score)
        self._population.set_progress(trial.trial_id, time)

    def _new_config(self, trial: Trial, donor: Trial) -> dict[str, Any]:
        """What `trial` goes on with from the checkpoint of `donor`."""
        changed = explore(
            donor.config,
            self._hyperparam_mutations,
            resample_probability=self._resample_probability,
            factors=self._perturbation_factors,
            source=self._random,
        )
        return (
            changed
            if self._custom_explore_fn is None
            else apply(self._custom_explore_fn, changed, self._random)
        )

    # -- perturbations

    def _due_at(self, member: Member) -> float:
        if self._synch:
            return self._next_perturbation_sync
        return max(self._burn_in_period, member.perturbed_at + self._perturbation_interval)

    def _perturb_alone(self, controller: ControllerView, trial: Trial, iteration: int) -> str:
        place = self._population.place(trial.trial_id)
        donor = self._donor(controller, trial.trial_id) if place == "lower" else None
        if donor is not None:
            self._exploit(controller, trial, donor, iteration)
            return self.NOOP
        # A trial that is paused is saved anyway.
        gives_way = any(True for _ in controller.pending_trials()) or any(
            True for _ in controller.paused_trials()
        )
        if place == "upper":
            self._num_checkpoints += 1
            if not gives_way:
                controller.save_trial(trial)
        return self.PAUSE if gives_way else self.CONTINUE

    def _all_wait(self, controller: ControllerView) -> bool:
        """Whether every trial that has not ended has come to the next comparison, and is saved."""
        if self._population.least_progress() < self._next_perturbation_sync:
            return False
        trials = [
            controller.get_trial(member.trial_id) for member in self._population.by_progress()
        ]
        return bool(trials) and all(
            trial is not None and trial.status != Trial.RUNNING for trial in trials
        )

    def _perturb_all(self, controller: ControllerView) -> None:
        """Compare all trials, which are paused."""
        now = self._population.most_progress()
        waiting = [member.trial_id for member in self._population.by_progress()]
        places = {trial_id: self._population.place(trial_id) for trial_id in waiting}
        for trial_id in waiting:
            self._population[trial_id].perturbed_at = now
            trial = controller.get_trial(trial_id)
            donor = self._donor(controller, trial_id) if places[trial_id] == "lower" else None
            if trial is not None and donor is not None:
                self._exploit(
                    controller, trial, donor, trial.last_result.get(TRAINING_ITERATION, 0)
                )
        self._num_checkpoints += sum(place == "upper" for place in places.values())
        while self._next_perturbation_sync <= self._population.most_progress():
            self._next_perturbation_sync += self._perturbation_interval

    def _donor(self, controller: ControllerView, trial_id: str) -> Trial | None:
        """Someone of the upper quantile who is really better and has a checkpoint; one that still
        runs if there is one.
        """
        size = self._population.quantile_size()
        # Mostly any of them will do, so a large population need not be walked through.
        for _ in range(_DRAWS):
            donor = self._donor_at(controller, self._random.randrange(size), trial_id)
            if donor is not None and self._population.is_live(donor.trial_id):
                return donor
        donors = [
            donor
            for position in range(size)
            if (donor := self._donor_at(controller, position, trial_id)) is not None
        ]
        live = [donor for donor in donors if self._population.is_live(donor.trial_id)]
        return self._random.choice(live or donors) if donors else None

    def _donor_at(self, controller: ControllerView, position: int, trial_id: str) -> Trial | None:
        """The trial of that place from the top, if `trial_id` can gain by it."""
        member, own = self._population.from_top(position), self._population[trial_id]
        donor = controller.get_trial(member.trial_id)
        return (
            donor
            if donor is not None and donor.checkpoint is not None and member.rank[0] > own.rank[0]
            else None
        )

    def _exploit(
        self, controller: ControllerView, trial: Trial, donor: Trial, iteration: int
    ) -> None:
        member, source = self._population[trial.trial_id], self._population[donor.trial_id]
        config = self._new_config(trial, donor)
        logger.info(
            "Trial %s (score %s) goes on from trial %s (score %s) with %s.",
            trial,
            member.score,
            donor,
            source.score,
            only_mutated(config, self._hyperparam_mutations),
        )
        if self._log_config:
            self._policy_log.add(
                trial_id=trial.trial_id,
                donor_id=donor.trial_id,
                tags=(member.tag, source.tag),
                iterations=(
                    iteration,
                    donor.checkpoint_iteration or int(donor.last_result.get(TRAINING_ITERATION, 0)),
                ),
                config=donor.config,
                changed=config,
            )
        tag = perturbed_tag(
            member.tag.removeprefix(f"{trial.index}_"),
            only_mutated(config, self._hyperparam_mutations),
        )
        controller.exploit(trial, donor, config=config, tag=tag)
        member.awaits_weights = True
        member.perturbed_at = self._goes_on_at(member, source, donor)
        self._population.set_progress(trial.trial_id, member.perturbed_at)
        self._num_perturbations += 1

    def _goes_on_at(self, member: Member, source: Member, donor: Trial) -> float:
        """When a trial begins to train with the configuration that it got. Its iterations never go
        back, other times are the donor's.
        """
        if self._time_attr == TRAINING_ITERATION:
            return max(member.trained_to, donor.checkpoint_iteration)
        return source.trained_to

    def _furthest_behind(self, controller: ControllerView) -> Trial | None:
        for member in self._population.by_progress():
            if self._synch and member.trained_to >= self._next_perturbation_sync:
                return None
            trial = controller.get_trial(member.trial_id)
            # A trial that waits for another's weights is pending when it has them.
            if trial is not None and (
                trial.status == Trial.PENDING
                or (trial.status == Trial.PAUSED and not member.awaits_weights)
            ):
                return trial
        return None
