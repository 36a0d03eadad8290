"""`PopulationBasedTraining`: bad trials continue from the weights of good trials, with a mutated
configuration.

Jaderberg, Dalibard, Osindero, Czarnecki, Donahue, Razavi, Vinyals, Green, Dunning, Simonyan,
Fernando, Kavukcuoglu: Population Based Training of Neural Networks, 2017,
https://arxiv.org/abs/1711.09846. Exploit is truncation selection, explore is perturb or resample
(section 4.1.1 and appendix A.1 of the paper).

If fewer trials run concurrently than the population has, a trial is paused at each perturbation in
favor of the one with the least progress. Not covered: the mutations (`explore.py`), the order of
trials (`population.py`), the policy files (`pbt_replay.py`), and the transfer of weights (the
controller).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence

from syncline.suggestions import suggest_arguments
from syncline.train.metric_values import lookup
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import TRAINING_ITERATION, Config, Metrics
from syncline.tune.schedulers.explore import (
    Mutations,
    apply_custom_explore,
    check_mutations,
    explore,
    fill_missing,
    only_mutated,
)
from syncline.tune.schedulers.pbt_replay import (
    PolicyLog,
    PopulationBasedTrainingReplay,
    perturbed_tag,
)
from syncline.tune.schedulers.population import Member, Population
from syncline.tune.schedulers.trial_scheduler import ControllerView, MetricScheduler, waiting_trials
from syncline.tune.search.search_generator import SearchGenerator

__all__ = ["PopulationBasedTraining", "PopulationBasedTrainingReplay"]

logger = logging.getLogger(__name__)

_DRAWS = 20
"""Number of random donors to try before all are examined."""


@suggest_arguments
class PopulationBasedTraining(MetricScheduler):
    """Every `perturbation_interval`, continue trials of the lower quantile from a checkpoint of a
    trial of the upper quantile, with a mutation of its configuration. Trials must save and load
    checkpoints.

    Args:
        time_attr: Unit of the intervals: a key of results that does not decrease.
        metric: Metric that trials are compared by; may be given to `TuneConfig` instead.
        mode: `"min"` or `"max"`; may be given to `TuneConfig` instead.
        perturbation_interval: Time between two comparisons of a trial.
        burn_in_period: Time before the first comparison of a trial.
        hyperparam_mutations: By hyperparameter: a list of values, a search space, a function
            without arguments, or a dictionary of these. Trials whose configuration lacks a
            hyperparameter start with a random value.
        quantile_fraction: Size of the upper and of the lower quantile as a fraction of the
            population, 0 to 0.5.
        resample_probability: Probability that a hyperparameter is resampled instead of perturbed.
        perturbation_factors: Factors for the perturbation of numbers. Values of lists change to a
            neighbor.
        custom_explore_fn: Function from the mutated configuration to the one that is used.
        log_config: If True, write the policy files for `PopulationBasedTrainingReplay`.
        require_attrs: If True, each result must have `time_attr` and `metric`; otherwise results
            without them are ignored.
        synch: If True, compare all trials at the same time with a barrier.

    Raises:
        ValueError: A number is out of range, or there is nothing to mutate.
        TypeError: A mutation has an unsupported type.
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
        custom_explore_fn: Callable[[Config], Config] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        mutations = dict(hyperparam_mutations or {})
        check_mutations(mutations)
        if not mutations and custom_explore_fn is None:
            raise ValueError(
                f"{type(self).__name__} has nothing to mutate. Give `hyperparam_mutations`, such "
                f"as {{'lr': tune.loguniform(1e-4, 1e-1)}}, or `custom_explore_fn`."
            )
        if not 0 <= quantile_fraction <= 0.5:
            raise ValueError(
                f"quantile_fraction={quantile_fraction!r} must be between 0 and 0.5, so that the "
                f"upper and the lower quantile do not overlap."
            )
        if not perturbation_interval > 0:
            raise ValueError(
                f"perturbation_interval={perturbation_interval!r} must be more than 0, because "
                f"trials train between two perturbations."
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
        """Add the trial to the population and draw missing hyperparameters."""
        if isinstance(tune_controller.search_alg, SearchGenerator):
            raise ValueError(
                f"{type(self).__name__} changes configurations, so the searcher "
                f"{tune_controller.search_alg} would learn from configurations that trials did "
                f"not have: leave `search_alg` out."
            )
        self._check_properties()
        self._population.add(trial.trial_id, trial.experiment_tag)
        trial.evaluated_params.update(self._fill_missing(trial.config))

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> str:
        """Compare the trial if a comparison is due, and save or replace it."""
        if not self._require_attrs and not self._has_both(result):
            return self.CONTINUE
        time, score = self._required_time(trial, result), self._score(trial, result)
        member = self._population[trial.trial_id]
        if time < self._due_at(member):
            return self.CONTINUE
        member.awaits_weights = False
        self._record_score(trial, time, score)
        if self._synch:
            return self.PAUSE
        member.perturbed_at = time
        return self._perturb_alone(tune_controller, trial, int(result.get(TRAINING_ITERATION, 0)))

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> None:
        """Record the last score. Other trials may still clone the trial."""
        if trial.trial_id not in self._population:
            return
        if lookup(result, str(self._metric)) is not None:
            self._population.set_score(trial.trial_id, self._score(trial, result))
        self._population.end(trial.trial_id, may_be_cloned=True)

    def on_trial_error(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Exclude the trial from comparisons unless it is retried."""
        self._population.end(trial.trial_id, may_be_cloned=False)

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Exclude the trial from comparisons."""
        self._population.end(trial.trial_id, may_be_cloned=False)

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """Return the trial with the least progress. With `synch`, compare all trials first if all
        wait.
        """
        chosen = self._least_progress(tune_controller)
        if chosen is not None or not self._synch or not self._all_wait(tune_controller):
            return chosen
        self._perturb_all(tune_controller)
        return self._least_progress(tune_controller)

    def drain_policy_log(self) -> list[tuple[str, str]]:
        """Return and remove the (file name, line) pairs to append to the policy files, in order."""
        return self._policy_log.drain()

    def debug_string(self) -> str:
        """Return the number of checkpoints and of perturbations."""
        return (
            f"PopulationBasedTraining: {self._num_checkpoints} checkpoints, "
            f"{self._num_perturbations} perturbs"
        )

    # -- hooks of PB2

    def _fill_missing(self, config: Config) -> Config:
        """Draw what `config` lacks; return it by flat key."""
        return fill_missing(config, self._hyperparam_mutations, self._random)

    def _record_score(self, trial: Trial, time: float, score: float) -> None:
        """Record time and score of a trial at a comparison."""
        self._population.set_score(trial.trial_id, score)
        self._population.set_progress(trial.trial_id, time)

    def _new_config(self, trial: Trial, donor: Trial) -> Config:
        """Return the configuration of `trial` after the checkpoint of `donor`."""
        changed = explore(
            donor.config,
            self._hyperparam_mutations,
            resample_probability=self._resample_probability,
            factors=self._perturbation_factors,
            source=self._random,
        )
        return apply_custom_explore(self._custom_explore_fn, changed, self._random)

    # -- perturbations

    def _due_at(self, member: Member) -> float:
        if self._synch:
            return self._next_perturbation_sync
        return max(self._burn_in_period, member.perturbed_at + self._perturbation_interval)

    def _perturb_alone(self, controller: ControllerView, trial: Trial, iteration: int) -> str:
        quantile = self._population.quantile_of(trial.trial_id)
        donor = self._donor(controller, trial.trial_id) if quantile == "lower" else None
        if donor is not None:
            self._exploit(controller, trial, donor, iteration)
            return self.NOOP
        others_wait = next(waiting_trials(controller), None) is not None
        if quantile == "upper":
            self._num_checkpoints += 1
            if not others_wait:  # A pause would save the trial.
                controller.save_trial(trial)
        return self.PAUSE if others_wait else self.CONTINUE

    def _all_wait(self, controller: ControllerView) -> bool:
        """Return True if all unfinished trials are saved and wait for the next comparison."""
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
        quantiles = {trial_id: self._population.quantile_of(trial_id) for trial_id in waiting}
        for trial_id in waiting:
            self._population[trial_id].perturbed_at = now
            trial = controller.get_trial(trial_id)
            donor = self._donor(controller, trial_id) if quantiles[trial_id] == "lower" else None
            if trial is not None and donor is not None:
                self._exploit(
                    controller, trial, donor, trial.last_result.get(TRAINING_ITERATION, 0)
                )
        self._num_checkpoints += sum(quantile == "upper" for quantile in quantiles.values())
        while self._next_perturbation_sync <= self._population.most_progress():
            self._next_perturbation_sync += self._perturbation_interval

    def _donor(self, controller: ControllerView, trial_id: str) -> Trial | None:
        """Return a random trial of the upper quantile that has a better score and a checkpoint,
        preferably a live one.
        """
        size = self._population.quantile_size()
        # Random draws mostly succeed and avoid a loop over a large population.
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
        """Return the trial at a position from the top if `trial_id` can gain from it."""
        member, own = self._population.from_top(position), self._population[trial_id]
        donor = controller.get_trial(member.trial_id)
        if donor is None or donor.checkpoint is None:
            return None
        return donor if member.score_key[0] > own.score_key[0] else None

    def _exploit(
        self, controller: ControllerView, trial: Trial, donor: Trial, iteration: int
    ) -> None:
        member, source = self._population[trial.trial_id], self._population[donor.trial_id]
        config = self._new_config(trial, donor)
        logger.info(
            "Trial %s (score %s) continues from trial %s (score %s) with %s.",
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
        member.perturbed_at = self._continues_at(member, source, donor)
        self._population.set_progress(trial.trial_id, member.perturbed_at)
        self._num_perturbations += 1

    def _continues_at(self, member: Member, source: Member, donor: Trial) -> float:
        """Return the time from which a trial trains with its new configuration. Its iterations
        never decrease; other times are the donor's.
        """
        if self._time_attr == TRAINING_ITERATION:
            return max(member.trained_to, donor.checkpoint_iteration)
        return source.trained_to

    def _least_progress(self, controller: ControllerView) -> Trial | None:
        for member in self._population.by_progress():
            if self._synch and member.trained_to >= self._next_perturbation_sync:
                return None
            trial = controller.get_trial(member.trial_id)
            # A trial that waits for a donor's weights becomes pending when it has them.
            if trial is not None and (
                trial.status == Trial.PENDING
                or (trial.status == Trial.PAUSED and not member.awaits_weights)
            ):
                return trial
        return None
