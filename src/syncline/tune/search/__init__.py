"""Search spaces, and the algorithms that choose configurations from them.

    spec_view.py          views of a configuration for functions in the space
    sample.py             domains and samplers: `uniform` to `sample_from`
    variant_generator.py  configurations from a space
    util.py               nested dictionaries
    searcher.py           base class of searchers and of searchers around another one, capture of
                          their state
    concurrency_limiter.py, repeater.py
                          searchers around another one
    search_algorithm.py   source of trials for the controller
    search_generator.py   source of trials from a searcher
    basic_variant.py      grid search and random search
    parameters.py         a space as a flat list of parameters, for libraries
    library_searcher.py   base class of searchers that use a library
    ax, bayesopt, bohb, hebo, hyperopt, nevergrad, optuna, zoopt
                          one searcher each for the library of this name

A library is imported when its searcher is created.
"""

import inspect
from collections.abc import Callable
from typing import Any

from syncline.suggestions import did_you_mean
from syncline.tune.search.ax import AxSearch
from syncline.tune.search.basic_variant import BasicVariantGenerator
from syncline.tune.search.bayesopt import BayesOptSearch
from syncline.tune.search.bohb import TuneBOHB
from syncline.tune.search.concurrency_limiter import ConcurrencyLimiter
from syncline.tune.search.hebo import HEBOSearch
from syncline.tune.search.hyperopt import HyperOptSearch
from syncline.tune.search.nevergrad import NevergradSearch
from syncline.tune.search.optuna import OptunaSearch
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
from syncline.tune.search.zoopt import ZOOptSearch

SEARCH_ALG_IMPORT: dict[str, Callable[[], Callable[..., Any]]] = {
    "variant_generator": lambda: BasicVariantGenerator,
    "random": lambda: BasicVariantGenerator,
    "ax": lambda: AxSearch,
    "hyperopt": lambda: HyperOptSearch,
    "bayesopt": lambda: BayesOptSearch,
    "bohb": lambda: TuneBOHB,
    "nevergrad": lambda: NevergradSearch,
    "optuna": lambda: OptunaSearch,
    "zoopt": lambda: ZOOptSearch,
    "hebo": lambda: HEBOSearch,
}
"""Functions that return the class of a searcher, by the names for `create_searcher`."""


def create_searcher(search_alg: str, **kwargs: Any) -> Any:
    """Create a searcher by its case-insensitive name, such as "optuna" or "random".

    Options that the searcher lacks are ignored, so that the name can be changed alone.

    Args:
        search_alg: A key of `SEARCH_ALG_IMPORT`.
        **kwargs: Options of the searcher.

    Raises:
        ValueError: The name is unknown.
        ImportError: The library of the searcher is not installed.
    """
    name = search_alg.lower()
    if name not in SEARCH_ALG_IMPORT:
        raise ValueError(
            f"There is no searcher {search_alg!r}.{did_you_mean(name, SEARCH_ALG_IMPORT)} There "
            f"are {', '.join(SEARCH_ALG_IMPORT)}."
        )
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
