"""`ShortTrials`: results of trials that end within their batch. They go to one file of the search
(`results_file`) instead of files in a directory for each trial, which take most of the time.
"""

from __future__ import annotations

from syncline.tune.controller import events
from syncline.tune.experiment.trial import Trial
from syncline.tune.logger.json import encode
from syncline.tune.logger.write_files import write_files
from syncline.tune.plain_pickle import is_plain
from syncline.tune.result import CONFIG, Metrics
from syncline.tune.results_file import ResultsFile, read_results
from syncline.tune.workers import messages


class ShortTrials:
    """Takes the notifications of short trials in place of the default loggers. Not thread-safe.

    Args:
        file: The file of the search.
    """

    def __init__(self, file: ResultsFile) -> None:
        self._file = file
        self._results: dict[str, list[bytes]] = {}

    def expect(self, trial: Trial, outcome: messages.Stepped) -> None:
        """Take the notifications of a trial that ended in its first batch with this outcome, from
        its start to its end.
        """
        is_new = not trial.last_result and not trial.num_failures and trial.checkpoint is None
        # Others lose information as JSON, for example an image for TensorBoard.
        if is_new and all(map(_is_plain, (outcome.result, *outcome.earlier))):
            self._results[trial.trial_id] = []

    def take(self, do: events.NotifyCallbacks, trial: Trial) -> bool:
        """Take a notification; return False if it is for the loggers, because the trial has a
        process of its own, or because its files are to be written now.
        """
        results = self._results.get(trial.trial_id)
        if results is None:
            if do.hook in ("start", "restore", "error"):
                self._leave_to_loggers(trial)
            return False
        if do.hook == "result":
            assert isinstance(do.subject, dict), do
            results.append(encode(do.subject))
        elif do.hook == "complete":
            del self._results[trial.trial_id]
            self._file.append(trial, results)
        elif do.hook != "start":
            raise AssertionError(f"a short trial only starts, reports and ends: {do}")
        return True

    def _leave_to_loggers(self, trial: Trial) -> None:
        """Write the files of a trial that the loggers continue."""
        if trial not in self._file:
            return
        if trial.last_result:
            earlier = read_results(trial.storage.storage_filesystem, trial.path)
            if earlier is not None:
                write_files(trial, earlier)
        self._file.leave_to_directory(trial)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _is_plain(result: Metrics) -> bool:
    return all(is_plain(value) for key, value in result.items() if key != CONFIG)
