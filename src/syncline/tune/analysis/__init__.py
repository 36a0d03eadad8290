"""Results of a search.

Files, in the order in which data flows through them:

trial_result.py          `Result` of one trial; results as pandas tables
experiment_analysis.py   `ExperimentAnalysis` of all trials
"""

from syncline.tune.analysis.experiment_analysis import ExperimentAnalysis

__all__ = ["ExperimentAnalysis"]
