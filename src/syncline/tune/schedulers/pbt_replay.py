"""`PopulationBasedTrainingReplay`: train one trial with the schedule of configurations that
population based training has found.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.tune.experiment.trial import Trial
from syncline.tune.result import TRAINING_ITERATION
from syncline.tune.schedulers.policy_log import read_policy_file
from syncline.tune.schedulers.trial_scheduler import FIFOScheduler

if TYPE_CHECKING:
    from syncline.tune.schedulers.trial_scheduler import ControllerView


class PopulationBasedTrainingReplay(FIFOScheduler):
    """Trains a single trial, and changes its configuration at the iterations at which those of its
    model were changed.

    Args:
        policy_file: `pbt_policy_<trial id>.txt` of a search with
        `PopulationBasedTraining(log_config=True)`.

    Raises:
        ValueError: The file is not there, or is none of a policy.
    """

    def __init__(self, policy_file: str) -> None:
        super().__init__()
        self.policy_file = str(Path(policy_file).expanduser())
        self.config, self._policy = read_policy_file(policy_file)
        self.current_config = self.config
        self.experiment_tag = f"replay_{Path(self.policy_file).name}"
        self._trial_id: str | None = None
        self._current_step = 0
        self._num_perturbations = 0
        self._change_is_due = False

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """The one trial gets the first configuration of the policy.

        Raises:
            ValueError: It is a second trial, or there is neither a policy nor a configuration.
        """
        if self._trial_id not in (None, trial.trial_id):
            raise ValueError(
                "PopulationBasedTrainingReplay trains one trial, but the search has more: they would all be the same. Set `num_samples=1`, "
                "and leave out `param_space`."
            )
        if self._trial_id is not None:
            return
        self._trial_id = trial.trial_id
        if self._policy and self.config is not None:
            trial.config = dict(self.config)
        elif trial.config:
            self.config = self.current_config = trial.config
        else:
            raise ValueError(
                f"{self.policy_file} has no steps, and the trial has no configuration: give `param_space`, or another file."
            )

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        """Pause it where the next change is due."""
        self._current_step = result.get(TRAINING_ITERATION, self._current_step)
        if (
            self._num_perturbations < len(self._policy)
            and self._current_step >= self._policy[self._num_perturbations][0]
        ):
            self._change_is_due = True
            return self.PAUSE  # which saves it; the change comes when that is done
        return self.CONTINUE

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """The trial, after the change that is due."""
        trial = super().choose_trial_to_run(tune_controller)
        if trial is not None and trial.status == Trial.PAUSED and self._change_is_due:
            self._change(tune_controller, trial)
            return None  # it is pending when it has its checkpoint
        return trial

    def debug_string(self) -> str:
        """Where it is."""
        return f"PopulationBasedTraining replay: Step {self._current_step}, perturb {self._num_perturbations}"

    def _change(self, controller: ControllerView, trial: Trial) -> None:
        """The trial goes on from its own checkpoint with the next configuration."""
        if trial.checkpoint is None:
            raise RuntimeError(
                f"Trial {trial} has no checkpoint at iteration {self._current_step}, so it cannot go on from there with the next "
                f"configuration of {self.policy_file}: save a checkpoint with every result."
            )
        self._change_is_due = False
        _, self.current_config = self._policy[self._num_perturbations]
        self._num_perturbations += 1
        controller.exploit(
            trial,
            trial,
            config=self.current_config,
            tag=perturbed_tag(self.experiment_tag, self.current_config),
        )


def perturbed_tag(tag: str, values: Mapping[str, Any]) -> str:
    """A trial's experiment tag with the values that were changed."""
    named = ",".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in values.items()
    )
    return f"{tag}@perturbed[{named}]"
