"""`Dataset.cache`: cached rows, their use by executions, and the writers that fill caches.

The first execution that delivers all rows of a cache in order fills it. The rows and their blocks
follow from the cache's input and its `Origin`: the seed and the limits of the filling execution.
Random operators below a cache therefore draw only once, and operators after it get the same blocks
whether the cache is filled or not.

Restart points record the origins. An execution that resumes elsewhere, where the cache is empty,
computes the rows of the same origin; it ignores a cache of another origin. If a cache was filled
or lost since then, the execution begins at its first row and the consumer skips the rows that it
had before.

A cache in memory belongs to the process and is released with the last plan that contains its node;
copies in other processes are empty. A cache at a path is shared by all users of the path with the
same plan and the same input.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import logging
import secrets
import threading
import weakref
from collections.abc import Sequence
from dataclasses import field
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline import faults
from syncline.core import api
from syncline.data.context import DataContext
from syncline.data.execute.block_store import OutputBlock, table_of
from syncline.data.execute.physical_plan import ExecutionLimits
from syncline.data.execute.steps.block_steps import CacheWriteStep
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sinks.staging import DirectoryLock
from syncline.data.io.sources import arrow_files
from syncline.data.io.sources.arrow_files import ArrowFile, ArrowFilesDatasource, Manifest
from syncline.data.plan.nodes import Cache, Held, HeldBlock, Node, Read, rewrite_bottom_up, walk
from syncline.data.plan.signature import signature
from syncline.records import dataclass
from syncline.storage import filesystem as storage

logger = logging.getLogger("syncline")

# Topmost caches by plan, because they are requested after every operator that a user adds. Cache
# nodes are no keys: the value would refer to the key and keep it alive.
_known: WeakKeyDictionary[Node, tuple[Cache, ...]] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Everything besides the input that the rows of a cache and their blocks depend on."""

    seed: int
    """Seed of the input."""
    limits: ExecutionLimits
    """Limits that the blocks of the input are sized for."""
    inner: tuple[Origin, ...] = ()
    """Origins of the caches that the input reads."""

    def to_list(self) -> list[Any]:
        """Return a JSON form."""
        return [self.seed, *self.limits.to_list(), [each.to_list() for each in self.inner]]

    @classmethod
    def from_list(cls, listed: Sequence[Any]) -> Origin:
        """Return the origin that `to_list` was called on."""
        seed, cpus, budget_bytes, inner = listed
        return cls(
            seed=seed,
            limits=ExecutionLimits(cpus=cpus, budget_bytes=budget_bytes),
            inner=tuple(map(cls.from_list, inner)),
        )


@dataclass(frozen=True, kw_only=True)
class CachedRows:
    """Rows of a cache in memory or in files."""

    origin: Origin
    rows: Held | ArrowFilesDatasource


class CacheSlot:
    """The rows of a `Cache` node, shared by all plans of this process that contain the node.

    A pickled copy is empty but knows the directory: the values that functions use may have changed
    by then.
    """

    def __init__(self, location: CacheDirectory | None = None) -> None:
        self._lock = threading.Lock()
        self._cached: CachedRows | None = None
        self._engine: weakref.ref[Any] | None = None
        self._location = location

    def __reduce__(self) -> tuple[type[CacheSlot], tuple[CacheDirectory | None]]:
        return (CacheSlot, (self._location,))

    def cached_rows(self, node: Cache) -> CachedRows | None:
        """Return the cached rows; None if empty. `node` is the slot's node as the user wrote it."""
        if node.path is not None:
            return self.location(node).cached_rows()
        with self._lock:
            if self._engine is not None and self._engine() is not api.ensure_engine():
                self._cached = self._engine = None  # the blocks ended with their engine
            return self._cached

    def fill(self, cached: CachedRows) -> None:
        """Set the rows; only the first call counts."""
        with self._lock:
            if self._cached is None:
                self._cached, self._engine = cached, weakref.ref(api.ensure_engine())

    def location(self, node: Cache) -> CacheDirectory:
        """Return the directory of a cache with a path."""
        with self._lock:
            if self._location is None:
                assert node.path is not None
                filesystem, (path,) = filesystems.resolve(node.path)
                self._location = CacheDirectory(filesystem, storage.join(path, _key(node.input)))
            return self._location


@dataclass(frozen=True)
class CacheDirectory:
    """Directory of a plan's cached rows."""

    filesystem: pyarrow_fs.FileSystem
    directory: str

    def cached_rows(self) -> CachedRows | None:
        """Return the published rows; None if there are none."""
        manifest = arrow_files.read_manifest(self.filesystem, self.directory)
        if manifest is None:
            return None
        return CachedRows(
            origin=Origin.from_list(manifest.origin),
            rows=ArrowFilesDatasource(self.filesystem, self.directory, manifest),
        )


