"""Nodes of a graph of tasks and actor calls, and its execution.

A node holds the arguments of one call, among which are other nodes. `execute` submits the calls
that a node needs, each once, and returns what `.remote()` would. Every execution of a `ClassNode`
starts a separate actor. Methods of one `ClassNode` run in the order in which they were bound,
and executing one of them executes those before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, Protocol, cast

from syncline.core.dag import nested_nodes
from syncline.core.dag.compiled import CompiledDAG, GraphInput
from syncline.core.dag.nested_nodes import NestedNode

_TRANSPORTS = ("auto", "shm", "nccl", "accelerator")
_DEVICES = ("default", "cpu", "gpu", "cuda")
Results = Mapping[str, Any]
"""Results of an execution so far, by the id of the node."""


class Callee(Protocol):
    """A remote function, an actor class, or a method of an actor."""

    def remote(self, *args: object, **kwargs: object) -> Any:
        """Submit one call."""

    def options(self, **options: object) -> Any:
        """Return the same with other options."""


class BoundMethod(Callee, Protocol):
    """A method of an actor."""

    @property
    def name(self) -> str:
        """Name of the method."""

    @property
    def actor_id(self) -> int:
        """The actor."""

    @property
    def actor_call(self) -> Callee:
        """Method of the actor that calls a function with it."""


class DAGNode(NestedNode):
    """Base of the nodes."""

    def __init__(
        self, args: Sequence[object], kwargs: Mapping[str, object], before: Sequence[DAGNode] = ()
    ) -> None:
        """`before` are nodes that are executed before this one, besides those in the arguments."""
        self._args = tuple(args)
        self._kwargs = dict(kwargs)
        self._stable_uuid = os.urandom(16).hex()
        self._is_compiled = False
        nested = cast("list[DAGNode]", nested_nodes.find([self._args, self._kwargs]))
        self._needs = [*before, *nested]

    def execute(self, *args: object, _ray_cache_refs: bool = False, **kwargs: object) -> Any:
        """Submit the calls of the graph that ends in this node.

        The arguments are the values of the graph's `InputNode`. Returns a reference; for several
        return values and for a `MultiOutputNode` a list; for a `ClassNode` the actor's handle.
        """
        results: dict[str, Any] = {}
        for node in self._in_order():
            results[node._stable_uuid] = node._run(results, args, kwargs)
        return results[self._stable_uuid]

    def experimental_compile(
        self,
        _submit_timeout: float | None = None,
        _buffer_size_bytes: int | None = None,
        enable_asyncio: bool = False,
        _max_inflight_executions: int | None = None,
        _max_buffered_results: int | None = None,
        _overlap_gpu_communication: bool | None = None,
        _default_communicator: object = "create",
    ) -> CompiledDAG:
        """Check the graph and its input; return an object that executes it many times.

        The arguments about channels have no effect. Raises ValueError if the node was compiled
        before, if the graph has no `InputNode`, uses it both as a whole and by keys, or calls
        methods of a `ClassNode`.
        """
        if self._is_compiled:
            raise ValueError(
                f"{self!r} was compiled before: use the first result, or bind new nodes"
            )
        nodes = list(self._in_order())
        graph_input = _graph_input(nodes)
        for node in nodes:
            if isinstance(node, ClassNode):
                raise ValueError(
                    f"{node!r} starts an actor in every execution, which a compiled graph cannot: "
                    f"start the actor with `.remote(...)`, and bind methods of its handle"
                )
        self._is_compiled = True
        actor_ids = {
            node.actor_id: None
            for node in nodes
            if isinstance(node, ClassMethodNode) and node.actor_id is not None
        }
        return CompiledDAG(self.execute, graph_input, list(actor_ids), uses_asyncio=enable_asyncio)

    def with_tensor_transport(
        self,
        transport: object = "auto",
        device: Literal["default", "cpu", "gpu", "cuda"] = "default",
        _static_shape: bool = False,
        _direct_return: bool = False,
    ) -> DAGNode:
        """Return the node: tensors pass through shared memory, as with "auto" and "shm".

        Raises ValueError for unknown values, and NotImplementedError for transports between GPUs
        and for moving tensors to a GPU.
        """
        if device not in _DEVICES:
            raise ValueError(f"`device={device!r}` is unknown: give one of {', '.join(_DEVICES)}")
        if isinstance(transport, str) and transport not in _TRANSPORTS:
            raise ValueError(
                f"`transport={transport!r}` is unknown: give one of {', '.join(_TRANSPORTS)}"
            )
        if transport not in ("auto", "shm") or device in ("gpu", "cuda"):
            raise NotImplementedError(
                f"with_tensor_transport(transport={transport!r}, device={device!r}): tensors of a "
                f"graph pass through shared memory. Leave the call out and move tensors with "
                f"`.to(device)` in the method, or use `torch.distributed` between GPUs."
            )
        return self

    def get_args(self) -> tuple[object, ...]:
        """Return the positional arguments."""
        return self._args

    def get_kwargs(self) -> dict[str, object]:
        """Return the keyword arguments."""
        return dict(self._kwargs)

    def get_options(self) -> dict[str, object]:
        """Return the options that the node itself sets."""
        return {}

    def get_stable_uuid(self) -> str:
        """Return an id that copies of the node share."""
        return self._stable_uuid

    def _in_order(self) -> Iterator[DAGNode]:
        """Yield the nodes that this one needs, and then itself; each once, without recursion."""
        done: set[str] = set()
        stack: list[tuple[DAGNode, bool]] = [(self, False)]
        while stack:
            node, is_ready = stack.pop()
            if node._stable_uuid in done:
                continue
            if is_ready:
                done.add(node._stable_uuid)
                yield node
            else:
                stack.append((node, True))
                stack.extend((each, False) for each in reversed(node._needs))

    def _run(self, results: Results, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        """Execute this node alone; `results` has those of the nodes that it needs."""
        raise NotImplementedError

    def _arguments(self, results: Results) -> tuple[tuple[object, ...], dict[str, Any]]:
        """Return the arguments, with results in the place of nodes."""

        def result(node: NestedNode) -> object:
            return results[cast("DAGNode", node)._stable_uuid]

        return nested_nodes.replace(self._args, result), nested_nodes.replace(self._kwargs, result)

    def __getattr__(self, name: str) -> Any:
        if name in ("bind", "remote"):
            raise AttributeError(
                f"{type(self).__name__} has no `{name}`: a bound node is executed with `.execute()`"
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._described()})"

    def _described(self) -> str:
        return ""


class FunctionNode(DAGNode):
    """A call of a remote function."""

    def __init__(
        self, function: Callee, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> None:
        self._function = function
        super().__init__(args, kwargs)

    def _run(self, results: Results, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        positional, keyword = self._arguments(results)
        return self._function.remote(*positional, **keyword)

    def _described(self) -> str:
        return str(getattr(self._function, "__name__", self._function))


class ClassNode(DAGNode):
    """The creation of an actor; its methods are attributes with `bind`."""

    def __init__(
        self, actor_class: Callee, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> None:
        self._actor_class = actor_class
        self._last_call: ClassMethodNode | None = None
        super().__init__(args, kwargs)
        if any(isinstance(node, InputNode) for node in self._in_order()):
            raise ValueError(
                f"{self!r} has an InputNode among its arguments, whose value is not known when the "
                f"class is bound: pass the input to a method instead"
            )

    def _run(self, results: Results, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        positional, keyword = self._arguments(results)
        return self._actor_class.remote(*positional, **keyword)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_actor_class" not in self.__dict__:
            raise AttributeError(name)
        cls = self._actor_class.__wrapped__  # type: ignore[attr-defined]  # an ActorClass
        if not hasattr(cls, name):
            if name == "bind":
                return super().__getattr__(name)
            raise AttributeError(f"{cls.__name__} has no method {name!r} to bind")
        return _UnboundMethod(self, name, {})

    def _described(self) -> str:
        return str(getattr(self._actor_class, "__name__", self._actor_class))


class _UnboundMethod:
    """A method of a `ClassNode`, before `bind`."""

    def __init__(self, parent: ClassNode, name: str, options: Mapping[str, object]) -> None:
        self._parent = parent
        self._name = name
        self._options = options

    def options(self, **options: object) -> _UnboundMethod:
        """Return the same method with other options."""
        return _UnboundMethod(self._parent, self._name, {**self._options, **options})

    def bind(self, *args: object, **kwargs: object) -> ClassMethodNode:
        """Return a node for one call."""
        node = ClassMethodNode(
            args, kwargs, parent=self._parent, name=self._name, options=self._options
        )
        self._parent._last_call = node
        return node

    @property
    def remote(self) -> NoReturn:
        """Raise AttributeError: the actor does not exist yet."""
        raise AttributeError(
            f"`{self._name}` belongs to a bound class, whose actor starts with the execution: use "
            f"`.bind(...)`"
        )


class ClassMethodNode(DAGNode):
    """A call of an actor's method: of a `ClassNode`, or of an actor that runs."""

    def __init__(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        *,
        name: str,
        parent: ClassNode | None = None,
        method: BoundMethod | None = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Give the `parent` with `options`, or the `method` of an actor."""
        self._name = name
        self._parent = parent
        self._method = method
        self._options = dict(options or {})
        before = [] if parent is None else [parent, parent._last_call]
        super().__init__(args, kwargs, [node for node in before if node is not None])

    @property
    def actor_id(self) -> int | None:
        """The actor; None for a method of a `ClassNode`."""
        return None if self._method is None else self._method.actor_id

    @property
    def actor_call(self) -> Callee:
        """Method that calls a function with the actor, which runs."""
        assert self._method is not None, "the actor of a `ClassNode` does not run"
        return self._method.actor_call

    def get_method_name(self) -> str:
        """Return the name of the method."""
        return self._name

    def get_options(self) -> dict[str, object]:
        """Return the options of the call."""
        return dict(self._options)

    def _run(self, results: Results, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        positional, keyword = self._arguments(results)
        method: Callee
        if self._method is not None:
            method = self._method
        else:
            assert self._parent is not None
            method = getattr(results[self._parent._stable_uuid], self._name)
        if self._options:
            method = method.options(**self._options)
        return method.remote(*positional, **keyword)

    def _described(self) -> str:
        return self._name


class MethodOutputNode(ClassMethodNode):
    """One of several return values of an actor's method."""

    def __init__(self, call: ClassMethodNode, index: int) -> None:
        super().__init__((call, index), {}, name=call.get_method_name(), method=call._method)
        self.class_method_call = call
        self.output_idx = index

    def _run(self, results: Results, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        return results[self.class_method_call._stable_uuid][self.output_idx]


def bind_method(
    method: BoundMethod, args: Sequence[object], kwargs: Mapping[str, object], num_returns: object
) -> ClassMethodNode | tuple[ClassMethodNode, ...]:
    """Bind a call of an actor's method; return a tuple of nodes for several return values."""
    node = ClassMethodNode(args, kwargs, name=method.name, method=method)
    if isinstance(num_returns, int) and num_returns > 1:
        return tuple(MethodOutputNode(node, index) for index in range(num_returns))
    return node


class DAGInputData:
    """The arguments of `execute`, if there are several."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._args = args
        self._kwargs = kwargs

    def __getitem__(self, key: int | str) -> object:
        values: Any = self._args if isinstance(key, int) else self._kwargs
        try:
            return values[key]
        except LookupError as error:  # IndexError or KeyError
            raise type(error)(
                f"the graph reads the input {key!r}, but `execute` got {len(self._args)} "
                f"positional arguments and the keywords {', '.join(self._kwargs) or 'none'}"
            ) from None


class InputNode(DAGNode):
    """The value that `execute` gets; `input[0]`, `input["key"]` and `input.name` are parts of it.

    Several arguments of `execute` are read by their index or name.
    """

    def __init__(self, *args: object, input_type: object = None, **kwargs: object) -> None:
        if args or kwargs:
            raise ValueError(
                "an InputNode takes no values: pass them to `execute` when the graph is complete"
            )
        self._parts: dict[tuple[str, int | str], InputAttributeNode] = {}
        super().__init__((), {})

    def __enter__(self) -> InputNode:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getitem__(self, key: int | str) -> InputAttributeNode:
        if isinstance(key, bool) or not isinstance(key, (int, str)):
            raise TypeError(
                f"`input[{key!r}]`: parts of the input are read by an index or a string"
            )
        return self._part("item", key)

    def __getattr__(self, name: str) -> InputAttributeNode:
        if name.startswith("__") or "_parts" not in self.__dict__:
            raise AttributeError(name)
        return self._part("attribute", name)

    def _part(self, kind: Literal["item", "attribute"], key: int | str) -> InputAttributeNode:
        if (kind, key) not in self._parts:
            self._parts[kind, key] = InputAttributeNode(self, key, kind)
        return self._parts[kind, key]

    def _run(self, results: Results, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        if len(args) == 1 and not kwargs:
            return args[0]
        return DAGInputData(*args, **kwargs)


class InputAttributeNode(DAGNode):
    """A part of the input."""

    def __init__(
        self, parent: InputNode, key: int | str, kind: Literal["item", "attribute"]
    ) -> None:
        self._parent = parent
        self._key = key
        self._kind = kind
        super().__init__((), {}, [parent])

    @property
    def key(self) -> int | str:
        """Index or name of the part."""
        return self._key

    def _run(self, results: Results, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        value = results[self._parent._stable_uuid]
        if isinstance(value, DAGInputData) or self._kind == "item":
            return value[self._key]
        return getattr(value, str(self._key))

    def _described(self) -> str:
        return repr(self._key)


class MultiOutputNode(DAGNode):
    """The end of a graph with several outputs."""

    def __init__(self, args: list[DAGNode] | tuple[DAGNode, ...]) -> None:
        if not isinstance(args, (list, tuple)):
            raise ValueError(
                f"MultiOutputNode got a {type(args).__name__}: pass a list of bound nodes"
            )
        super().__init__(args, {})

    def _run(self, results: Results, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        return list(self._arguments(results)[0])


def _graph_input(nodes: Sequence[DAGNode]) -> GraphInput:
    """Return the arguments that the graph reads; ValueError if it has no input, or uses it in two
    ways.
    """
    if not any(isinstance(node, InputNode) for node in nodes):
        raise ValueError(
            "the graph has no InputNode, so there is nothing that starts an execution: bind a "
            "method to an InputNode, or use `execute()` without compiling"
        )
    keys = [node.key for node in nodes if isinstance(node, InputAttributeNode)]
    is_direct = any(
        isinstance(each, InputNode)
        for node in nodes
        if not isinstance(node, InputAttributeNode)
        for each in node._needs
    )
    if is_direct and keys:
        raise ValueError(
            f"the graph uses its InputNode as a whole and the parts {keys}: use it in one way"
        )
    positional = [key for key in keys if isinstance(key, int)]
    return GraphInput(
        positional=1 if is_direct else max(positional, default=-1) + 1,
        names=tuple(key for key in keys if isinstance(key, str)),
    )
