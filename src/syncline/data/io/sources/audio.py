"""Read audio files with soundfile: a row for each file, in the columns `amplitude`, an array
`(channels, samples)` of 32-bit floats from -1 to 1, and `sample_rate` in samples per second.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.optional import load

_AUDIO = {"purpose": "read_audio", "install": "syncline[audio]"}


class AudioDatasource(FileBasedDatasource):
    """Reads audio files. Arguments: see `FileBasedDatasource`."""

    _FILE_EXTENSIONS = [
        "mp3",
        "wav",
        "aac",
        "flac",
        "ogg",
        "m4a",
        "wma",
        "alac",
        "aiff",
        "pcm",
        "amr",
        "opus",
        "ra",
        "rm",
        "au",
        "mid",
        "midi",
        "caf",
    ]

    def __init__(self, paths: filesystems.Paths, **options: Any) -> None:
        load("soundfile", **_AUDIO)
        super().__init__(paths, **options)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[blocks.Batch]:
        soundfile = load("soundfile", **_AUDIO)
        try:
            samples, rate = soundfile.read(io.BytesIO(f.read()), always_2d=True, dtype="float32")
        except soundfile.LibsndfileError as error:
            raise ValueError(
                f"{path} cannot be read as audio: {error.error_string} libsndfile reads WAV, FLAC, "
                "OGG, MP3, AIFF, AU and CAF"
            ) from error
        yield {
            "amplitude": np.ascontiguousarray(samples.T)[np.newaxis],
            "sample_rate": np.array([rate]),
        }

    def _rows_per_file(self) -> int:
        return 1
