"""`TrialSettings`: settings of trials that no decision of the search depends on, and the names and
resources of a suggested trial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from syncline.train.checkpoint import Checkpoint
from syncline.tune.controller import events
from syncline.tune.controller.events import SearchRules
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import Config
from syncline.tune.search.search_algorithm import Suggestion
from syncline.tune.workers.pool import SerializedTrainable


@dataclass(frozen=True, kw_only=True)
class TrialSettings:
    """Settings of trials that no decision of the machine depends on."""

    experiment_name: str
    """Name of the search."""
    trainable: SerializedTrainable
    """The serialized trainable class."""
    resources: Callable[[Config], PlacementGroupFactory]
    """Returns the resources of a trial with a configuration."""
    name_of: Callable[[Trial], str] | None = None
    """Returns the display name of a trial."""
    directory_of: Callable[[Trial], str] | None = None
    """Returns the directory name of a trial."""
    reuse: bool = False
    """Run several trials in one process, one after the other."""
    isolated: bool = False
    """The same, with the process restored for each trial."""
    in_trial_directory: bool = False
    """Make the trial's directory the working directory of its process."""
    log_path_of: Callable[[str], str] | None = None
    """Returns the file for the output of a trial, by its id."""
    log_files: tuple[str, str] | None = None
    """Files in the trial's directory for its output and its errors."""
    budget_s: float | None = None
    """Time budget of the search in seconds."""
    first_checkpoint: Checkpoint | None = None
    """Checkpoint from which a trial without a checkpoint starts."""

    def suggested(
        self,
        trial_id: str,
        suggestion: Suggestion,
        rules: SearchRules,
        index: int,
        directories: set[str],
    ) -> events.TrialSuggested:
        """Return the event of a suggested trial, number `index` of the search. The name of its
        directory is added to `directories`.
        """
        # The functions of the program that name trials get this draft.
        draft = Trial(
            trial_id=trial_id,
            index=index,
            trainable_name=rules.trainable_name,
            config=suggestion.config,
            evaluated_params=suggestion.evaluated_params,
            experiment_tag=suggestion.tag,
            placement_group_factory=self.resources(suggestion.config),
            storage=rules.storage,
            checkpoint_config=rules.checkpoint_config,
        )
        if self.name_of is not None:
            draft.custom_trial_name = str(self.name_of(draft))
        wanted = str(self.directory_of(draft)) if self.directory_of is not None else draft.name
        directory = wanted.replace("/", "_").strip() or trial_id
        if directory in directories:  # a program may give several trials the same name
            directory = f"{directory}_{trial_id}"
        directories.add(directory)
        return events.TrialSuggested(
            trial_id=trial_id,
            config=suggestion.config,
            evaluated_params=suggestion.evaluated_params,
            tag=suggestion.tag,
            factory=draft.placement_group_factory,
            name=draft.custom_trial_name,
            directory=directory,
        )
