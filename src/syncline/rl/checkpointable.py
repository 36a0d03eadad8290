"""`Checkpointable`: state that is saved to a directory and restored from it.

Layout of a directory, the same as RLlib's:

    metadata.json               description for people; rllib_checkpoint.json in algorithms
    class_and_ctor_args.pkl     the class and the arguments of its constructor
    state.pkl | state.msgpack   the state without components; module_state in modules
    COMPONENT/...               a directory of the same layout for each component

Covered: atomic writes, URIs, components by path, classes that moved, checkpoints of RLlib with
classes that exist here. Not covered: the content of states, which each class defines.
"""

from __future__ import annotations

import abc
import inspect
import io
import json
import os
import pickle
import shutil
import tempfile
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle

from syncline.rl import array_msgpack
from syncline.rl.value_types import CallArguments, Components, Options
from syncline.rl.value_types import StateDict as StateDict
from syncline.storage import filesystem as files
from syncline.suggestions import did_you_mean

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from syncline.runs.json_values import JsonObject
    from syncline.train.checkpoint import Checkpoint

CheckpointableT = TypeVar("CheckpointableT", bound="Checkpointable")

CHECKPOINT_VERSION = "2.1"
"""Version of the layout, in RLlib's numbering."""
_STAGED = f"{files.TEMPORARY_PREFIX}checkpoint-"


