"""Nested dictionaries, waiting for a GPU, and checks of trainables: the names of
`ray.tune.utils.util` and of `ray._private.dict`.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeAlias

from syncline.core import api
from syncline.core.remote import remote
from syncline.optional import load
from syncline.tune.result import TRAINING_ITERATION
from syncline.tune.search.spec_view import Value
from syncline.tune.trainable import Trainable

logger = logging.getLogger("syncline")

Nested: TypeAlias = dict[Any, Value]


def flatten_dict(
    dt: Mapping[Any, Value],
    delimiter: str = "/",
    prevent_delimiter: bool = False,
    flatten_list: bool = False,
) -> Nested:
    """Flatten nested dictionaries: `{"a": {"b": 1}}` becomes `{"a/b": 1}`. Empty ones are left out.

    Args:
        dt: The dictionary, which stays as it is.
        delimiter: Text between two keys.
        prevent_delimiter: Refuse keys that contain the delimiter.
        flatten_list: Flatten lists, too; their keys are indices.

    Raises:
        ValueError: A key contains the delimiter.
    """
    flat: Nested = {}
    for key, value in dt.items():
        _check_delimiter(key, delimiter, prevent_delimiter)
        inner = dict(enumerate(value)) if flatten_list and isinstance(value, list) else value
        if not isinstance(inner, dict):
            flat[key] = value
            continue
        for below, leaf in flatten_dict(inner, delimiter, False, flatten_list).items():
            flat[f"{key}{delimiter}{below}"] = leaf
        if prevent_delimiter and inner is value:
            for below in inner:
                _check_delimiter(below, delimiter, prevent_delimiter)
    return flat


def _check_delimiter(key: Any, delimiter: str, prevent: bool) -> None:
    if prevent and delimiter in str(key):
        raise ValueError(
            f"the key {key!r} contains {delimiter!r}, the delimiter of flat keys: rename it, or "
            "pass another `delimiter`"
        )


def unflatten_dict(dt: Mapping[str, Value], delimiter: str = "/") -> Nested:
    """Nest a flat dictionary: `{"a/b": 1}` becomes `{"a": {"b": 1}}`.

    Raises:
        TypeError: A key has both a value and nested keys.
    """
    nested: Nested = {}
    for key, value in dt.items():
        *parents, last = key.split(delimiter)
        inner = nested
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise TypeError(
                    f"{key!r} needs a dictionary at {parent!r}, which has the value {inner!r}: "
                    "rename one of the two keys"
                )
        inner[last] = value
    return nested


def unflattened_lookup(
    flat_key: str,
    lookup: Mapping[str, Value] | Sequence[Value],
    delimiter: str = "/",
    **kwargs: Any,
) -> Value:
    """Return the value at a flat key, `lookup["a"]["b"]` for "a/b"; a key itself comes first.

    Args:
        flat_key: The key; parts of it are indices of lists.
        lookup: The nested dictionary.
        delimiter: Text between two keys.
        **kwargs: `default`, the value if there is none.

    Raises:
        KeyError: There is no value, and no default.
    """
    if isinstance(lookup, Mapping) and flat_key in lookup:
        return lookup[flat_key]
    key, _, rest = flat_key.partition(delimiter)
    try:
        found = lookup[key] if isinstance(lookup, Mapping) else lookup[int(key)]
    except (LookupError, ValueError, TypeError):
        if "default" in kwargs:
            return kwargs["default"]
        raise KeyError(f"there is no {flat_key!r} in {lookup!r}") from None
    return unflattened_lookup(rest, found, delimiter, **kwargs) if rest else found


def merge_dicts(d1: Mapping[Any, Value], d2: Mapping[Any, Value]) -> Nested:
    """Return a copy of `d1` with the values of `d2`; dictionaries in both are merged."""
    return deep_update(copy.deepcopy(dict(d1)), d2, new_keys_allowed=True)


def deep_update(
    original: Nested,
    new_dict: Mapping[Any, Value],
    new_keys_allowed: bool = False,
    allow_new_subkey_list: Sequence[str] | None = None,
    override_all_if_type_changes: Sequence[str] | None = None,
    override_all_key_list: Sequence[str] | None = None,
) -> Nested:
    """Set values of a nested dictionary in place, and return it.

    Args:
        original: The dictionary.
        new_dict: New values; dictionaries in both are merged.
        new_keys_allowed: Accept keys that `original` lacks.
        allow_new_subkey_list: Keys below which new keys are accepted.
        override_all_if_type_changes: Keys whose dictionary is replaced if its `type` changes.
        override_all_key_list: Keys whose dictionary is always replaced.

    Raises:
        Exception: A key is new.
    """
    replaced = override_all_key_list or ()
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise Exception(f"unknown key {key!r}: the keys are {', '.join(map(repr, original))}")
        known = original.get(key)
        if (
            not isinstance(known, dict)
            or not isinstance(value, Mapping)
            or key in replaced
            or (
                key in (override_all_if_type_changes or ())
                and value.get("type", known.get("type")) != known.get("type", value.get("type"))
            )
        ):
            original[key] = value
            continue
        open_below = new_keys_allowed or key in (allow_new_subkey_list or ())
        deep_update(known, value, open_below, override_all_key_list=replaced)
    return original


def date_str() -> str:
    """Return the date and time for names of files: `2026-01-31_23-59-59`."""
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S")


@contextmanager
def warn_if_slow(
    name: str,
    threshold: float | None = None,
    message: str | None = None,
    disable: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[None]:
    """Log a warning if a `with` block takes long.

    Args:
        name: The operation.
        threshold: Seconds; 0.5 by default.
        message: Text of the warning, with the fields `{name}` and `{duration}`.
        disable: Do nothing.
        clock: Returns monotonic seconds.
    """
    start = clock()
    yield
    duration = clock() - start
    if not disable and duration > (0.5 if threshold is None else threshold):
        text = message or "The operation `{name}` took {duration:.3f} s, which may slow the search."
        logger.warning(text.format(name=name, duration=duration))


def wait_for_gpu(
    gpu_id: int | str | None = None,
    target_util: float = 0.01,
    retry: int = 20,
    delay_s: float = 5,
    gpu_memory_limit: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until the memory of a GPU is free, for instance of the trial before; return True.

    Args:
        gpu_id: Number or UUID of the GPU; None for the first one of this worker.
        target_util: Fraction of the memory that may be in use.
        retry: Number of looks.
        delay_s: Seconds between checks.
        gpu_memory_limit: Ignored.
        sleep: Waits for some seconds.

    Raises:
        RuntimeError: This worker has no GPU, or the memory is still in use.
        ValueError: There is no such GPU.
    """
    nvml = load("pynvml", purpose="wait_for_gpu", install="nvidia-ml-py")
    nvml.nvmlInit()
    try:
        handle = _gpu(nvml, gpu_id)
        used = 0.0
        for look in range(int(retry)):
            if look:
                sleep(delay_s)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            used = memory.used / memory.total
            if used <= target_util:
                return True
            logger.info("Waiting for a GPU: %.1f %% of its memory is in use.", 100 * used)
    finally:
        nvml.nvmlShutdown()
    raise RuntimeError(
        f"{used:.1%} of the memory of the GPU is still in use after {retry} looks, more than "
        f"`target_util={target_util}`: end the process that uses it, or wait longer (`retry`)"
    )


