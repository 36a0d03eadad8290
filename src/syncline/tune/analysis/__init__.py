"""What came of a search: `ExperimentAnalysis` over its trials.

`history` reads what a trial has written about each of its results, `choosing` finds the best trial and says what is wrong with a metric,
`tables` makes pandas tables, `trial_result` is one trial as a `Result`, `experiment_analysis` puts them together.
"""

from syncline.tune.analysis.experiment_analysis import ExperimentAnalysis

__all__ = ["ExperimentAnalysis"]
