"""`Dataset.cache`: what was kept, what an execution does about it, and what it has to agree on with
the execution that it continues.

A cache is filled by the first execution in which all of its rows have passed, in order, from the
first one on. Its rows, and how they lie in blocks, follow from its input and its `Origin`: the seed
and the shape of the execution that filled it, in the first epoch. So what is random below a cache
is drawn once, whether the cache is filled or not; and what comes after it gets the same blocks both
times.

Restart points record the origins. An execution that goes on elsewhere, where the cache is empty,
computes the rows of the same origin; one that finds a cache of another origin leaves it alone. If a
cache was filled meanwhile, or is not any more, the execution begins at its first row, and its
consumer leaves out what it has had.

In memory a cache belongs to the process: handles and plans that share the node share it, and it is
let go with the last of them; copies in other processes begin empty. At a path it belongs to all who
use the same path for the same plan on the same input.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import secrets
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline import faults
from syncline.core import api
from syncline.data.execute import block_store as held
from syncline.data.execute.physical_plan import ExecutionLimits
from syncline.data.execute.steps.block_steps import CacheWriteStep
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sinks.staging import DirectoryLock
from syncline.data.io.sources import arrow_files
from syncline.data.io.sources.arrow_files import ArrowFile, ArrowFilesDatasource, Manifest
from syncline.data.plan.nodes import Cache, Held, HeldBlock, Node, Read, rewrite_bottom_up, walk
from syncline.data.plan.signature import signature
from syncline.storage import filesystem as storage

if TYPE_CHECKING:
    from syncline.data.context import DataContext
    from syncline.data.execute.block_store import OutputBlock

logger = logging.getLogger("syncline")

# Programs ask after every step that they add to a plan. Caches themselves are no keys: what refers
# to its key is never let go.
_known: WeakKeyDictionary[Node, tuple[Cache, ...]] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What the rows of a cache and their blocks depend on, beside its input."""

    seed: int
    """What its input draws from."""
    limits: ExecutionLimits
    """What its input is laid out for."""
    inner: tuple[Origin, ...] = ()
    """Those of the caches that its input reads."""

    def to_list(self) -> list[Any]:
        """A form for JSON."""
        return [self.seed, *self.limits.to_list(), [each.to_list() for each in self.inner]]

    @classmethod
    def from_list(cls, listed: Sequence[Any]) -> Origin:
        """What `to_list` was called on."""
        seed, cpus, budget_bytes, inner = listed
        return cls(
            seed=seed,
            limits=ExecutionLimits(cpus=cpus, budget_bytes=budget_bytes),
            inner=tuple(map(cls.from_list, inner)),
        )


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The rows of a cache: in memory, or in files."""

    origin: Origin
    rows: Held | ArrowFilesDatasource


class CacheSlot:
    """Where a `Cache` node finds its rows. Shared by all plans of this process that contain the
    node; a pickled copy is empty, but knows the directory: what functions use may have changed by
    then.
    """

    def __init__(self, place: Place | None = None) -> None:
        self._lock = threading.Lock()
        self._kept: Kept | None = None
        self._engine: weakref.ref[Any] | None = None
        self._place = place

    def __reduce__(self) -> tuple[type[CacheSlot], tuple[Place | None]]:
        return (CacheSlot, (self._place,))

    def kept(self, node: Cache) -> Kept | None:
        """The rows, if they are there; `node` is the one that this is the slot of, as the program
        wrote it.
        """
        if node.path is not None:
            return self.place(node).kept()
        with self._lock:
            if self._engine is not None and self._engine() is not api.ensure_engine():
                self._kept = self._engine = None  # the blocks have gone with their engine
            return self._kept

    def fill(self, kept: Kept) -> None:
        """From now on these are the rows. Whoever comes first counts."""
        with self._lock:
            if self._kept is None:
                self._kept, self._engine = kept, weakref.ref(api.ensure_engine())

    def place(self, node: Cache) -> Place:
        """Where the files of a cache with a path lie."""
        with self._lock:
            if self._place is None:
                assert node.path is not None
                filesystem, (path,) = filesystems.resolve(node.path)
                self._place = Place(filesystem, storage.join(path, _key(node.input)))
            return self._place


@dataclass(frozen=True)
class Place:
    """The directory of one plan on one input."""

    filesystem: pyarrow_fs.FileSystem
    directory: str

    def kept(self) -> Kept | None:
        """What lies there."""
        manifest = arrow_files.read_manifest(self.filesystem, self.directory)
        if manifest is None:
            return None
        return Kept(
            origin=Origin.from_list(manifest.origin),
            rows=ArrowFilesDatasource(self.filesystem, self.directory, manifest),
        )


# -- what an execution does


@dataclass(frozen=True, kw_only=True)
class CacheUse:
    """What one execution does about one cache: it reads what was kept, or computes the input as
    `origin` says, and may keep that.
    """

    origin: Origin
    kept: Kept | None = None
    node: Cache | None = None
    """As the program wrote it, if it is empty."""


@dataclass(frozen=True, kw_only=True)
class CacheUses:
    """What one execution does about its caches."""

    states: tuple[Any, ...] = ()
    """For restart points, JSON: of each cache [whether it is read, its origin, the states of the
    caches below it].
    """
    as_recorded: bool = True
    """Whether the same caches are read as in the execution whose states were given."""
    by_slot: dict[int, CacheUse] = field(default_factory=dict)
    """By the id of the slot."""
    keeps: bool = False
    """Whether empty ones are to be filled: only by an execution that begins at the first row."""

    def of(self, node: Cache, otherwise: Origin) -> CacheUse:
        """What to do about a cache, wherever rules have moved it; a plan that was not settled has
        empty caches, which stay so.
        """
        return self.by_slot.get(id(node.slot)) or CacheUse(origin=otherwise)

    def writer(
        self, use: CacheUse, context: DataContext
    ) -> MemoryCacheWriter | FileCacheWriter | None:
        """For one stage; None where nothing is to be kept."""
        if use.node is None or not self.keeps:
            return None
        if use.node.path is None:
            return MemoryCacheWriter(use.node.slot, use.origin)
        return FileCacheWriter(
            use.node.slot.place(use.node), use.origin, tuple(context.retried_io_errors)
        )


def settle(node: Node, origin: Origin, recorded: Sequence[Any] | None = None) -> CacheUses:
    """What an execution of a plan does about its caches.

    Args:
        node: The plan, as the program wrote it.
        origin: Seed and shape of the execution.
        recorded: `states` of the execution that it continues; None for a new one.
    """
    states, as_recorded, by_slot = [], True, {}
    tops = _topmost(node)
    if recorded is not None and len(recorded) != len(tops):
        raise ValueError(
            f"the restart point tells of {len(recorded)} caches, but the plan has {len(tops)}: "
            "it belongs to another plan"
        )
    for number, each in enumerate(tops):
        was_read, earlier, below = (None, None, None) if recorded is None else recorded[number]
        wanted = None if earlier is None else Origin.from_list(earlier)
        kept = each.slot.kept(each)
        if kept is not None and wanted in (None, kept.origin):
            by_slot[id(each.slot)] = CacheUse(origin=kept.origin, kept=kept)
            states.append([True, kept.origin.to_list(), []])
            as_recorded = as_recorded and was_read is not False
            continue
        if wanted is not None and not below:
            below = [[True, inner.to_list(), []] for inner in wanted.inner]
        inner = settle(each.input, wanted or origin, below)
        own = dataclasses.replace(
            wanted or origin, inner=tuple(Origin.from_list(state[1]) for state in inner.states)
        )
        by_slot |= inner.by_slot
        by_slot[id(each.slot)] = CacheUse(origin=own, node=each if kept is None else None)
        states.append([False, own.to_list(), list(inner.states)])
        as_recorded = as_recorded and was_read is not True and inner.as_recorded
    return CacheUses(states=tuple(states), as_recorded=as_recorded, by_slot=by_slot)


def answered(node: Node) -> Node:
    """The plan with what was kept in the place of filled caches: for questions about it, not for
    its execution.
    """
    filled = {
        id(each): kept for each in _topmost(node) if (kept := each.slot.kept(each)) is not None
    }
    if not filled:
        return node

    def replace(changed: Node, original: Node) -> Node:
        kept = filled.get(id(original))
        if kept is None:
            return changed
        return kept.rows if isinstance(kept.rows, Held) else Read(source=kept.rows)

    return rewrite_bottom_up(node, replace)


def _topmost(node: Node) -> tuple[Cache, ...]:
    """The caches that a plan reads, each once, without those that only they read."""
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


# -- keepers


class MemoryCacheWriter:
    """Fills a slot with references to the blocks; the object store moves to disk what does not fit
    into memory.
    """

    needs_store = True

    def __init__(self, slot: CacheSlot, origin: Origin) -> None:
        self._slot = slot
        self._origin = origin
        self._blocks: list[OutputBlock] = []

    def begin(self) -> None:
        """Nothing is prepared."""

    def add(self, block: OutputBlock) -> None:
        """Hold on to a block."""
        self._blocks.append(block)

    def complete(self) -> None:
        """Fill the slot."""
        # The schema of one block has to do: looking into all of them would bring back what has been
        # moved to disk.
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
        self._slot.fill(Kept(origin=self._origin, rows=Held(blocks=found)))
        self._blocks = []

    def discard(self) -> None:
        """Let go of the blocks."""
        self._blocks = []


class FileCacheWriter:
    """Publishes the files that the tasks of a stage have written.

    Args:
        place: Where.
        origin: Of the rows.
        patterns: Errors that are tried again.
    """

    needs_store = False

    def __init__(self, place: Place, origin: Origin, patterns: tuple[str, ...]) -> None:
        self._place = place
        self._origin = origin
        self._patterns = patterns
        self._data = f"{arrow_files.DATA_PREFIX}{secrets.token_hex(8)}"
        self._lock: DirectoryLock | None = None
        self._files: list[ArrowFile] = []
        self._schema: pa.Schema | None = None

    def step(self, name: str) -> CacheWriteStep:
        """What writes the blocks."""
        return CacheWriteStep(
            name=name,
            filesystem=self._place.filesystem,
            directory=self._place.directory,
            data=self._data,
            patterns=self._patterns,
        )

    def begin(self) -> None:
        """Delete what programs that were killed have left, and say that this directory is in
        use.
        """
        for left in arrow_files.writer_directories(self._place.filesystem, self._place.directory):
            # Elsewhere nobody can know whether the writer lives.
            lock = (
                DirectoryLock.try_acquire(self._place.filesystem, left)
                if storage.is_local(self._place.filesystem)
                else None
            )
            if lock is not None:
                if not self._is_published(left):
                    self._delete(left)
                lock.release()
        filesystems.make_directory(self._place.filesystem, self._own)
        self._lock = DirectoryLock.try_acquire(self._place.filesystem, self._own)

    def add(self, block: OutputBlock) -> None:
        """Note a block: the task that made it has written it."""
        name = arrow_files.file_name(self._data, len(self._files))
        if self._schema is None or (
            block.num_rows and not any(file.num_rows for file in self._files)
        ):
            self._schema = block.table().schema
        self._files.append(
            ArrowFile(name=name, num_rows=block.num_rows, size_bytes=block.size_bytes)
        )

    def complete(self) -> None:
        """Publish the manifest, unless somebody else was first."""
        manifest = Manifest(
            files=tuple(self._files), schema=self._schema, origin=self._origin.to_list()
        )
        faults.reach("data.cache.complete")
        if not arrow_files.publish(
            self._place.filesystem, self._place.directory, self._data, manifest
        ):
            self._delete(self._own)
        faults.reach("data.cache.published")
        self._release()

    def discard(self) -> None:
        """Delete what was written."""
        self._delete(self._own)
        self._release()

    @property
    def _own(self) -> str:
        return storage.join(self._place.directory, self._data)

    def _is_published(self, directory: str) -> bool:
        kept = self._place.kept()
        return (
            kept is not None
            and isinstance(kept.rows, ArrowFilesDatasource)
            and kept.rows.is_written_to(directory)
        )

    def _delete(self, directory: str) -> None:
        try:
            self._place.filesystem.delete_dir(directory)
        except (
            OSError
        ):  # a task that was given up is still writing; the next one to fill the cache deletes it
            logger.debug("%s could not be deleted", directory, exc_info=True)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()


# -- which rows these are


def _key(node: Node) -> str:
    """Name of the directory for the rows of a plan: another one for another plan, or when a source
    has changed.
    """
    digest = hashlib.sha256(signature(node, with_state=True).encode())
    for each in walk(node):
        if isinstance(each, Held):
            for block in each.blocks:
                digest.update(_content_of(block).encode())
    return digest.hexdigest()[:32]


def _content_of(block: HeldBlock) -> str:
    """A digest of all rows: signatures look at a few of them only, but what is kept must never be
    that of others.
    """
    table = held.table_of(block)
    sink = _Digest()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), table.schema) as background_writer:
        background_writer.write_table(table.combine_chunks())
    return sink.hash.hexdigest()


class _Digest:
    """A file that keeps nothing but a digest of what is written."""

    closed = False

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""
