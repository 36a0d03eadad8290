"""Helpers with the names of `ray.tune.utils`: `util` (dictionaries, GPUs, checks of trainables) and
`mock_trainable` (a trainable for tests of searches).
"""

from syncline.tune.utils.util import (
    date_str,
    deep_update,
    flatten_dict,
    merge_dicts,
    unflatten_dict,
    unflattened_lookup,
    validate_save_restore,
    wait_for_gpu,
    warn_if_slow,
)

__all__ = [
    "date_str",
    "deep_update",
    "flatten_dict",
    "merge_dicts",
    "unflatten_dict",
    "unflattened_lookup",
    "validate_save_restore",
    "wait_for_gpu",
    "warn_if_slow",
]
