"""What lies in a class trainable's checkpoint: its own files, or the dictionary that it returned,
and beside them how far it was.

A directory with files of the trainable; `_dict_checkpoint.pkl` if it returned a dictionary;
`.tune_metadata`, JSON, with the path inside the directory that it returned (older programs get that
path back) and its counters.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle

METADATA_FILE = ".tune_metadata"
DICTIONARY_FILE = "_dict_checkpoint.pkl"
_PATH = "path"
_TOTALS = "totals"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint that was read."""

    state: str | dict[str, Any]
    """What `load_checkpoint` gets: the directory, a path in it, or a dictionary."""
    totals: Mapping[str, Any]
    """The counters; empty for a directory that no trainable wrote."""


def write(directory: str, returned: object, totals: Mapping[str, Any]) -> None:
    """Complete a checkpoint whose files `save_checkpoint(directory)` has written; `returned` is
    what it returned.

    Raises:
        ValueError: a path outside `directory`.
        TypeError: neither a path nor a dictionary nor None.
    """
    inside = "."
    if isinstance(returned, Mapping):
        with open(os.path.join(directory, DICTIONARY_FILE), "wb") as file:
            cloudpickle.dump(dict(returned), file)
    elif returned is not None:
        inside = _path_inside(directory, returned)
    with open(os.path.join(directory, METADATA_FILE), "w", encoding="utf-8") as file:
        json.dump({_PATH: inside, _TOTALS: dict(totals)}, file)


def read(directory: str) -> Saved:
    """The checkpoint in a directory. The dictionary is unpickled: read only checkpoints that you
    trust.
    """
    try:
        with open(os.path.join(directory, METADATA_FILE), encoding="utf-8") as file:
            metadata = json.load(file)
    except FileNotFoundError:
        metadata = {}
    totals = metadata.get(_TOTALS, {})
    dictionary = os.path.join(directory, DICTIONARY_FILE)
    if os.path.exists(dictionary):
        with open(dictionary, "rb") as file:
            return Saved(state=pickle.load(file), totals=totals)
    return Saved(
        state=os.path.normpath(os.path.join(directory, metadata.get(_PATH, "."))), totals=totals
    )


def _path_inside(directory: str, returned: object) -> str:
    if not isinstance(returned, (str, os.PathLike)):
        raise TypeError(
            f"`save_checkpoint` returned a {type(returned).__name__}, of which no checkpoint can be made: return None, a dictionary, or "
            "the directory that it was given."
        )
    inside = os.path.relpath(os.path.realpath(os.fspath(returned)), os.path.realpath(directory))
    if inside == os.pardir or inside.startswith(os.pardir + os.sep):
        raise ValueError(
            f"`save_checkpoint({directory!r})` returned {os.fspath(returned)!r}, which lies outside, so it would not be part of the "
            "checkpoint: write below the directory that it is given, and return None, that directory, or a path in it."
        )
    return inside
