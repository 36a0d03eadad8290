"""Files of runs that the dashboard gives out: profiles, which open in the browser, and logs, which
are downloaded.

What lies in a run directory may come from anybody. Only files of two folders, with the endings that
syncline writes there, are given out; no name leads elsewhere (`runs.places`). What opens in the
browser does so in a sandbox: its scripts run, since a flame graph has some, but as a site of their
own that can neither read a page of the dashboard, nor load anything, nor send anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from syncline.runs.places import Place, checked_part

CHUNK_BYTES = 1_000_000
SANDBOX = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data:; font-src data:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
CLOSED = "sandbox; default-src 'none'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
# folder -> ending -> type, and whether the browser opens it
_TYPES: dict[str, dict[str, tuple[str, bool]]] = {
    "profiles": {
        ".svg": ("image/svg+xml", True),
        ".html": ("text/html; charset=utf-8", True),
        ".txt": ("text/plain; charset=utf-8", True),
        ".json": ("application/json", False),
        ".json.gz": ("application/gzip", False),
        ".bin": ("application/octet-stream", False),
    },
    "logs": {".log": ("text/plain; charset=utf-8", False)},
}


class NoSuchFileError(LookupError):
    """The run has no such file, or none that is given out."""


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file that is given out."""

    place: Place
    """The run."""
    name: str
    """Below it, with the folder."""
    size: int
    """Bytes, as of now."""
    headers: dict[str, str]
    """Type, policy and what the browser is to do with it."""

    def chunks(self) -> Iterator[bytes]:
        """What is in it, as far as it went when it was asked for. Reads files: for a thread."""
        sent = 0
        while sent < self.size:
            data = self.place.read_from(self.name, sent, min(CHUNK_BYTES, self.size - sent))
            if not data:
                return
            sent += len(data)
            yield data


def find_file(run: Place, folder: str, file: str) -> Download:
    """A file of a run. Reads the directory: for a thread.

    Raises:
        NoSuchFileError: There is none, or it is not given out.
    """
    endings = _TYPES.get(folder, {})
    ending = max((ending for ending in endings if file.endswith(ending)), key=len, default=None)
    if ending is None:
        raise NoSuchFileError(
            f"{folder}/{file} is not given out: of a run, that is profiles and logs"
        )
    try:
        name = f"{folder}/{checked_part(file)}"
        facts = run.facts(name)
    except (ValueError, OSError) as error:
        raise NoSuchFileError(str(error)) from error
    if facts is None:
        raise NoSuchFileError(f"this run has no file {name}")
    content_type, opens = endings[ending]
    headers = {
        "content-type": content_type,
        "content-length": str(facts.size),
        "content-security-policy": SANDBOX if opens else CLOSED,
        "content-disposition": f"{'inline' if opens else 'attachment'}; filename*=UTF-8''{quote(file.encode('utf-8', 'replace'), safe='')}",
    }
    return Download(place=run, name=name, size=facts.size, headers=headers)
