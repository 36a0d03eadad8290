"""`PopulationBasedTrainingReplay`: train one trial with the schedule of configurations that
population based training has found. `PolicyLog` and `read_policy` define the files of the schedule.

Each line of a policy file is a JSON list: tag of the changed trial, tag of its donor, iteration of
the trial, iteration of the donor's checkpoint, configuration of the donor, new configuration.
`pbt_global.txt` has all lines in order. `pbt_policy_<trial id>.txt` ends with the history of the
trial's present weights: the history of the donor, then the step from the donor to the trial.

Lines are only appended. A line without tags separates an older history from the present one;
readers follow the tags backwards and stop there. Not covered: writing the files (the controller).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from syncline.runs import json_values
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import TRAINING_ITERATION, Config, Metrics
from syncline.tune.schedulers.trial_scheduler import ControllerView, FIFOScheduler

GLOBAL_FILE = "pbt_global.txt"
_SEPARATOR = json.dumps([None, None, 0, 0, {}, {}])


class PopulationBasedTrainingReplay(FIFOScheduler):
    """Train a single trial, and change its configuration at the same iterations as in the search.

    Args:
        policy_file: Path of a file `pbt_policy_<trial id>.txt` of a search with
            `PopulationBasedTraining(log_config=True)`.

    Raises:
        ValueError: The file does not exist or is not a policy file.
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
        """Give the only trial the first configuration of the policy.

        Raises:
            ValueError: It is a second trial, or there is neither a policy nor a configuration.
        """
        if self._trial_id not in (None, trial.trial_id):
            raise ValueError(
                "PopulationBasedTrainingReplay trains one trial, but the search has more, which "
                "would all be equal. Set `num_samples=1`, and omit `param_space`."
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
                f"{self.policy_file} has no steps, and the trial has no configuration: give "
                f"`param_space`, or another file."
            )

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> str:
        """Pause the trial, which saves it, when the next change is due."""
        self._current_step = result.get(TRAINING_ITERATION, self._current_step)
        if (
            self._num_perturbations < len(self._policy)
            and self._current_step >= self._policy[self._num_perturbations][0]
        ):
            self._change_is_due = True
            return self.PAUSE
        return self.CONTINUE

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """Return the trial, after a change that is due."""
        trial = super().choose_trial_to_run(tune_controller)
        if trial is not None and trial.status == Trial.PAUSED and self._change_is_due:
            self._change(tune_controller, trial)
            return None  # The trial is pending once its checkpoint has been copied.
        return trial

    def debug_string(self) -> str:
        """Return the current iteration and the number of changes."""
        return (
            f"PopulationBasedTraining replay: Step {self._current_step}, "
            f"perturb {self._num_perturbations}"
        )

    def _change(self, controller: ControllerView, trial: Trial) -> None:
        """Continue the trial from its own checkpoint with the next configuration."""
        if trial.checkpoint is None:
            raise RuntimeError(
                f"Trial {trial} has no checkpoint at iteration {self._current_step}, so it cannot "
                f"continue with the next configuration of {self.policy_file}. Save a checkpoint "
                f"with every result."
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


def perturbed_tag(tag: str, values: Mapping[str, object]) -> str:
    """Return a trial's experiment tag with the changed values."""
    named = ",".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in values.items()
    )
    return f"{tag}@perturbed[{named}]"


class PolicyLog:
    """Lines of policy files that have not been written yet, and the history of each trial."""

    def __init__(self) -> None:
        self._histories: dict[str, tuple[str, ...]] = {}
        """By trial, the lines that led to its present weights."""
        self._unwritten: list[tuple[str, str]] = []

    def add(
        self,
        *,
        trial_id: str,
        donor_id: str,
        tags: tuple[str, str],
        iterations: tuple[int, int],
        config: Mapping[str, object],
        changed: object,
    ) -> None:
        """Record that a trial got the weights of a donor.

        Args:
            trial_id: Id of the changed trial.
            donor_id: Id of the donor.
            tags: Tags of trial and donor.
            iterations: Iterations of trial and donor.
            config: Configuration of the donor.
            changed: New configuration of the trial.
        """
        line = json_values.encode([*tags, *iterations, config, changed]).decode().rstrip("\n")
        own = policy_file(trial_id)
        if trial_id in self._histories:
            self._unwritten.append((own, _SEPARATOR))
        history = (*self._histories.get(donor_id, ()), line)
        self._histories[trial_id] = history
        self._unwritten += [(GLOBAL_FILE, line), *((own, earlier) for earlier in history)]

    def drain(self) -> list[tuple[str, str]]:
        """Return and remove the (file name, line) pairs to append, in order."""
        unwritten, self._unwritten = self._unwritten, []
        return unwritten


def policy_file(trial_id: str) -> str:
    """Return the name of a trial's policy file."""
    return f"pbt_policy_{trial_id}.txt"


def read_policy(lines: Iterable[str], name: str) -> tuple[Config | None, list[tuple[int, Config]]]:
    """Return the first configuration of a policy, None if it is empty, and (iteration,
    configuration) of each change.

    Args:
        lines: Lines of a policy file.
        name: Name of the file, for messages.

    Raises:
        ValueError: A line is malformed.
    """
    changes: list[tuple[int, Config]] = []
    first: Config | None = None
    expected: str | None = None
    for number, row in reversed(list(enumerate(lines, start=1))):
        if not row.strip():
            continue
        try:
            tag, donor_tag, _, donor_iteration, config, changed = json.loads(row)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name}, line {number}, is not a step of a PBT policy ({error}). Give the "
                f"`pbt_policy_….txt` of one trial that PopulationBasedTraining(log_config=True) "
                f"has written to the experiment directory."
            ) from None
        if expected is not None and tag != expected:
            break  # Earlier lines belong to an older history.
        expected = donor_tag
        first = config
        changes.append((donor_iteration, changed))
    return first, changes[::-1]


def read_policy_file(path: str) -> tuple[Config | None, list[tuple[int, Config]]]:
    """Return the policy (see `read_policy`) of a file on this machine.

    Raises:
        ValueError: The file does not exist or is not a policy file.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(
            f"{file} does not exist. Give the `pbt_policy_….txt` that a search with "
            f"PopulationBasedTraining has written."
        )
    return read_policy(file.read_text(encoding="utf-8").splitlines(), str(file))
