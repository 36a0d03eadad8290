"""What a search trains: `trainable` (classes; `progress` counts, `saved` is what lies in their
checkpoints), `function_trainable` (functions; `session` is what `report` reaches in them), `util`
(with parameters, with resources), `names`, and `facts`, what they know of their trial.
"""

from syncline.tune.trainable.function_trainable import FunctionTrainable, wrap_function
from syncline.tune.trainable.trainable import Trainable
from syncline.tune.trainable.util import with_parameters, with_resources

__all__ = ["FunctionTrainable", "Trainable", "with_parameters", "with_resources", "wrap_function"]