# -- use by an execution


@dataclass(frozen=True, kw_only=True)
class CacheUse:
    """Use of a cache by an execution: it reads the cached rows, or computes and may cache them."""

    origin: Origin
    cached: CachedRows | None = None
    node: Cache | None = None
    """The node as the user wrote it, if its cache is empty."""


@dataclass(frozen=True, kw_only=True)
class CacheUses:
    """Uses of all caches by an execution."""

    states: tuple[Any, ...] = ()
    """JSON for restart points: for each cache [it is read, its origin, states of the caches below].
    """
    as_recorded: bool = True
    """True if the same caches are read as in the execution to continue."""
    by_slot: dict[int, CacheUse] = field(default_factory=dict)
    """Uses by the id of the slot."""
    fills: bool = False
    """True if empty caches are filled, which requires an execution from the first row on."""

    def of(self, node: Cache, otherwise: Origin) -> CacheUse:
        """Return the use of a cache, wherever rules have moved it; `otherwise` is the default."""
        return self.by_slot.get(id(node.slot)) or CacheUse(origin=otherwise)

    def writer(
        self, use: CacheUse, context: DataContext
    ) -> MemoryCacheWriter | FileCacheWriter | None:
        """Return the writer for a stage; None if nothing is cached."""
        if use.node is None or not self.fills:
            return None
        if use.node.path is None:
            return MemoryCacheWriter(use.node.slot, use.origin)
        return FileCacheWriter(
            use.node.slot.location(use.node), use.origin, tuple(context.retried_io_errors)
        )


def uses_of_caches(node: Node, origin: Origin, recorded: Sequence[Any] | None = None) -> CacheUses:
    """Determine the uses of a plan's caches by an execution.

    Args:
        node: Plan as the user wrote it.
        origin: Seed and limits of the execution.
        recorded: `states` of the execution to continue; None for a new one.
    """
    states, as_recorded, by_slot = [], True, {}
    tops = _topmost(node)
    if recorded is not None and len(recorded) != len(tops):
        raise ValueError(
            f"The restart point has {len(recorded)} caches but the plan has {len(tops)}, so it "
            "belongs to another plan."
        )
    for number, each in enumerate(tops):
        was_read, earlier, below = (None, None, None) if recorded is None else recorded[number]
        wanted = None if earlier is None else Origin.from_list(earlier)
        cached = each.slot.cached_rows(each)
        if cached is not None and wanted in (None, cached.origin):
            by_slot[id(each.slot)] = CacheUse(origin=cached.origin, cached=cached)
            states.append([True, cached.origin.to_list(), []])
            as_recorded = as_recorded and was_read is not False
            continue
        if wanted is not None and not below:
            below = [[True, inner.to_list(), []] for inner in wanted.inner]
        inner = uses_of_caches(each.input, wanted or origin, below)
        own = dataclasses.replace(
            wanted or origin, inner=tuple(Origin.from_list(state[1]) for state in inner.states)
        )
        by_slot |= inner.by_slot
        by_slot[id(each.slot)] = CacheUse(origin=own, node=each if cached is None else None)
        states.append([False, own.to_list(), list(inner.states)])
        as_recorded = as_recorded and was_read is not True and inner.as_recorded
    return CacheUses(states=tuple(states), as_recorded=as_recorded, by_slot=by_slot)


def with_cached_rows(node: Node) -> Node:
    """Return the plan with filled caches replaced by their rows. For questions about the plan."""
    filled = {
        id(each): cached
        for each in _topmost(node)
        if (cached := each.slot.cached_rows(each)) is not None
    }
    if not filled:
        return node

    def replace(changed: Node, original: Node) -> Node:
        cached = filled.get(id(original))
        if cached is None:
            return changed
        return cached.rows if isinstance(cached.rows, Held) else Read(source=cached.rows)

    return rewrite_bottom_up(node, replace)


def _topmost(node: Node) -> tuple[Cache, ...]:
    """Return the caches that a plan reads, each once, without those below other caches."""
    waiting = [node]
    while waiting:
        each = waiting[-1]
        unknown = [part for part in each.inputs if not (isinstance(part, Cache) or part in _known)]
        if unknown and not isinstance(each, Cache):
            waiting.extend(unknown)
            continue
        waiting.pop()
        if not isinstance(each, Cache):
            _known[each] = tuple(
                dict.fromkeys(found for part in each.inputs for found in _found(part))
            )
    return _found(node)


def _found(node: Node) -> tuple[Cache, ...]:
    if isinstance(node, Cache):
        return () if node.slot is None else (node,)
    return _known[node]


# -- writers


