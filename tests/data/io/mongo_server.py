"""A server of MongoDB's wire protocol for tests: pymongo connects to it over TCP; mongomock holds
the documents in this process.

Covered: the commands that pymongo sends for `list_*_names`, `insert_many` and `aggregate`, with
cursors in batches, and `$bucketAuto` on one field, which mongomock lacks.
"""

from __future__ import annotations

import itertools
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import bson
import mongomock

_HEADER = struct.Struct("<iiii")
_MESSAGE = 2013
_BATCH = 101


@contextmanager
def mongo_server() -> Iterator[str]:
    """Run a server until the end of the block; yield its URI."""
    server = _Server(("127.0.0.1", 0), _Connection)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        port = server.server_address[1]
        yield f"mongodb://127.0.0.1:{port}/?directConnection=true&serverSelectionTimeoutMS=5000"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.client = mongomock.MongoClient()
        self.cursors: dict[int, list[Any]] = {}
        self.ids = itertools.count(1)
        self.guard = threading.Lock()

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Execute a command and return the reply."""
        database = self.client[command["$db"]]
        match next(iter(command)):
            case "hello" | "ismaster" | "isMaster":
                return {
                    "isWritablePrimary": True,
                    "ismaster": True,
                    "maxBsonObjectSize": 2**24,
                    "maxMessageSizeBytes": 48_000_000,
                    "maxWriteBatchSize": 100_000,
                    "minWireVersion": 0,
                    "maxWireVersion": 21,
                    "readOnly": False,
                }
            case "listDatabases":
                return {"databases": [{"name": each} for each in self.client.list_database_names()]}
            case "listCollections":
                names = database.list_collection_names()
                return self._cursor(command, [{"name": n, "type": "collection"} for n in names])
            case "insert":
                return self._insert(database[command["insert"]], command["documents"])
            case "aggregate":
                found = aggregated(database[command["aggregate"]], command["pipeline"])
                return self._cursor(command, found)
            case "getMore":
                return self._more(command)
        return {}

    def _insert(self, collection: Any, documents: list[Any]) -> dict[str, Any]:
        for index, document in enumerate(documents):
            try:
                collection.insert_one(document)
            except mongomock.DuplicateKeyError as error:
                failure = {"index": index, "code": 11000, "errmsg": str(error)}
                return {"n": index, "writeErrors": [failure]}
        return {"n": len(documents)}

    def _cursor(self, command: dict[str, Any], found: list[Any]) -> dict[str, Any]:
        number = next(self.ids) if len(found) > _BATCH else 0
        self.cursors[number] = found[_BATCH:]
        name = f"{command['$db']}.{next(iter(command.values()))}"
        return {"cursor": {"id": bson.Int64(number), "ns": name, "firstBatch": found[:_BATCH]}}

    def _more(self, command: dict[str, Any]) -> dict[str, Any]:
        number = command["getMore"]
        batch, self.cursors[number] = (self.cursors[number][:_BATCH], self.cursors[number][_BATCH:])
        left = number if self.cursors[number] else 0
        name = f"{command['$db']}.{command['collection']}"
        return {"cursor": {"id": bson.Int64(left), "ns": name, "nextBatch": batch}}


def aggregated(collection: Any, pipeline: list[dict[str, Any]]) -> list[Any]:
    """Return the result of an aggregation."""
    if not pipeline or "$bucketAuto" not in pipeline[-1]:
        return list(collection.aggregate(pipeline))
    stage = pipeline[-1]["$bucketAuto"]
    field = stage["groupBy"].removeprefix("$")
    found = [document[field] for document in collection.aggregate(pipeline[:-1])]
    values = sorted(found, key=lambda value: (type(value).__name__ != "int", value))
    cuts = sorted({index * len(values) // stage["buckets"] for index in range(stage["buckets"])})
    return [
        {"_id": {"min": values[start], "max": values[min(end, len(values) - 1)]}}
        for start, end in zip(cuts, [*cuts[1:], len(values)], strict=True)
        if values
    ]


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while header := self.rfile.read(_HEADER.size):
            length, request, _, code = _HEADER.unpack(header)
            body = self.rfile.read(length - _HEADER.size)
            command = _legacy(body) if code != _MESSAGE else _command(body)
            with self.server.guard:
                reply = {**self.server.answer(command), "ok": 1.0}
            self.wfile.write(_reply(reply, request, legacy=code != _MESSAGE))


def _command(body: bytes) -> dict[str, Any]:
    """Decode an OP_MSG: flags, then a document (kind 0) and sequences of documents (kind 1)."""
    command: dict[str, Any] = {}
    at = 4
    while at < len(body):
        kind, at = body[at], at + 1
        size = struct.unpack_from("<i", body, at)[0]
        part = body[at : at + size]
        if kind == 0:
            command = {**bson.decode(part), **command}
        else:
            end = part.index(b"\0", 4)
            command[part[4:end].decode()] = bson.decode_all(part[end + 1 :])
        at += size
    first = next(name for name in command if name not in ("documents",))
    return {first: command[first], **command}


def _legacy(body: bytes) -> dict[str, Any]:
    """Decode an OP_QUERY, with which clients say hello."""
    start = body.index(b"\0", 4) + 9
    return {**bson.decode(body[start:]), "$db": "admin"}


def _reply(reply: dict[str, Any], request: int, *, legacy: bool) -> bytes:
    document = bson.encode(reply)
    if legacy:
        body = struct.pack("<iqii", 8, 0, 0, 1) + document
        return _HEADER.pack(_HEADER.size + len(body), 0, request, 1) + body
    body = struct.pack("<iB", 0, 0) + document
    return _HEADER.pack(_HEADER.size + len(body), 0, request, _MESSAGE) + body
