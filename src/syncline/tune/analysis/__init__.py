"""What came of a search: `ExperimentAnalysis` over its trials.

`tables` makes pandas tables, `trial_result` is one trial as a `Result`, `experiment_analysis` puts
them together.
"""

from syncline.tune.analysis.experiment_analysis import ExperimentAnalysis

__all__ = ["ExperimentAnalysis"]