class MemoryCacheWriter:
    """Fills a slot with references to the blocks; the object store spills them if necessary."""

    needs_store = True

    def __init__(self, slot: CacheSlot, origin: Origin) -> None:
        self._slot = slot
        self._origin = origin
        self._blocks: list[OutputBlock] = []

    def begin(self) -> None:
        """Do nothing."""

    def add(self, block: OutputBlock) -> None:
        """Hold a reference to a block."""
        self._blocks.append(block)

    def complete(self) -> None:
        """Fill the slot."""
        # Take the schema of one block: reading all would load blocks that were spilled to disk.
        first = next((block for block in self._blocks if block.num_rows), None) or next(
            iter(self._blocks), None
        )
        schema = pa.schema([]) if first is None else first.table().schema
        found = tuple(
            HeldBlock(
                value=block.reference(),
                num_rows=block.num_rows,
                size_bytes=block.size_bytes,
                schema=schema,
            )
            for block in self._blocks
        )
        self._slot.fill(CachedRows(origin=self._origin, rows=Held(blocks=found)))
        self._blocks = []

    def discard(self) -> None:
        """Release the blocks."""
        self._blocks = []


class FileCacheWriter:
    """Publishes the files written by the tasks of a stage.

    Args:
        place: Directory of the cache.
        origin: Origin of the rows.
        patterns: Patterns of the errors to retry.
    """

    needs_store = False

    def __init__(self, location: CacheDirectory, origin: Origin, patterns: tuple[str, ...]) -> None:
        self._location = location
        self._origin = origin
        self._patterns = patterns
        self._data = f"{arrow_files.DATA_PREFIX}{secrets.token_hex(8)}"
        self._lock: DirectoryLock | None = None
        self._files: list[ArrowFile] = []
        self._schema: pa.Schema | None = None

    def step(self, name: str) -> CacheWriteStep:
        """Return the step that writes the blocks."""
        return CacheWriteStep(
            name=name,
            filesystem=self._location.filesystem,
            directory=self._location.directory,
            data=self._data,
            patterns=self._patterns,
        )

    def begin(self) -> None:
        """Delete the files of killed programs, and lock the writer's own directory."""
        for left in arrow_files.writer_directories(
            self._location.filesystem, self._location.directory
        ):
            # On a remote filesystem it is unknown whether the writer is alive.
            lock = (
                DirectoryLock.try_acquire(self._location.filesystem, left)
                if storage.is_local(self._location.filesystem)
                else None
            )
            if lock is not None:
                if not self._is_published(left):
                    self._delete(left)
                lock.release()
        filesystems.make_directory(self._location.filesystem, self._own)
        self._lock = DirectoryLock.try_acquire(self._location.filesystem, self._own)

    def add(self, block: OutputBlock) -> None:
        """Record a block, which its task has written."""
        name = arrow_files.file_name(self._data, len(self._files))
        if self._schema is None or (
            block.num_rows and not any(file.num_rows for file in self._files)
        ):
            self._schema = block.table().schema
        self._files.append(
            ArrowFile(name=name, num_rows=block.num_rows, size_bytes=block.size_bytes)
        )

    def complete(self) -> None:
        """Publish the manifest unless another writer was first."""
        manifest = Manifest(
            files=tuple(self._files), schema=self._schema, origin=self._origin.to_list()
        )
        faults.reach("data.cache.complete")
        if not arrow_files.publish(
            self._location.filesystem, self._location.directory, self._data, manifest
        ):
            self._delete(self._own)
        faults.reach("data.cache.published")
        self._release()

    def discard(self) -> None:
        """Delete the files."""
        self._delete(self._own)
        self._release()

    @property
    def _own(self) -> str:
        return storage.join(self._location.directory, self._data)

    def _is_published(self, directory: str) -> bool:
        cached = self._location.cached_rows()
        return (
            cached is not None
            and isinstance(cached.rows, ArrowFilesDatasource)
            and cached.rows.is_written_to(directory)
        )

    def _delete(self, directory: str) -> None:
        try:
            self._location.filesystem.delete_dir(directory)
        except OSError:  # a cancelled task is still writing; the next writer deletes the directory
            logger.debug("%s could not be deleted", directory, exc_info=True)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()


# -- keys


def _key(node: Node) -> str:
    """Return the directory name of a plan; it changes with the plan and with the sources."""
    digest = hashlib.sha256(signature(node, with_state=True).encode())
    for each in walk(node):
        if isinstance(each, Held):
            for block in each.blocks:
                digest.update(_content_digest(block).encode())
    return digest.hexdigest()[:32]


def _content_digest(block: HeldBlock) -> str:
    """Return a digest of all rows: signatures look at a sample only, which is not enough here."""
    table = table_of(block)
    sink = _DigestFile()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return sink.hash.hexdigest()


class _DigestFile(io.RawIOBase):
    """A file that only computes a digest."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)
