"""The distribution `ray`, as `importlib.metadata` shows it to programs that ask for its version.

Its description says that syncline provides it. It has no files and no requirements.
"""

from __future__ import annotations

from importlib.metadata import Distribution
from pathlib import Path

import syncline
from syncline.as_ray.names import API_VERSION, RAY

_METADATA = f"""Metadata-Version: 2.1
Name: {RAY}
Version: {API_VERSION}
Summary: API of Ray, provided by syncline {syncline.__version__} through syncline.as_ray
"""


class RayDistribution(Distribution):
    """Metadata of `ray`."""

    def read_text(self, filename: str) -> str | None:
        """Return the metadata; None for other files."""
        return _METADATA if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        """Return the place of a file next to the package."""
        return Path(syncline.__file__).parents[1] / str(path)
