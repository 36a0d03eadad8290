"""Names and signatures of `syncline.data`: those of `ray.data` 2.60, recorded in
`ray_data_signatures.json`.
"""

import importlib
import inspect
import json
import subprocess
import sys
from enum import Enum
from pathlib import Path

import pytest

import syncline.data
from syncline.data.io.sources.partitioning import HIVE

RECORDED = json.loads(Path(__file__).with_name("ray_data_signatures.json").read_text())

# Where a default differs: webp images are read as well.
OTHER_DEFAULTS = {("read_images", "file_extensions")}

# Of `ray.data.__all__`; the others belong to formats and services that are not covered.
NAMES = [
    "ActorPoolStrategy",
    "BlockBasedFileDatasink",
    "DataContext",
    "DataIterator",
    "Dataset",
    "DatasetContext",
    "DatasetIterator",
    "DatasetSummary",
    "Datasink",
    "Datasource",
    "ExecutionOptions",
    "ExecutionResources",
    "FileShuffleConfig",
    "MixStoppingCondition",
    "NodeIdStr",
    "Preprocessor",
    "RandomSeedConfig",
    "ReadTask",
    "RowBasedFileDatasink",
    "SaveMode",
    "Schema",
    "TaskPoolStrategy",
    *(name for name in RECORDED if not name.startswith("Dataset.")),
]


def found(name: str):
    value = syncline.data
    for part in name.split("."):
        value = getattr(value, part)
    return value


def plain(default):
    if default is HIVE:
        return "HIVE"
    if isinstance(default, Enum):
        return default.value
    return list(default) if isinstance(default, tuple) else default


@pytest.mark.parametrize("name", sorted(NAMES))
def test_public_name(name):
    assert getattr(syncline.data, name) is not None
    assert name in syncline.data.__all__
    assert name in dir(syncline.data)


def test_all_names_exist():
    assert [name for name in syncline.data.__all__ if not hasattr(syncline.data, name)] == []


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("block", ["Block", "BlockAccessor", "BlockMetadata"]),
        ("exceptions", ["UserCodeException"]),
        ("grouped_data", ["GroupedData"]),
        ("datatype", ["DataType"]),
        ("context", ["DataContext"]),
        ("dataset", ["Dataset", "MaterializedDataset", "Schema"]),
        ("iterator", ["DataIterator"]),
        ("aggregate", ["AggregateFn", "AggregateFnV2", "Sum"]),
        ("datasource", ["Datasource", "ReadTask", "BlockBasedFileDatasink", "FilenameProvider"]),
        ("datasource", ["WriteResult", "RangeDatasource", "RandomIntRowDatasource"]),
        ("datasource.datasink", ["Datasink", "WriteResult", "WriteReturnType"]),
        ("datasource.datasource", ["Datasource", "ReadTask", "RandomIntRowDatasource"]),
        ("datasource.file_based_datasource", ["FileBasedDatasource", "FileShuffleConfig"]),
        ("datasource.file_datasink", ["BlockBasedFileDatasink", "RowBasedFileDatasink"]),
        ("datasource.filename_provider", ["FilenameProvider"]),
        ("datasource.partitioning", ["Partitioning", "PathPartitionFilter"]),
        ("_internal.util", ["_check_import", "call_with_retry", "iterate_with_retry", "MiB"]),
        ("preprocessor", ["Preprocessor", "PreprocessorNotFittedException"]),
        ("collate_fn", ["ArrowBatchCollateFn", "NumpyBatchCollateFn", "PandasBatchCollateFn"]),
    ],
)
def test_modules_that_programs_import_names_from(module, names):
    found_in = importlib.import_module(f"syncline.data.{module}")
    assert [name for name in names if not hasattr(found_in, name)] == []
    assert not hasattr(found_in, "no_such_name")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="read_parqet"):
        _ = syncline.data.read_parqet


@pytest.mark.parametrize(
    ("name", "instead"), [("read_hudi", "HudiTableBuilder"), ("read_snowflake", "read_sql")]
)
def test_readers_that_are_not_offered_say_what_to_use(name, instead):
    with pytest.raises(AttributeError, match=f"syncline.data has no {name}. Use .*{instead}"):
        getattr(syncline.data, name)


@pytest.mark.parametrize("name", RECORDED)
def test_signature_has_every_parameter_that_programs_pass_to_ray(name):
    recorded = RECORDED[name]
    parameters = [
        parameter
        for parameter in inspect.signature(found(name)).parameters.values()
        if parameter.name != "self"
    ]
    by_name = {parameter.name: parameter for parameter in parameters}
    positional = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    assert positional == list(recorded["positional"])
    for parameter, default in {**recorded["positional"], **recorded["keyword"]}.items():
        assert parameter in by_name
        if (name, parameter) not in OTHER_DEFAULTS:
            mine = by_name[parameter].default
            assert ("REQUIRED" if mine is inspect.Parameter.empty else plain(mine)) == default
    rest = [parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD]
    assert rest == ([recorded["rest"]] if recorded["rest"] else [])


def test_import_leaves_heavy_libraries_for_later():
    program = (
        "import sys, syncline.data; print(*[name for name in ('torch', 'pandas', 'ray', 'dask', "
        "'PIL') if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert answer.stdout.strip() == ""


def test_methods_of_earlier_versions_say_what_replaces_them():
    ds = syncline.data.range(2)
    with pytest.raises(AttributeError, match="leave out the windows"):
        ds.window(blocks_per_window=2)
    with pytest.raises(AttributeError, match="Did you mean 'map_batches'"):
        ds.map_batch(len)
    assert not hasattr(ds, "repeat")
    assert not hasattr(ds, "__array__")


def test_calls_of_connectors_are_retried():
    util = importlib.import_module("syncline.data._internal.util")
    calls = []

    def values():
        calls.append(len(calls))
        yield 1
        if len(calls) < 3:
            raise ValueError("lost the table")
        yield 2

    retried = util.iterate_with_retry(values, "reading", match=["lost"], max_backoff_s=0.001)
    assert list(retried) == [1, 2]
    assert len(calls) == 3
    with pytest.raises(ZeroDivisionError):
        util.call_with_retry(lambda: 1 / 0, "dividing", match=["lost"])
    with pytest.raises(ImportError, match="pip install 'some-package'"):
        util._check_import(util, module="no_such_module", package="some-package")
