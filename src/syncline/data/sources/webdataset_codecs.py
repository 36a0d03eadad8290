"""How the files of a WebDataset row become values and back: by the last part of their names.

txt, text: str · cls, cls2: int · json: any JSON · npy: ndarray · jpg, png, ppm, …: image array ·
mp: MessagePack · pt, pth, pickle, pkl: objects, which run code of whoever wrote them when they are
read, so reading them asks for a decoder of the program's own. Everything else stays bytes.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from syncline.data.optional import load
from syncline.data.sources.images import ImageDecoder

Codec = bool | str | Callable[[dict[str, Any]], dict[str, Any]] | list[Any] | None
"""True (or the name of a format: "PIL") for the rules above, a function on the row, a list of these
in turn, None for nothing.
"""

_IMAGES = frozenset({"jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm"})
_PICKLES = frozenset({"pt", "pth", "pickle", "pkl"})


def applied(
    codec: Codec, row: Mapping[str, Any], default: Callable[[dict[str, Any], Any], dict[str, Any]]
) -> dict[str, Any]:
    """The row after the codec; `default(row, format)` stands for what is no function."""
    result = dict(row)
    if codec is None or codec is False:
        return result
    for step in codec if isinstance(codec, list) else [codec]:
        result = step(result) if callable(step) else default(result, step)
    return result


def default_decoder(row: dict[str, Any], image_format: Any = True) -> dict[str, Any]:
    """Bytes to values, by the rules of the module. With `image_format="PIL"`, images stay
    pillow's.
    """
    return {
        name: value if name.startswith("__") else _decoded(name, value, image_format)
        for name, value in row.items()
    }


def default_encoder(row: dict[str, Any], image_format: Any = True) -> dict[str, Any]:
    """Values to bytes or text, by the rules of the module; None, bytes and text stay as they
    are.
    """
    return {
        name: value if name.startswith("__") else _encoded(name, value)
        for name, value in row.items()
    }


def _decoded(name: str, value: bytes, image_format: Any) -> Any:
    extension = name.rpartition(".")[2].lower()
    if extension in ("txt", "text"):
        return value.decode()
    if extension in ("cls", "cls2"):
        return int(value)
    if extension == "json":
        return json.loads(value)
    if extension == "npy":
        return np.load(io.BytesIO(value))
    if extension in _IMAGES:
        if image_format == "PIL":
            return load("PIL.Image", purpose="decoding images", install="syncline[images]").open(
                io.BytesIO(value)
            )
        return ImageDecoder().decode(value, name)
    if extension == "mp":
        return load("msgpack", purpose="WebDataset's .mp files", install="msgpack").unpackb(
            value, raw=False
        )
    if extension in _PICKLES:
        raise ValueError(
            f"{name!r} holds a pickle, which runs code when it is read: if you trust the file, pass decoder=[your function, True] that "
            "replaces it, or fileselect/suffixes that leave it out"
        )
    return value


def _encoded(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bytes):
        return value
    extension = name.rpartition(".")[2].lower()
    if extension in ("cls", "cls2"):
        return str(value)
    if extension == "json":
        return json.dumps(value)
    if extension == "npy":
        buffer = io.BytesIO()
        np.save(buffer, value)
        return buffer.getvalue()
    if extension in _IMAGES:
        return _image_bytes(
            value, "jpeg" if extension == "jpg" else "ppm" if extension.endswith("m") else extension
        )
    if extension == "mp":
        return load("msgpack", purpose="WebDataset's .mp files", install="msgpack").packb(value)
    if extension in ("pickle", "pkl"):
        return pickle.dumps(value)
    return value


def _image_bytes(value: Any, image_format: str) -> bytes:
    pillow = load("PIL.Image", purpose="encoding images", install="syncline[images]")
    buffer = io.BytesIO()
    (pillow.fromarray(value) if isinstance(value, np.ndarray) else value).save(
        buffer, format=image_format
    )
    return buffer.getvalue()