def _gpu(nvml: Any, gpu_id: int | str | None) -> Any:
    """Return the handle of a GPU."""
    if gpu_id is None:
        mine = api.get_gpu_ids()
        if not mine:
            raise RuntimeError(
                "this worker has no GPU: give the trial one, as in "
                '`tune.with_resources(trainable, {"gpu": 1})`, or pass `gpu_id`'
            )
        gpu_id = mine[0]
    if not isinstance(gpu_id, int | str):
        raise ValueError(f"gpu_id={gpu_id!r} is neither a number nor a UUID")
    try:
        if isinstance(gpu_id, int) or gpu_id.isdigit():
            return nvml.nvmlDeviceGetHandleByIndex(int(gpu_id))
        return nvml.nvmlDeviceGetHandleByUUID(gpu_id)
    except nvml.NVMLError as error:
        raise ValueError(
            f"gpu_id={gpu_id!r} is none of the {nvml.nvmlDeviceGetCount()} GPUs of this machine "
            f"({error})"
        ) from error


def validate_save_restore(
    trainable_cls: type[Trainable], config: Mapping[str, Any] | None = None, num_gpus: float = 0
) -> bool:
    """Check that a class trainable continues from its checkpoint in another process; return True.

    Args:
        trainable_cls: The class.
        config: Its configuration.
        num_gpus: GPUs of each of the two processes.

    Raises:
        AssertionError: The iterations do not continue.
    """
    host = remote(trainable_cls).options(num_gpus=num_gpus)
    first, second = (host.remote(config=dict(config or {})) for _ in range(2))
    try:
        for _ in range(3):
            result = api.get(first.train.remote())
        assert result.get(TRAINING_ITERATION) == 3, f"{trainable_cls.__name__} counts no iterations"
        api.get(second.restore.remote(first.save.remote()))
        for expected in (4, 5):
            reached = api.get(second.train.remote())[TRAINING_ITERATION]
            assert reached == expected, (
                f"{trainable_cls.__name__} continues with iteration {reached} instead of {expected}"
            )
    finally:
        for process in (first, second):
            api.kill(process)
    return True