class Checkpointable(abc.ABC):
    """A component that can be saved to a directory and restored from it.

    Subclasses implement `get_state`, `set_state` and `get_ctor_args_and_kwargs`. If they consist of
    components with separate directories, they also implement `get_checkpointable_components`. A
    state contains NumPy arrays rather than tensors, so that it can be read without a framework.
    """

    STATE_FILE_NAME = "state"
    """Name of the state file without extension."""
    CLASS_AND_CTOR_ARGS_FILE_NAME = "class_and_ctor_args.pkl"
    """Name of the file with the class and its constructor's arguments."""
    METADATA_FILE_NAME = "metadata.json"
    """Name of the file that describes the checkpoint."""

    @abc.abstractmethod
    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> StateDict:
        """Return the state, or the parts in `components` without those in `not_components`."""

    @abc.abstractmethod
    def set_state(self, state: StateDict) -> None:
        """Set the state; parts that are missing in `state` do not change."""

    @abc.abstractmethod
    def get_ctor_args_and_kwargs(self) -> CallArguments:
        """Return the positional and keyword arguments that construct an equal object."""

    def get_checkpointable_components(self) -> Components:
        """Return pairs of component name and component, each a `Checkpointable`."""
        return []

    def get_metadata(self) -> JsonObject:
        """Return the content of `METADATA_FILE_NAME`; JSON values only."""
        return {
            "class_and_ctor_args_file": self.CLASS_AND_CTOR_ARGS_FILE_NAME,
            "state_file": self.STATE_FILE_NAME,
            "class": f"{type(self).__module__}.{type(self).__qualname__}",
            "checkpoint_version": CHECKPOINT_VERSION,
        }

    def save_to_path(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        state: StateDict | None = None,
        filesystem: FileSystem | None = None,
        use_msgpack: bool = False,
    ) -> str:
        """Save to a directory and return its path.

        A local checkpoint is complete or absent: it is written next to `path`, flushed to disk and
        renamed. It replaces an existing checkpoint but keeps unrelated files in the directory.

        Args:
            path: Directory or URI; a new temporary directory if None.
            state: State to save instead of `get_state()`; missing components are not saved.
            filesystem: Filesystem of `path`; by default derived from it.
            use_msgpack: Write states as msgpack instead of pickle.
        """
        if path is None:
            path = tempfile.mkdtemp(prefix="syncline-checkpoint-")
        filesystem, target = files.resolve(path, filesystem)
        staged_above = any(part.startswith(_STAGED) for part in PurePath(target).parts)
        if not files.is_local(filesystem) or staged_above:
            self._write(filesystem, target, state, use_msgpack)
            return target
        parent = os.path.dirname(target)
        os.makedirs(parent, exist_ok=True)
        staged = files.join(parent, f"{_STAGED}{uuid.uuid4().hex}")
        try:
            self._write(filesystem, staged, state, use_msgpack)
            files.sync_directory(staged)
            _publish(filesystem, staged, target, self.METADATA_FILE_NAME)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        return target

    def _write(
        self, filesystem: FileSystem, target: str, state: StateDict | None, use_msgpack: bool
    ) -> None:
        """Write all files of the checkpoint, the metadata last: it marks a complete checkpoint."""
        components = dict(self.get_checkpointable_components())
        if state is None:
            own, parts = self.get_state(not_components=list(components)), dict.fromkeys(components)
        else:
            own = {name: value for name, value in state.items() if name not in components}
            parts = {name: state[name] for name in components if name in state}
        for name, part in parts.items():
            components[name].save_to_path(
                files.join(target, name), state=part, filesystem=filesystem, use_msgpack=use_msgpack
            )
        constructor = {"class": type(self), "ctor_args_and_kwargs": self.get_ctor_args_and_kwargs()}
        extension, data = (
            ("msgpack", array_msgpack.pack(own)) if use_msgpack else ("pkl", cloudpickle.dumps(own))
        )
        written = {
            f"{self.STATE_FILE_NAME}.{extension}": data,
            self.CLASS_AND_CTOR_ARGS_FILE_NAME: cloudpickle.dumps(constructor),
        }
        entries = {"components": list(parts), "files": [*written, self.METADATA_FILE_NAME]}
        written[self.METADATA_FILE_NAME] = json.dumps(self.get_metadata() | entries).encode()
        for name, content in written.items():
            files.write_bytes(filesystem, files.join(target, name), content, durable=False)

    def restore_from_path(
        self,
        path: str | os.PathLike[str] | Checkpoint,
        *,
        component: str | None = None,
        filesystem: FileSystem | None = None,
        **kwargs: object,
    ) -> None:
        """Restore the state that was saved to a directory.

        Args:
            path: Directory or URI of a checkpoint.
            component: Path of a single component to restore, such as "learner_group/learner";
                `path` is then a checkpoint of this component.
            filesystem: Filesystem of `path`; by default derived from it.
            **kwargs: Passed to the components.

        Raises:
            FileNotFoundError: The directory does not exist or contains no state.
            ValueError: This object has no such component.
        """
        filesystem, source = _locate(path, filesystem)
        if not files.is_directory(filesystem, source):
            raise FileNotFoundError(f"The checkpoint directory {source!r} does not exist.")
        if component is not None:
            self._restore_component(component, source, filesystem, **kwargs)
            return
        known = self._restore_components(filesystem, source, without=frozenset(), **kwargs)
        self.set_state(self._read_state(filesystem, source))
        # The state may have added components, such as modules that were added while training.
        self._restore_components(filesystem, source, without=known, **kwargs)

    def _restore_component(
        self, path: str, source: str, filesystem: FileSystem, **kwargs: object
    ) -> None:
        components = dict(self.get_checkpointable_components())
        # Names may contain slashes, so the longest matching name is the component.
        for name in sorted(components, key=len, reverse=True):
            if path == name or path.startswith(f"{name}/"):
                components[name].restore_from_path(
                    source, component=path[len(name) + 1 :] or None, filesystem=filesystem, **kwargs
                )
                return
        raise ValueError(
            f"`component={path!r}`: {type(self).__name__} has no such component."
            f"{did_you_mean(path.partition('/')[0], components)} It has "
            f"{', '.join(components) or 'none'}."
        )

    def _restore_components(
        self, filesystem: FileSystem, source: str, *, without: Collection[str], **kwargs: object
    ) -> frozenset[str]:
        """Restore the components in the checkpoint; return the names of all components."""
        components = dict(self.get_checkpointable_components())
        for name, component in components.items():
            directory = files.join(source, name)
            if name not in without and files.is_directory(filesystem, directory):
                component.restore_from_path(directory, filesystem=filesystem, **kwargs)
        return frozenset(components)

    def saved_state(
        self, path: str | os.PathLike[str] | Checkpoint, filesystem: FileSystem | None = None
    ) -> StateDict:
        """Return the state in a checkpoint without the states of its components.

        Raises:
            FileNotFoundError: The checkpoint does not exist.
        """
        filesystem, source = _locate(path, filesystem)
        if not files.is_directory(filesystem, source):
            raise FileNotFoundError(f"The checkpoint directory {source!r} does not exist.")
        return self._read_state(filesystem, source)

    def _read_state(self, filesystem: FileSystem, source: str) -> StateDict:
        path = files.join(source, self.STATE_FILE_NAME)
        packed = files.read_bytes(filesystem, f"{path}.msgpack")
        if packed is not None:
            return dict(array_msgpack.unpack(packed))
        pickled = files.read_bytes(filesystem, f"{path}.pkl")
        if pickled is None:
            raise FileNotFoundError(
                f"{source!r} is not a checkpoint of {type(self).__name__}: it contains neither "
                f"{self.STATE_FILE_NAME}.pkl nor {self.STATE_FILE_NAME}.msgpack. To restore only a "
                "component, pass `component=...`."
            )
        return dict(read_pickle(pickled, source))

    @classmethod
    def from_checkpoint(
        cls: type[CheckpointableT],
        path: str | os.PathLike[str] | Checkpoint,
        filesystem: FileSystem | None = None,
        **kwargs: object,
    ) -> CheckpointableT:
        """Return a new object of the saved class, with the saved state.

        Args:
            path: Directory, URI or `Checkpoint`.
            filesystem: Filesystem of `path`; by default derived from it.
            **kwargs: Constructor arguments that replace the saved ones; if the saved class cannot
                be loaded, all constructor arguments of the class on which this method is called.
                Other arguments are passed to `restore_from_path`.

        Raises:
            FileNotFoundError: The checkpoint does not exist.
            ValueError: The saved class is not a subclass of the class on which this is called.
            ImportError: The saved class cannot be loaded, and no constructor arguments were passed.
        """
        filesystem, source = _locate(path, filesystem)
        try:
            saved_class, args, keywords = cls.saved_arguments(source, filesystem)
        except ImportError:
            if not kwargs or inspect.isabstract(cls):
                raise
            constructed, rest = _construct(cls, (), {}, kwargs)
        else:
            if not issubclass(saved_class, cls):
                raise ValueError(
                    f"{source!r} contains a {saved_class.__qualname__}, which is not a "
                    f"{cls.__qualname__}. Call {saved_class.__qualname__}.from_checkpoint()."
                )
            constructed, rest = _construct(saved_class, args, keywords, kwargs)
        constructed.restore_from_path(source, filesystem=filesystem, **rest)
        return constructed

    @classmethod
    def saved_arguments(
        cls, path: str | os.PathLike[str] | Checkpoint, filesystem: FileSystem | None = None
    ) -> tuple[type, tuple[object, ...], Options]:
        """Return the class in a checkpoint and its constructor arguments.

        Raises:
            FileNotFoundError: The checkpoint does not exist.
            ImportError: The class cannot be loaded.
        """
        filesystem, source = _locate(path, filesystem)
        content = files.read_bytes(
            filesystem, files.join(source, cls.CLASS_AND_CTOR_ARGS_FILE_NAME)
        )
        if content is None:
            raise FileNotFoundError(
                f"{source!r} is not a checkpoint: {cls.CLASS_AND_CTOR_ARGS_FILE_NAME} is missing."
            )
        saved = read_pickle(content, source)
        args, keywords = saved["ctor_args_and_kwargs"]
        return saved["class"], tuple(args), dict(keywords)

    def _check_component(
        self,
        name: str,
        components: str | Collection[str] | None,
        not_components: str | Collection[str] | None,
    ) -> bool:
        """Return True if a state of `components` without `not_components` includes `name`."""
        wanted = components is None or any(
            each == name or each.startswith(f"{name}/") for each in _names(components)
        )
        return wanted and name not in _names(not_components)

    def _get_subcomponents(
        self, name: str, components: str | Collection[str] | None
    ) -> list[str] | None:
        """Return the components below `name`, relative to it, or None."""
        below = [
            each[len(name) + 1 :] for each in _names(components) if each.startswith(f"{name}/")
        ]
        return below or None


