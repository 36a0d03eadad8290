"""Streaming datasets: read, transform, shuffle and feed rows to training.

Files, in the order in which data flows through them. Programs hold handles: `context` (settings),
`read`, `read_tables`, `read_shards` and `from_memory` (functions that create datasets), `dataset`,
`grouped_data` and `iterator` (handles), `collate_fn` (base classes of collate functions),
`preprocessor` and `preprocessors/` (fitted to one dataset, applied to others), `options` (keyword
arguments that functions share).

Five wings implement them: `columnar/` (blocks, columns, tensors, expressions, aggregators,
kernels), `io/` (sources, sinks, filesystems, conversion), `plan/` (nodes, rules, lowering),
`execute/` (the streaming executor, queries, caches), `iterate/` (batches, cursors, sharding over
ranks).

`aggregate`, `block`, `datasource/`, `datatype`, `exceptions`, `expressions` and `_internal/` only
re-export the names of these modules in Ray; `extensions/` has tensors and objects as columns of
Arrow and pandas, and `llm/` runs language models on datasets. `api` has all names of this package;
they load on first use.
"""

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from syncline.optional import without_collections
from syncline.suggestions import missing_attribute

if TYPE_CHECKING:
    from syncline.data.api import *

# Readers of Ray Data that are not offered: what programs write instead.
_INSTEAD = {
    "read_hudi": "read the table with the library `hudi` (HudiTableBuilder.from_base_uri(uri)."
    "build().read_snapshot()) and pass the result to from_arrow",
    "read_bigquery": "read_sql with google.cloud.bigquery.dbapi.connect, or export to Parquet",
    "read_snowflake": "read_sql with snowflake.connector.connect",
    "read_clickhouse": "read_sql with clickhouse_connect.dbapi.connect",
    "read_databricks_tables": "read_sql with databricks.sql.connect, or read_delta with the path",
    "read_unity_catalog": "read_delta with the path of the table and its storage_options",
    "read_delta_sharing_tables": "delta_sharing.load_as_pandas and from_pandas",
    "read_mcap": "read_binary_files, and flat_map with mcap.reader.make_reader",
    "read_lerobot": "read_parquet for the frames' values and read_videos for the frames",
}


def __getattr__(name: str) -> Any:
    """Load a module of this package, or a name in `api`."""
    if not name.startswith("__") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__all__" or not name.startswith("__"):
        with without_collections():
            api = importlib.import_module("syncline.data.api")
        value = getattr(api, name, None)
        if value is not None:
            globals()[name] = value
            return value
    if name in _INSTEAD:
        raise AttributeError(f"syncline.data has no {name}. Use instead: {_INSTEAD[name]}")
    raise missing_attribute(sys.modules[__name__], name)


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module("syncline.data.api").__all__})
