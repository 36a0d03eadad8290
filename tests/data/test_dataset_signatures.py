"""The methods of datasets have the names, parameters and defaults of Ray 2.60, recorded here, and
nothing is missing.
"""

import enum
import inspect
from typing import Any

import pytest

from syncline.data.dataset import Dataset
from syncline.data.grouped_data import GroupedData

# Sorted behind the positional parameters. WORKER, FUNCTION and BATCHES stand for parameters that
# many methods share.
SHARED = {
    "WORKER": (
        "accelerator_type=None fallback_strategy=None label_selector=None max_calls=None "
        "memory=None num_cpus=None num_gpus=None "
        "resources=None runtime_env=None"
    ),
    "FUNCTION": (
        "compute=None concurrency=None fn_args=None fn_constructor_args=None "
        "fn_constructor_kwargs=None fn_kwargs=None "
        "ray_remote_args_fn=None"
    ),
    "BATCHES": (
        "drop_last=False local_shuffle_buffer_size=None local_shuffle_seed=None prefetch_batches=1"
    ),
}
OWN = {"timeout_s", "on_error"}

DATASET = {
    "add_column": (
        "col fn * batch_format='pandas' compute=None concurrency=None **ray_remote_args WORKER"
    ),
    "aggregate": "*aggs",
    "columns": "fetch_if_missing=True",
    "count": "",
    "deserialize_lineage": "serialized_ds",
    "drop_columns": "cols * compute=None concurrency=None **ray_remote_args WORKER",
    "explain": "",
    "filter": "fn=None expr=None * **ray_remote_args WORKER FUNCTION",
    "flat_map": "fn * **ray_remote_args WORKER FUNCTION",
    "get_internal_block_refs": "",
    "groupby": "key num_partitions=None",
    "has_serializable_lineage": "",
    "input_files": "",
    "iter_batches": "* batch_format='default' batch_size=256 BATCHES",
    "iter_jax_batches": (
        "* batch_size=256 collate_fn=None dtypes=None paddings=None synchronize_batches=False "
        "BATCHES"
    ),
    "iter_rows": "",
    "iter_tf_batches": "* batch_size=256 dtypes=None BATCHES",
    "iter_torch_batches": (
        "* batch_size=256 collate_fn=None device='auto' dtypes=None pin_memory=False BATCHES"
    ),
    "iterator": "",
    "join": (
        "ds join_type num_partitions on=('id',) right_on=None left_suffix=None "
        "right_suffix=None * aggregator_ray_remote_args=None partition_size_hint=None "
        "validate_schemas=False"
    ),
    "limit": "limit",
    "map": "fn * **ray_remote_args WORKER FUNCTION",
    "map_batches": (
        "fn * batch_format='default' batch_size=None udf_modifying_row_count=True "
        "zero_copy_batch=True **ray_remote_args WORKER FUNCTION"
    ),
    "materialize": "",
    "max": "on=None ignore_nulls=True",
    "mean": "on=None ignore_nulls=True",
    "min": "on=None ignore_nulls=True",
    "mix": "*other stopping_condition=STOP_ON_LONGEST_DROP weights=None",
    "num_blocks": "",
    "random_sample": "fraction * seed=None",
    "random_shuffle": "* num_blocks=None seed=None **ray_remote_args",
    "randomize_block_order": "* seed=None",
    "rename_columns": "names * concurrency=None **ray_remote_args WORKER",
    "repartition": (
        "num_blocks=None target_num_rows_per_block=None * keys=None shuffle=False sort=False "
        "strict=False"
    ),
    "schema": "fetch_if_missing=True",
    "select_columns": "cols * compute=None concurrency=None **ray_remote_args WORKER",
    "serialize_lineage": "",
    "set_name": "name",
    "show": "limit=20",
    "size_bytes": "",
    "sort": "key descending=False boundaries=None",
    "split": "n * equal=False locality_hints=None",
    "split_at_indices": "indices",
    "split_proportionately": "proportions",
    "stats": "",
    "std": "on=None ddof=1 ignore_nulls=True",
    "streaming_split": "n * equal=False locality_hints=None",
    "streaming_train_test_split": (
        "test_size * hash_column=None seed=None split_type='random' **ray_remote_kwargs"
    ),
    "sum": "on=None ignore_nulls=True",
    "summary": "columns=None override_dtype_agg_mapping=None",
    "take": "limit=20",
    "take_all": "limit=None",
    "take_batch": "batch_size=20 * batch_format='default'",
    "train_test_split": "test_size * seed=None shuffle=False stratify=None",
    "union": "*other",
    "unique": "column ignore_nulls=False",
    "with_column": "column_name expr * compute=None **ray_remote_args WORKER",
    "with_columns": "exprs=None *more_exprs compute=None **ray_remote_args WORKER",
    "zip": "*other",
}
GROUPED = {
    "aggregate": "*aggs",
    "count": "",
    "map_groups": (
        "fn * batch_format='default' memory=None num_cpus=None num_gpus=None zero_copy_batch=True "
        "**ray_remote_args FUNCTION"
    ),
    "max": "on=None ignore_nulls=True",
    "mean": "on=None ignore_nulls=True",
    "min": "on=None ignore_nulls=True",
    "std": "on=None ddof=1 ignore_nulls=True",
    "sum": "on=None ignore_nulls=True",
    "with_column": "column_name expr **ray_remote_args",
}


def parameters(recorded: str) -> tuple[list[str], set[str]]:
    """Positional ones in order, and the others."""
    for name, shared in SHARED.items():
        recorded = recorded.replace(name, shared)
    words = recorded.split()
    keywords = next(
        (number for number, word in enumerate(words) if word.startswith("*")), len(words)
    )
    if (
        keywords < len(words)
        and words[keywords] not in ("*",)
        and not words[keywords].startswith("**")
    ):
        keywords += 1
    return words[:keywords], set(words[keywords:]) - {"*"}


def of_method(method: Any) -> tuple[list[str], set[str]]:
    positional, others = [], set()
    for parameter in inspect.signature(method).parameters.values():
        default = (
            parameter.default.name
            if isinstance(parameter.default, enum.Enum)
            else repr(parameter.default)
        )
        text = (
            parameter.name
            if parameter.default is parameter.empty
            else f"{parameter.name}={default}"
        )
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional.append(f"*{parameter.name}")
        elif parameter.kind is parameter.VAR_KEYWORD:
            others.add(f"**{parameter.name}")
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.name not in OWN:
                others.add(text)
        elif parameter.name != "self":
            positional.append(text)
    return positional, others


@pytest.mark.parametrize("name", DATASET)
def test_methods_of_datasets_take_what_rays_take(name: str) -> None:
    assert of_method(getattr(Dataset, name)) == parameters(DATASET[name])


@pytest.mark.parametrize("name", GROUPED)
def test_methods_of_groups_take_what_rays_take(name: str) -> None:
    assert of_method(getattr(GroupedData, name)) == parameters(GROUPED[name])


@pytest.mark.parametrize(
    "method",
    [Dataset.map, Dataset.map_batches, Dataset.flat_map, Dataset.filter, GroupedData.map_groups],
)
def test_functions_may_have_a_time_limit_and_a_policy(method: Any) -> None:
    shown = inspect.signature(method).parameters
    assert shown["timeout_s"].default is None
    assert shown["on_error"].default == "raise"


def test_every_public_method_says_what_it_does() -> None:
    for cls, names in ((Dataset, DATASET), (GroupedData, GROUPED)):
        assert [name for name in names if not inspect.getdoc(getattr(cls, name))] == []