def read_pickle(data: bytes, origin: str) -> Any:
    """Unpickle, and load syncline's classes for RLlib's.

    Raises:
        ImportError: A class cannot be loaded; the message names it and a remedy.
    """
    unpickler = _Unpickler(io.BytesIO(data))
    try:
        return unpickler.load()
    except (ImportError, AttributeError) as error:
        if unpickler.missing is None:
            raise
        module, name = unpickler.missing
        raise ImportError(
            f"The checkpoint in {origin!r} needs `{name}` of the module `{module}`, which cannot "
            f"be loaded ({error}). Make it importable under that name again (PYTHONPATH, or an "
            f"alias `sys.modules[{module!r}] = new_module`), or call `from_checkpoint` of its new "
            "class with the arguments of its constructor.",
            name=module,
        ) from error


class _Unpickler(pickle.Unpickler):
    """Unpickler that maps RLlib's classes to syncline's and remembers a missing name."""

    missing: tuple[str, str] | None = None

    def find_class(self, module_name: str, global_name: str) -> Any:
        if module_name.startswith("ray.cloudpickle"):
            module_name = module_name.removeprefix("ray.")
        elif module_name.startswith("ray."):
            with suppress(ImportError, AttributeError):
                return super().find_class(f"syncline{module_name[3:]}", global_name)
        try:
            return super().find_class(module_name, global_name)
        except (ImportError, AttributeError):
            self.missing = (module_name, global_name)
            raise


