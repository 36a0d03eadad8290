"""One module: what to change in it, and what to say about it. Pure, but that the names are looked
up in syncline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst
from libcst.metadata import (
    ByteSpanPositionProvider,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    Scope,
    ScopeProvider,
)

from syncline.cli.migration import remedies
from syncline.cli.migration.edits import Edit, Examination, Note, NoteKind, Unparsable
from syncline.cli.migration.imports import Binding, Statements, bindings
from syncline.cli.migration.references import IN_STRING, Reference, references
from syncline.cli.migration.strings import Strings
from syncline.cli.migration.surface import (
    OURS,
    RAY,
    Known,
    Missing,
    Surface,
    ours,
    own_variables,
    unknown_arguments,
)

_WORD = re.compile(rb"\b" + RAY.encode() + rb"\b")
NAMES_SOMETHING_ELSE = f"it comes from a module of the program's own: if that gets it by `import {RAY}`, the name there is now `{OURS}`"


def examine(text: str, surface: Surface) -> Examination:
    """What a module needs.

    Raises:
        Unparsable: It is no Python that can be read.
    """
    try:
        module = libcst.parse_module(text)
    except libcst.ParserSyntaxError as error:
        raise Unparsable(f"line {error.raw_line}: {error.message}") from None
    except (RecursionError, ValueError) as error:
        raise Unparsable(str(error)) from None
    try:
        found = _Examiner(MetadataWrapper(module, unsafe_skip_copy=True), surface).result()
    except RecursionError:
        raise Unparsable("its expressions are nested too deeply") from None
    return (
        found
        if module.code == text
        else Examination(edits=_in_original(found.edits, module.code, text), notes=found.notes)
    )


class _Examiner:
    """Goes through one module; `result` may be asked for once."""

    def __init__(self, wrapper: MetadataWrapper, surface: Surface) -> None:
        self._module = wrapper.module
        self._data = wrapper.module.code.encode()
        self._surface = surface
        self._spans = wrapper.resolve(ByteSpanPositionProvider)
        self._positions = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self._scope_of = wrapper.resolve(ScopeProvider)
        self._edits: set[Edit] = set()
        self._notes: set[Note] = set()

    def result(self) -> Examination:
        statements, strings = Statements(self._surface), Strings()
        self._module.visit(statements)
        self._module.visit(strings)
        scopes = list(
            dict.fromkeys(scope for scope in self._scope_of.values() if scope is not None)
        )
        bound = bindings(scopes, statements.names, self._parents, _exported(self._module))
        self._imports(statements)
        for binding in bound.values():
            self._bind(binding)
        for reference in references(scopes, statements.names, self._parents):
            self._refer(reference, bound.get(reference.scope))
        self._declared_elsewhere(bound)
        self._strings(strings)
        return Examination(edits=tuple(sorted(self._edits)), notes=tuple(sorted(self._notes)))

    def _imports(self, statements: Statements) -> None:
        for imported in [*statements.names.values(), *statements.stars]:
            dotted = imported.target if not imported.implied else self._dotted(imported.whole)
            self._look_up(imported.root, dotted)
            if not imported.implied and not imported.kept:
                self._replace(imported.root, OURS)
        for statement in statements.foreign:
            self._note(statement, RAY, "look", NAMES_SOMETHING_ELSE)

    def _bind(self, binding: Binding) -> None:
        """The imports that bind `ray`, and where the scope sets it to None."""
        if binding.stays:
            return
        for imported in binding.imports:
            if binding.renamed and not imported.kept:
                self._replace(imported.root, OURS)
            elif not binding.renamed:
                dotted = ours(self._dotted(imported.whole))
                self._replace(
                    imported.whole, f"{OURS} as {RAY}" + (f", {dotted}" if dotted != OURS else "")
                )
        if binding.renamed:
            for node in binding.emptied:
                self._replace(node, OURS)

    def _refer(self, reference: Reference, binding: Binding | None) -> None:
        found = self._look_up(reference.node, reference.name)
        if reference.call is not None and isinstance(found, Known):
            names = [
                argument.keyword.value
                for argument in reference.call.args
                if argument.keyword is not None
            ]
            for name in unknown_arguments(found.value, names):
                message = f"`{ours(reference.name)}` takes no argument `{name}`: leave it out"
                self._note(reference.node, f"{reference.name}({name}=…)", "argument", message)
        if (
            not reference.through_ray
            or binding is None
            or not binding.renamed
            or binding.keeps(reference.name)
        ):
            return
        if isinstance(reference.node, libcst.Name):
            self._replace(reference.node, OURS)
        else:
            start = self._spans[reference.node].start + len(
                (reference.node.prefix + reference.node.quote).encode()
            )
            raw = reference.node.raw_value
            for match in IN_STRING.finditer(raw):
                if match.group() == reference.name:
                    at = start + len(raw[: match.start()].encode())
                    self._edits.add(Edit(start=at, end=at + len(RAY), text=OURS))

    def _declared_elsewhere(self, bound: dict[Scope, Binding]) -> None:
        """`global ray` and `nonlocal ray` where that is a name that changes."""
        for node, scope in self._scope_of.items():
            if isinstance(node, libcst.Global | libcst.Nonlocal) and scope is not None:
                owners = {assignment.scope for assignment in scope[RAY]}
                if any(
                    owner in bound and bound[owner].renamed and not bound[owner].stays
                    for owner in owners
                ):
                    for item in node.names:
                        if item.name.value == RAY:
                            self._replace(item.name, OURS)

    def _strings(self, strings: Strings) -> None:
        for node in strings.modules:
            if isinstance(self._look_up(node, node.raw_value), Known):
                at = self._spans[node].start + len(node.prefix + node.quote)
                self._edits.add(Edit(start=at, end=at + len(RAY), text=OURS))
        known = own_variables()
        for mention in strings.variables:
            counterpart = remedies.variable(mention.name, known)
            says = (
                f"syncline reads `{counterpart}`"
                if counterpart
                else "syncline does not read it; on a cluster Ray itself may"
            )
            self._note(mention.node, mention.name, "environment", says)
        for mention in strings.commands:
            self._notes.add(command_note(self._line(mention.node), mention.name))

    def _look_up(self, node: libcst.CSTNode, name: str) -> Known | Missing:
        """Look a dotted name up, and note it if it is missing or means something else."""
        found = self._surface.find(name)
        if name in remedies.DIFFERENCES:
            self._note(node, name, "look", remedies.DIFFERENCES[name])
        if isinstance(found, Missing):
            remedy = f"it is `{found.elsewhere}`" if found.elsewhere else remedies.remedy(name)
            self._note(
                node,
                found.name,
                "no counterpart",
                f"syncline has no `{ours(found.name)}`" + (f": {remedy}" if remedy else ""),
            )
        return found

    def _note(self, node: libcst.CSTNode, name: str, kind: NoteKind, message: str) -> None:
        self._notes.add(Note(line=self._line(node), name=name, kind=kind, message=message))

    def _line(self, node: libcst.CSTNode) -> int:
        return self._positions[node].start.line

    def _replace(self, node: libcst.CSTNode, text: str) -> None:
        span = self._spans[node]
        self._edits.add(Edit(start=span.start, end=span.start + span.length, text=text))

    def _dotted(self, node: libcst.CSTNode) -> str:
        span = self._spans[node]
        return "".join(self._data[span.start : span.start + span.length].decode().split())


def _in_original(edits: Sequence[Edit], parsed: str, text: str) -> tuple[Edit, ...]:
    """Edits of the text as libcst writes it, made edits of the text as it is.

    The two may differ in blank lines, comments at the end and form feeds. Every edit begins at the
    word `ray`, and these correspond.
    """
    places = [match.start() for match in _WORD.finditer(parsed.encode())]
    originals = [match.start() for match in _WORD.finditer(text.encode())]
    if len(places) != len(originals):
        raise Unparsable("it has form feeds or comments that would not survive the rewriting")
    moved = dict(zip(places, originals, strict=True))
    return tuple(
        Edit(start=moved[edit.start], end=moved[edit.start] + edit.end - edit.start, text=edit.text)
        for edit in edits
    )


def command_note(line: int, name: str) -> Note:
    """About a command line, by what follows `ray` in it; "install" for `pip install ray`."""
    if name == "install":
        return Note(
            line=line,
            name="pip install ray",
            kind="command",
            message="install syncline; with its extra `cluster` for clusters",
        )
    counterpart = remedies.command(name)
    return Note(
        line=line, name=f"ray {name}", kind="command", message=f"syncline's is `{counterpart}`"
    )


def _exported(module: libcst.Module) -> Sequence[str]:
    """The names in `__all__`, as far as they are written out."""
    return [name for statement in module.body for name in _in_all(statement)]


def _in_all(statement: libcst.CSTNode) -> Iterator[str]:
    if isinstance(statement, libcst.SimpleStatementLine):
        for small in statement.body:
            targets = (
                [target.target for target in small.targets]
                if isinstance(small, libcst.Assign)
                else [getattr(small, "target", None)]
            )
            value = getattr(small, "value", None)
            named = any(
                isinstance(target, libcst.Name) and target.value == "__all__" for target in targets
            )
            if named and isinstance(value, libcst.List | libcst.Tuple):
                texts = [
                    element.value.evaluated_value
                    for element in value.elements
                    if isinstance(element.value, libcst.SimpleString)
                ]
                yield from (text for text in texts if isinstance(text, str))
