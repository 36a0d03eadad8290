"""Images and histograms as values of `report`: `train.report({"samples": Image(array)})`.

An image becomes a PNG file in `media/` of the run directory; a histogram is stored in the report.
The dashboard shows both, and TensorBoard as the run `NAME/media`. Not covered: audio and video.
"""

from __future__ import annotations

import io
import re
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.runs.json_values import JsonObject
from syncline.runs.media import MAX_BINS, TYPE_KEY
from syncline.runs.record_files import Files, Thinning
from syncline.runs.run_directory import MEDIA_DIRECTORY

MAX_PIXELS = 1_024
"""Maximum width and height; larger images are reduced by leaving out pixels."""
FIRST_BYTES = 20_000_000
"""Bytes of one rank's images that are stored completely; afterwards every fourth image is stored,
and so on, and all together stay below twice as many.
"""
_UNFIT = re.compile(r"[^\w.-]+")


class Media:
    """Value of a report that is not a number. Base class of `Image` and `Histogram`."""

    def stored(self, name: str) -> JsonObject | None:
        """Return the value for the record, and store its file; None if it is left out."""
        raise NotImplementedError


class Image(Media):
    """An image to report.

    Args:
        data: An array or a tensor of shape (height, width), (height, width, channels), or
            (channels, height, width) with 1, 3 or 4 channels, of integers from 0 to 255 or floats
            from 0 to 1; a PIL image; or a matplotlib figure.
        caption: Text below the image.

    Raises:
        ValueError: The array does not have the shape of an image.
        TypeError: `data` is none of these.
    """

    def __init__(self, data: Any, caption: str = "") -> None:
        self._pixels = _pixels(data)
        self._caption = str(caption)

    def stored(self, name: str) -> JsonObject | None:
        """Write the PNG file; return its description."""
        height, width = self._pixels.shape[:2]
        found: JsonObject = {
            TYPE_KEY: "image",
            "width": width,
            "height": height,
            "caption": self._caption,
        }
        store = _current_store()
        if store is not None:
            file = store.write(name, png(self._pixels))
            if file is None:
                return None
            found["file"] = file
        return found


class Histogram(Media):
    """A distribution to report.

    Args:
        values: Numbers in an array, a tensor or a list of any shape; infinite ones and NaN are left
            out.
        bins: Number of bins of equal width.

    Raises:
        ValueError: There are no finite values, or `bins` is out of range.
    """

    def __init__(self, values: Any, bins: int = 64) -> None:
        if not 1 <= bins <= MAX_BINS:
            raise ValueError(f"Histogram(bins={bins!r}): pass a number from 1 to {MAX_BINS}.")
        numbers = _array(values).astype(np.float64).ravel()
        numbers = numbers[np.isfinite(numbers)]
        if not numbers.size:
            raise ValueError(
                "Histogram(values=…): there are no finite values. Report it only if there are some."
            )
        self._counts, self._edges = np.histogram(numbers, bins=bins)

    def stored(self, name: str) -> JsonObject:
        """Return the bins."""
        return {
            TYPE_KEY: "histogram",
            "counts": self._counts.tolist(),
            "edges": self._edges.tolist(),
        }


class MediaStore:
    """Stores the images of one rank in the run directory.

    Args:
        files: The run directory.
        rank: Rank, part of the names.
    """

    def __init__(self, files: Files, rank: int) -> None:
        self._files = files
        self._rank = rank
        self._thinning = Thinning(first_bytes=FIRST_BYTES)
        self._count = 0
        self._bytes = 0

    def write(self, name: str, data: bytes) -> str | None:
        """Write an image; return its path in the run directory, None if thinning drops it."""
        self._count += 1
        is_kept = self._thinning.keeps(
            self._rank, self._count, line_bytes=len(data), size_bytes=self._bytes
        )
        if not is_kept:
            return None
        stem = _UNFIT.sub("_", name)[:100]
        moment = time.time_ns() // 1_000
        file = f"{MEDIA_DIRECTORY}/{stem}-{moment}-rank-{self._rank}.png"
        self._files.write(file, data)
        self._bytes += len(data)
        return file


_open_store: Callable[[], MediaStore | None] | None = None
_store: MediaStore | None = None


def set_store(open_store: Callable[[], MediaStore | None]) -> None:
    """Set the store of this process, opened for the first image; None to describe images only."""
    global _open_store, _store
    _open_store, _store = open_store, None


def _current_store() -> MediaStore | None:
    global _store
    if _store is None and _open_store is not None:
        _store = _open_store()
    return _store


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return pixels of shape (height, width, channels), 1, 3 or 4 of them, as a PNG file."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # a filter byte before each row
    rows[:, 1:] = pixels.reshape(height, width * channels)
    color = {1: 0, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _pixels(data: Any) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image, of shape (height, width, channels)."""
    if hasattr(data, "savefig"):  # a figure of matplotlib
        buffer = io.BytesIO()
        data.savefig(buffer, format="rgba")
        width, height = data.canvas.get_width_height()
        flat = np.frombuffer(buffer.getvalue(), np.uint8)
        if flat.size != width * height * 4:  # the figure is saved with another resolution
            size = (data.get_size_inches() * data.get_dpi()).astype(int)
            width, height = int(size[0]), int(size[1])
        pixels = flat.reshape(height, width, 4)
    elif hasattr(data, "convert") and hasattr(data, "getbands"):  # an image of PIL
        bands = data.getbands()
        mode = (
            "L"
            if bands == ("L",)
            else "RGBA"
            if "A" in bands or "transparency" in data.info
            else "RGB"
        )
        pixels = np.asarray(data.convert(mode))
    else:
        pixels = _array(data)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4) and pixels.shape[0] in (1, 3, 4):
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or not pixels.size:
        raise ValueError(
            f"Image(data=…): an array of shape {tuple(np.shape(data))} is not an image. Pass the "
            "shape (height, width), (height, width, channels) or (channels, height, width) with "
            "1, 3 or 4 channels; of a batch, pass one image."
        )
    if pixels.dtype.kind in "fb":
        scaled = np.nan_to_num(pixels.astype(np.float64)) * 255
        pixels = scaled.round()
    stride = -(-max(pixels.shape[:2]) // MAX_PIXELS)
    return np.ascontiguousarray(pixels[::stride, ::stride].clip(0, 255).astype(np.uint8))


def _array(data: Any) -> npt.NDArray[Any]:
    """Return an array or a tensor as a NumPy array.

    Raises:
        TypeError: It holds no numbers.
    """
    if hasattr(data, "detach"):  # a tensor of torch
        data = data.detach().cpu()
        data = data.float().numpy() if str(data.dtype) == "torch.bfloat16" else data.numpy()
    found = np.asarray(data)
    if found.dtype.kind not in "fbiu":
        raise TypeError(
            f"{type(data).__name__} cannot be reported as an image or histogram: pass an array, a "
            "tensor, a PIL image or a matplotlib figure."
        )
    return found