def _construct(
    cls: type[CheckpointableT],
    args: Iterable[object],
    saved: Mapping[str, object],
    given: Mapping[str, object],
) -> tuple[CheckpointableT, Options]:
    """Construct with the saved arguments updated by `kwargs`; return the unused arguments too."""
    parameters = inspect.signature(cls).parameters
    positional, keywords, rest = list(args), dict(saved), {}
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    order = list(parameters)
    for name, value in given.items():
        if name in order and order.index(name) < len(positional):
            positional[order.index(name)] = value
        elif name in parameters or name in keywords or (takes_all and not saved):
            keywords[name] = value
        else:
            rest[name] = value
    return cls(*positional, **keywords), rest


def _publish(filesystem: FileSystem, staged: str, target: str, metadata_file: str) -> None:
    """Rename a complete directory to `target`, but keep unrelated entries of `target`."""
    with suppress(OSError):  # missing or empty directory
        os.rename(staged, target)
        return
    replaced = {*os.listdir(staged), *_entries_of_checkpoint(target, metadata_file)}
    for name in set(os.listdir(target)) - replaced:
        _link(files.join(target, name), files.join(staged, name))
    if not files.exchange(staged, target):
        files.delete_directory(filesystem, target)
        os.rename(staged, target)


def _entries_of_checkpoint(directory: str, metadata_file: str) -> list[str]:
    """Return the names of the checkpoint's entries in `directory`."""
    try:
        with open(files.join(directory, metadata_file), encoding="utf-8") as file:
            metadata = json.load(file)
        names = [*metadata.get("components", ()), *metadata.get("files", ())]
        return [name.partition("/")[0] for name in names]
    except (OSError, ValueError):
        return []


def _link(source: str, target: str) -> None:
    """Link or copy a file or directory to another name."""

    def link(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, target, copy_function=link, symlinks=True)
    else:
        link(source, target)


def _locate(
    path: str | os.PathLike[str] | Checkpoint, filesystem: FileSystem | None
) -> tuple[FileSystem, str]:
    """Return the filesystem and the path of a directory, URI or `Checkpoint`."""
    if not isinstance(path, str | os.PathLike):
        return path.filesystem, path.path
    return files.resolve(path, filesystem)


def _names(components: str | Collection[str] | None) -> list[str]:
    if components is None:
        return []
    return [components] if isinstance(components, str) else list(components)
