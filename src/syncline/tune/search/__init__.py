"""What a search tries: spaces, and searchers that learn where in them to look.

Files, in the order in which a search uses them: `sample` (domains and how they are drawn;
`spec_view`, what functions among them see), `variant_generator` (from a space to configurations),
`search_algorithm` (what the controller asks for trials), `basic_variant` (grids and random draws),
`searcher` (what learns from results), `search_generator` (makes a source of trials of one;
`searcher_state` keeps it), `concurrency_limiter` and `repeater` (wrappers of searchers), a folder
for each library that is adapted, with `library_searcher` and `parameters`, which these share;
`util` (nested dictionaries). A library is imported when its searcher is first used.
"""

import difflib
import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from syncline.tune.search.basic_variant import BasicVariantGenerator
from syncline.tune.search.concurrency_limiter import ConcurrencyLimiter
from syncline.tune.search.repeater import Repeater
from syncline.tune.search.sample import (
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from syncline.tune.search.search_algorithm import SearchAlgorithm, Suggestion
from syncline.tune.search.search_generator import SearchGenerator
from syncline.tune.search.searcher import Searcher
from syncline.tune.search.variant_generator import grid_search


def _searcher_class(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"syncline.tune.search.{module}"), name)


SEARCH_ALG_IMPORT: dict[str, Callable[[], Any]] = {
    "variant_generator": partial(_searcher_class, "basic_variant", "BasicVariantGenerator"),
    "random": partial(_searcher_class, "basic_variant", "BasicVariantGenerator"),
    "ax": partial(_searcher_class, "ax", "AxSearch"),
    "hyperopt": partial(_searcher_class, "hyperopt", "HyperOptSearch"),
    "bayesopt": partial(_searcher_class, "bayesopt", "BayesOptSearch"),
    "bohb": partial(_searcher_class, "bohb", "TuneBOHB"),
    "nevergrad": partial(_searcher_class, "nevergrad", "NevergradSearch"),
    "optuna": partial(_searcher_class, "optuna", "OptunaSearch"),
    "zoopt": partial(_searcher_class, "zoopt", "ZOOptSearch"),
    "hebo": partial(_searcher_class, "hebo", "HEBOSearch"),
}
"""What loads the class of each searcher, by the names of `create_searcher`."""


def create_searcher(search_alg: str, **kwargs: Any) -> Any:
    """A searcher by name, in any case: "optuna", "hyperopt", "random", ...; see SEARCH_ALG_IMPORT.

    Keywords that the searcher does not take are left out, so that one program can try several by
    name. ValueError for an unknown name; ImportError if the searcher's library is not installed.
    """
    name = search_alg.lower()
    if name not in SEARCH_ALG_IMPORT:
        close = difflib.get_close_matches(name, SEARCH_ALG_IMPORT, n=1)
        hint = (
            f"did you mean {close[0]!r}?"
            if close
            else f"choose one of {', '.join(SEARCH_ALG_IMPORT)}."
        )
        raise ValueError(f"There is no searcher {search_alg!r}: {hint}")
    searcher = SEARCH_ALG_IMPORT[name]()
    parameters = inspect.signature(searcher).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return searcher(**kwargs)
    return searcher(**{key: value for key, value in kwargs.items() if key in parameters})


__all__ = [
    "SEARCH_ALG_IMPORT",
    "BasicVariantGenerator",
    "ConcurrencyLimiter",
    "Repeater",
    "SearchAlgorithm",
    "SearchGenerator",
    "Searcher",
    "Suggestion",
    "choice",
    "create_searcher",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "uniform",
]
