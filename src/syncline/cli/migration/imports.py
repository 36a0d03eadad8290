"""What a module imports from Ray: the statements, the names that they bind, and what becomes of
each.

`import ray` becomes `import syncline`, and what refers to it is renamed too. Where that cannot be
done safely, because the program gives the name `ray` another meaning in the same scope or uses the
name `syncline` itself, it becomes `import syncline as ray`. An import of something that syncline
has not got at all stays, so that the program still says what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import libcst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import (
    Assignment,
    BaseAssignment,
    ClassScope,
    GlobalScope,
    ImportAssignment,
    Scope,
)

from syncline.cli.migration.surface import OURS, RAY, Missing, Surface


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A name that an import statement brings.

    Attributes:
        target: What it is in Ray, dotted.
        bound: The name that the program uses for it.
        root: The node in the statement that says `ray`.
        whole: The node of the whole dotted name in the statement.
        implied: Whether `bound` is `ray` because the statement says no other name; such names are
            renamed.
        kept: Whether the statement stays as it is.
    """

    target: str
    bound: str
    root: libcst.Name
    whole: libcst.BaseExpression
    implied: bool
    kept: bool


class Statements(libcst.CSTVisitor):
    """Finds the imports. `names` has them by the node that binds the name, as scopes give it;
    `stars` has `from ray.x import *`.
    """

    def __init__(self, surface: Surface) -> None:
        super().__init__()
        self.names: dict[libcst.CSTNode, Imported] = {}
        self.stars: list[Imported] = []
        self.foreign: list[libcst.ImportFrom] = []
        self._surface = surface

    def visit_Import(self, node: libcst.Import) -> None:
        for alias in node.names:
            target = get_full_name_for_node(alias.name) or ""
            if not _is_ray(target):
                continue
            named = alias.asname.name if alias.asname else None
            self.names[named or alias.name] = Imported(
                target=target if named else RAY,
                bound=get_full_name_for_node(named) or "" if named else RAY,
                root=_root(alias.name),
                whole=alias.name,
                implied=named is None,
                kept=isinstance(self._surface.find(target), Missing),
            )

    def visit_ImportFrom(self, node: libcst.ImportFrom) -> None:
        module = get_full_name_for_node(node.module) if node.module else None
        if node.relative or module is None or not _is_ray(module):
            if not isinstance(node.names, libcst.ImportStar) and any(
                alias.evaluated_name == RAY for alias in node.names
            ):
                self.foreign.append(node)
            return
        assert node.module is not None
        root = _root(node.module)
        if isinstance(node.names, libcst.ImportStar):
            kept = isinstance(self._surface.find(module), Missing)
            self.stars.append(
                Imported(
                    target=module, bound="*", root=root, whole=node.module, implied=False, kept=kept
                )
            )
            return
        targets = {alias: f"{module}.{alias.evaluated_name}" for alias in node.names}
        kept = all(isinstance(self._surface.find(target), Missing) for target in targets.values())
        for alias, target in targets.items():
            self.names[alias.asname.name if alias.asname else alias.name] = Imported(
                target=target,
                bound=alias.evaluated_alias or alias.evaluated_name,
                root=root,
                whole=alias.name,
                implied=False,
                kept=kept,
            )


def _is_ray(dotted: str) -> bool:
    return dotted == RAY or dotted.startswith(RAY + ".")


def _root(node: libcst.BaseExpression) -> libcst.Name:
    while isinstance(node, libcst.Attribute):
        node = node.value
    assert isinstance(node, libcst.Name)
    return node


def nodes_of(assignments: Iterable[BaseAssignment]) -> dict[libcst.CSTNode, BaseAssignment]:
    """Assignments by the nodes that bind the name; those of Python's own names have none."""
    return {
        assignment.as_name
        if isinstance(assignment, ImportAssignment)
        else assignment.node: assignment
        for assignment in assignments
        if isinstance(assignment, Assignment)
    }


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The name `ray` in one scope.

    Attributes:
        imports: The imports that bind it there.
        emptied: Nodes where the scope sets it to None, as after a failed import.
        renamed: Whether `ray` becomes `syncline` here; otherwise the import gives it the old name.
        kept: Dotted names whose imports stay, and what is reached through them.
    """

    imports: tuple[Imported, ...]
    emptied: tuple[libcst.Name, ...]
    renamed: bool
    kept: frozenset[str]

    @property
    def stays(self) -> bool:
        """Whether nothing of it changes, as there are only imports that stay."""
        return all(imported.kept for imported in self.imports)

    def keeps(self, name: str) -> bool:
        """Whether a dotted name of Ray's is reached through an import that stays."""
        return self.stays or any(name == kept or name.startswith(kept + ".") for kept in self.kept)


def bindings(
    scopes: Iterable[Scope],
    names: Mapping[libcst.CSTNode, Imported],
    parents: Mapping[libcst.CSTNode, libcst.CSTNode],
    exported: Sequence[str],
) -> dict[Scope, Binding]:
    """By scope, for those in which an import binds the name `ray` without saying so.

    Args:
        scopes: All scopes of the module.
        names: What it imports from Ray.
        parents: The parent of each node.
        exported: The names in `__all__`.
    """
    scopes = list(scopes)
    taken = any(
        _is_ours_otherwise(assignment) for scope in scopes for assignment in scope.assignments[OURS]
    )
    found: dict[Scope, Binding] = {}
    for scope in scopes:
        nodes = nodes_of(scope.assignments[RAY])
        imports = tuple(names[node] for node in nodes if node in names and names[node].implied)
        if not imports:
            continue
        others = [node for node in nodes if node not in names or not names[node].implied]
        emptied = tuple(
            node
            for node in others
            if isinstance(node, libcst.Name) and _is_set_to_none(node, parents)
        )
        renamed = not (
            taken
            or len(emptied) < len(others)
            or isinstance(scope, ClassScope)  # its names are attributes of the class too
            or (isinstance(scope, GlobalScope) and RAY in exported)
        )
        kept = (
            frozenset(
                get_full_name_for_node(imported.whole) or ""
                for imported in imports
                if imported.kept
            )
            if renamed
            else frozenset()
        )
        found[scope] = Binding(imports=imports, emptied=emptied, renamed=renamed, kept=kept)
    return found


def _is_ours_otherwise(assignment: object) -> bool:
    """Whether the name `syncline` is bound to something else than the package."""
    if not isinstance(assignment, ImportAssignment) or not isinstance(
        assignment.node, libcst.Import
    ):
        return True
    return all(
        alias.asname is not None and alias.asname.name is assignment.as_name
        for alias in assignment.node.names
    )


def _is_set_to_none(node: libcst.Name, parents: Mapping[libcst.CSTNode, libcst.CSTNode]) -> bool:
    parent = parents[node]
    statement = parents[parent] if isinstance(parent, libcst.AssignTarget) else parent
    return (
        isinstance(statement, libcst.Assign | libcst.AnnAssign)
        and isinstance(statement.value, libcst.Name)
        and statement.value.value == "None"
    )
