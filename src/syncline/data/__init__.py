"""Streaming datasets: reading, transforming, shuffling and feeding rows to training.

Files, in the order in which data flows through them. What rows are: `tensors` (ndarrays and objects
as Arrow columns), `columns` (one column: Python values, ndarrays, Arrow), `schemas` (types that
have to meet), `datatype` (types as programs write them), `frames` (pandas), `block` (a piece of a
dataset: rows and batches to tables and back), `accessor` (blocks as sinks of programs see them).

How they come in: `context` (settings), `keywords` and `options` (arguments that many functions
share), `filesystem`, `optional` (libraries that are loaded when used), `sources/` and `datasource`,
then `read`, `read_files`, `from_memory`, `from_libraries`, which make datasets.

What is done with them: `dataset` and `grouped` (the handles that programs hold, with the methods in
`methods/`), `expressions/`, `aggregate/` and `compute` (what and how to compute, as data), `plan/`
(nodes, rules, lowering), `execute/` (the streaming executor), `cache` (what `Dataset.cache` keeps),
`kernels/` (pure functions on tables).

How they go out: `iterator` and `feeds` with `iterate/`, `split/` and `collate_fn` (loops, batches,
cursors, ranks), `writing` and `write_job` with `sinks/` (files and databases), `converting` (other
libraries); `preprocessor` and `preprocessors/` (what is fitted to a dataset and applied to others).
`api` has all names of this package; they load when the first of them is used.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncline.data.api import *


def __getattr__(name: str) -> Any:
    """A module of this package, or one of the names in `api`."""
    if not name.startswith("__") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__all__" or not name.startswith("__"):
        value = getattr(importlib.import_module("syncline.data.api"), name, None)
        if value is not None:
            globals()[name] = value  # the next time it is simply there
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module("syncline.data.api").__all__})
