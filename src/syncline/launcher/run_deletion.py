"""`delete_run`: deletes a run and, if it is an experiment, the reference of git to its files."""

from __future__ import annotations

from syncline.launcher.working_tree import GitError, WorkingTree
from syncline.runs.annotations import delete_run as delete_directory
from syncline.runs.experiments import EXPERIMENT_FILE, experiment_of
from syncline.runs.run_storage import StorageDirectory


def delete_run(run: StorageDirectory) -> None:
    """Delete the directory of a run, and the reference `refs/syncline/RUN` of an experiment. The
    caller has made sure that the run is not running.

    The reference is deleted first, so that the call can be repeated. It is left if it keeps other
    files than those of this run, or if the repository no longer exists.

    Raises:
        ValueError: The directory holds no run, or git cannot delete the reference.
        OSError: A file cannot be deleted; files deleted before it are lost.
    """
    experiment = experiment_of(run.read_range(EXPERIMENT_FILE, 0))
    if experiment is not None and experiment.tree is not None:
        tree = WorkingTree.around(experiment.directory, without=run.path)
        try:
            if tree is not None:
                tree.forget(experiment.tree, experiment.run)
        except GitError as error:
            raise ValueError(
                f"{run.path} is not deleted, because the reference to its files "
                f"`refs/syncline/{experiment.run}` cannot be deleted. Repair the repository, or "
                f"delete the directory of the run by other means. Error of git: {error}"
            ) from error
    delete_directory(run)
