"""Trials (`trial`) and the older definition of a search (`experiment`)."""

from syncline.tune.experiment.experiment import Experiment
from syncline.tune.experiment.trial import Trial

__all__ = ["Experiment", "Trial"]
