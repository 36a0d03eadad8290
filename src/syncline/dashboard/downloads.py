"""Files of runs that the dashboard serves: profiles, images and videos, which open in the browser,
and logs, which are downloaded.

Run directories are untrusted. Only files of four folders with the extensions that syncline writes
are served, and no name leads out of them (`runs.run_storage`). Files that open in the browser are
sandboxed: scripts of a flame graph run in an origin of their own that can neither read pages of the
dashboard nor load or send anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from syncline.runs.run_storage import StorageDirectory, checked_file_name

CHUNK_BYTES = 1_000_000
SANDBOX = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data:; font-src data:; frame-ancestors 'self'; "
    "base-uri 'none'; form-action 'none'"
)
CLOSED = "sandbox; default-src 'none'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
# folder -> extension -> (content type, opens in the browser)
_TYPES: dict[str, dict[str, tuple[str, bool]]] = {
    "profiles": {
        ".svg": ("image/svg+xml", True),
        ".html": ("text/html; charset=utf-8", True),
        ".txt": ("text/plain; charset=utf-8", True),
        ".json": ("application/json", False),
        ".json.gz": ("application/gzip", False),
        ".bin": ("application/octet-stream", False),
    },
    "media": {".png": ("image/png", True)},
    "videos": {".mp4": ("video/mp4", True), ".gif": ("image/gif", True)},
    "logs": {".log": ("text/plain; charset=utf-8", False)},
}


class FileNotServedError(LookupError):
    """The run has no such file, or the file is not served."""


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file to serve."""

    place: StorageDirectory
    """Directory of the run."""
    name: str
    """Path relative to it."""
    size: int
    """Size in bytes at the time of the request."""
    headers: dict[str, str]
    """Content type, security policy and disposition."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the content up to `size`. Blocks: call it in a thread."""
        sent = 0
        while sent < self.size:
            data = self.place.read_range(self.name, sent, min(CHUNK_BYTES, self.size - sent))
            if not data:
                return
            sent += len(data)
            yield data


def find_file(run: StorageDirectory, folder: str, file: str) -> Download:
    """Return a file of a run. Blocks: call it in a thread.

    Raises:
        FileNotServedError: The file does not exist or is not served.
    """
    endings = _TYPES.get(folder, {})
    ending = max((ending for ending in endings if file.endswith(ending)), key=len, default=None)
    if ending is None:
        raise FileNotServedError(
            f"{folder}/{file} is not served: only profiles, images, videos and logs of a run are."
        )
    try:
        name = f"{folder}/{checked_file_name(file)}"
        facts = run.file_info(name)
    except (ValueError, OSError) as error:
        raise FileNotServedError(str(error)) from error
    if facts is None:
        raise FileNotServedError(f"This run has no file {name}.")
    content_type, opens = endings[ending]
    disposition = "inline" if opens else "attachment"
    quoted = quote(file.encode("utf-8", "replace"), safe="")
    headers = {
        "content-type": content_type,
        "content-length": str(facts.size),
        "content-security-policy": SANDBOX if opens else CLOSED,
        "content-disposition": f"{disposition}; filename*=UTF-8''{quoted}",
    }
    return Download(place=run, name=name, size=facts.size, headers=headers)
