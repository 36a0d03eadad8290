"""A local server that answers the S3 requests of a reader, with the latency and the throughput of
remote storage; in a process of its own.

Covered: HEAD, GET with ranges, and ListObjectsV2 of one bucket, which is a folder. The throughput
is a limit for all connections together.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from bench.programs.link import Link

REQUEST_S = 0.02
"""Delay of every request, in seconds."""
BYTES_PER_S = 200_000_000
"""Throughput of all responses together."""
BUCKET = "bench"
_PART_BYTES = 256 * 1024


class Handler(BaseHTTPRequestHandler):
    """Answers requests for the files below `root`."""

    protocol_version = "HTTP/1.1"
    root = Path()
    link = Link(BYTES_PER_S)

    def do_HEAD(self) -> None:
        time.sleep(REQUEST_S)
        path, _ = self._target()
        if path == self.root:  # the bucket
            self._begin(200, 0)
        elif path.is_file():
            self._begin(200, path.stat().st_size)
        else:
            self._begin(404, 0)

    def do_GET(self) -> None:
        time.sleep(REQUEST_S)
        path, query = self._target()
        if "list-type" in query:
            self._list(query.get("prefix", [""])[0])
        elif path.is_file():
            self._send(path)
        else:
            self._begin(404, 0)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def _target(self) -> tuple[Path, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
        return self.root / key, parse_qs(parts.query)

    def _begin(self, status: int, length: int, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", '"0"')
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _send(self, path: Path) -> None:
        size = path.stat().st_size
        first, last = 0, size - 1
        asked = self.headers.get("Range")
        if asked:
            start, _, stop = asked.removeprefix("bytes=").partition("-")
            first = int(start) if start else size - int(stop)
            last = min(int(stop), last) if start and stop else last
            self._begin(206, last - first + 1, Content_Range=f"bytes {first}-{last}/{size}")
        else:
            self._begin(200, size)
        with path.open("rb") as file:
            file.seek(first)
            left = last - first + 1
            while left:
                part = file.read(min(left, _PART_BYTES))
                self.link.send(len(part))
                self.wfile.write(part)
                left -= len(part)

    def _list(self, prefix: str) -> None:
        found = sorted(
            (file.relative_to(self.root).as_posix(), file.stat().st_size)
            for file in self.root.rglob("*")
            if file.is_file()
        )
        found = [(key, size) for key, size in found if key.startswith(prefix)]
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
            '<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"0"</ETag>'
            "<StorageClass>STANDARD</StorageClass></Contents>"
            for key, size in found
        )
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(found)}</KeyCount><MaxKeys>1000</MaxKeys>"
            f"<IsTruncated>false</IsTruncated>{items}</ListBucketResult>"
        ).encode()
        self._begin(200, len(body), Content_Type="application/xml")
        self.wfile.write(body)


def _serve(root: Path, started: Connection) -> None:
    Handler.root = root
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    started.send(server.server_address[1])
    server.serve_forever()


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Serve a folder until the `with` block ends; yield `host:port`."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(root, sender), daemon=True)
    process.start()
    try:
        yield f"127.0.0.1:{receiver.recv()}"
    finally:
        process.terminate()
        process.join()
