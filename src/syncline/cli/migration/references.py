"""Where a module uses what it imports from Ray: the dotted names, and those that say `ray`
themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst
from libcst.metadata import Access, Scope

from syncline.cli.migration.imports import Imported, nodes_of
from syncline.cli.migration.surface import RAY

IN_STRING = re.compile(rf"(?<![\w.'\"]){RAY}((?:\.\w+)*)(?![\w'\"])")
"""The name in an annotation that is a string; quoted again, as in `Literal["ray"]`, it is a
value.
"""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A use.

    Attributes:
        node: The name in the program, or the string annotation that has it.
        scope: Where the name is bound.
        name: What it is in Ray, with the attributes that follow.
        call: The call whose function it is.
        through_ray: Whether the program says `ray` here because of an import that does not say
            another name.
    """

    node: libcst.Name | libcst.SimpleString
    scope: Scope
    name: str
    call: libcst.Call | None
    through_ray: bool


def references(
    scopes: list[Scope],
    names: Mapping[libcst.CSTNode, Imported],
    parents: Mapping[libcst.CSTNode, libcst.CSTNode],
) -> Iterator[Reference]:
    """Every use of a name in `names`, and for those that are bound as `ray` without saying so also
    uses in string annotations.
    """
    for scope in scopes:
        for access in scope.accesses:
            if isinstance(access.node, libcst.SimpleString):
                yield from _in_string(access, access.node, names)
            elif not isinstance(access.node, libcst.BaseString):
                yield from _in_code(access, access.node, names, parents)


def _bound(
    access: Access, name: str, names: Mapping[libcst.CSTNode, Imported]
) -> Iterator[tuple[Scope, Imported]]:
    """What the name stands for there, whichever of the scope's assignments came last."""
    for node, assignment in nodes_of(access.scope[name]).items():
        if node in names:
            yield assignment.scope, names[node]


def _in_code(
    access: Access,
    node: libcst.Name | libcst.Attribute,
    names: Mapping[libcst.CSTNode, Imported],
    parents: Mapping[libcst.CSTNode, libcst.CSTNode],
) -> Iterator[Reference]:
    root: libcst.BaseExpression = node
    while isinstance(root, libcst.Attribute):
        root = root.value
    if not isinstance(root, libcst.Name):
        return
    found = next(_bound(access, root.value, names), None)
    if found is None:
        return
    scope, imported = found
    name: str = imported.target
    top: libcst.BaseExpression = root
    while isinstance(parent := parents[top], libcst.Attribute) and parent.value is top:
        name, top = f"{name}.{parent.attr.value}", parent
    call = parent if isinstance(parent, libcst.Call) and parent.func is top else None
    yield Reference(node=root, scope=scope, name=name, call=call, through_ray=imported.implied)


def _in_string(
    access: Access, node: libcst.SimpleString, names: Mapping[libcst.CSTNode, Imported]
) -> Iterator[Reference]:
    found = next((pair for pair in _bound(access, RAY, names) if pair[1].implied), None)
    if found is not None:
        for match in IN_STRING.finditer(node.raw_value):
            yield Reference(
                node=node, scope=found[0], name=match.group(), call=None, through_ray=True
            )
