"""Examination of one module: text replacements, and notes on what to check by hand.

`import ray` becomes `import syncline`, and the names that refer to it follow. It becomes
`import syncline as ray` if the same scope binds `ray` to something else, or if the module uses the
name `syncline` itself. Names that syncline lacks are renamed too, so that the program never imports
both libraries, and a comment above the statement says what to use instead.

Strings change where a function takes them as names of modules. Environment variables and command
lines are only noted. Docstrings and other text are left alone.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import libcst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import (
    Access,
    Assignment,
    BaseAssignment,
    ByteSpanPositionProvider,
    ClassScope,
    GlobalScope,
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    Scope,
    ScopeProvider,
)

from syncline.cli.migration.remedies import (
    COMMANDS,
    DIFFERENCES,
    INSTALL,
    OTHER_IMPORT,
    RENAMED_VARIABLES,
    RLLIB_COMMANDS,
    remedy,
)
from syncline.cli.migration.surface import (
    OURS,
    RAY,
    Missing,
    find,
    ours,
    unknown_arguments,
    variable,
)

NAME_FIRST = frozenset(
    {
        *("__import__", "find_spec", "getLogger", "import_module", "importorskip"),
        *("delattr", "patch", "setattr"),
    }
)
"""Functions whose first argument, if it is a string, names a module or an object in one."""
_WORD = re.compile(rb"\bray\b")
_DOTTED = re.compile(r"ray(\.\w+)*")
# In a string annotation. A name in nested quotes, as in `Literal["ray"]`, is a value.
_ANNOTATION = re.compile(r"(?<![\w.'\"])ray((?:\.\w+)*)(?![\w'\"])")
_VARIABLE = re.compile(r"RAY_\w+")
_NAMES = "|".join(sorted(COMMANDS, reverse=True))  # "job submit" before "job"
_COMMAND = re.compile(rf"(?m)(?:^|[;&|]\s*|\bexec )(?:\w+=\S+ )*ray\s+({_NAMES})(?![\w-])")
_RLLIB_NAMES = "|".join(RLLIB_COMMANDS)
_RLLIB_COMMAND = re.compile(
    rf"(?m)(?:^|[;&|]\s*|\bexec )(?:\w+=\S+ )*rllib\s+({_RLLIB_NAMES})(?![\w-])"
)
_INSTALL = re.compile(r"\bpip3? install\b.*?(?<![\w./-])(ray)(?![\w.-])")

MARK = "# TODO(syncline migrate):"
"""Begin of the comments above statements with names that syncline lacks."""
NoteKind = Literal["no counterpart", "argument", "environment", "command", "look"]


class Unparsable(ValueError):
    """The program cannot be parsed; the message gives the position and the reason."""


class Edit(NamedTuple):
    """Replacement of the bytes `start` to `end` of a UTF-8 text.

    Each begins at the word `ray`, or inserts a comment above a statement.
    """

    start: int
    end: int
    text: str


class Note(NamedTuple):
    """Something that a person has to check.

    The first two kinds fail at run time; the others may need a change. `line` counts from 1, in the
    notebook cell number `cell` if there is one. `name` is a dotted name, a variable or a command.
    """

    line: int
    name: str
    kind: NoteKind
    message: str
    cell: int | None = None


class _Import(NamedTuple):
    """Import of a name from Ray."""

    target: str
    """Dotted name in Ray that the bound name refers to."""
    module: libcst.BaseExpression
    """Dotted name in the statement."""
    is_ray: bool
    """True if the statement binds the name `ray` without `as`."""


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with the edits, which do not overlap."""
    data, parts, end = text.encode(), [], 0
    for edit in sorted(edits):
        parts += [data[end : edit.start], edit.text.encode()]
        end = edit.end
    return b"".join([*parts, data[end:]]).decode()


def command_notes(text: str, line: int) -> list[Note]:
    """Return notes on the command lines in a text that call `ray` or install it."""
    notes = [
        Note(line, f"ray {name}", "command", f"use {COMMANDS[name]}")
        for name in _COMMAND.findall(text)
    ]
    notes += [
        Note(line, f"rllib {name}", "command", f"use {RLLIB_COMMANDS[name]}")
        for name in _RLLIB_COMMAND.findall(text)
    ]
    if _INSTALL.search(text):
        notes.append(Note(line, "pip install ray", "command", INSTALL))
    return notes


def examine(text: str) -> tuple[list[Edit], list[Note]]:
    """Return the edits and notes of a module, in order.

    Raises:
        Unparsable: The text is not valid Python.
    """
    try:
        module = libcst.parse_module(text)
        examiner = _Examiner(MetadataWrapper(module, unsafe_skip_copy=True))
        module.visit(examiner)
        examiner.resolve_names()
        marks = examiner.marks()
    except libcst.ParserSyntaxError as error:
        raise Unparsable(f"line {error.raw_line}: {error.message}") from None
    except RecursionError:
        raise Unparsable("expressions are nested too deeply") from None
    except ValueError as error:
        raise Unparsable(str(error)) from None
    edits = sorted(examiner.edits)
    if module.code != text:
        # libcst changes some blank lines, comments at the end, and form feeds.
        starts, originals = (
            [match.start() for match in _WORD.finditer(each.encode())]
            for each in (module.code, text)
        )
        if len(starts) != len(originals):
            raise Unparsable("form feeds or comments would not survive the conversion")
        shift = {start: at - start for start, at in zip(starts, originals, strict=True)}
        edits = [Edit(start + shift[start], end + shift[start], new) for start, end, new in edits]
        marks = []  # their places are not words, whose shift is known
    return sorted([*edits, *marks]), sorted(examiner.notes)


class _Examiner(libcst.CSTVisitor):
    """Collects the edits and notes of one module: visit it, then call `resolve_names`."""

    def __init__(self, wrapper: MetadataWrapper) -> None:
        super().__init__()
        self._code = wrapper.module.bytes
        self._newline = wrapper.module.default_newline
        self._spans = wrapper.resolve(ByteSpanPositionProvider)
        self._positions = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self._scope_of = wrapper.resolve(ScopeProvider)
        self._imports: dict[libcst.CSTNode, _Import] = {}  # by the node that binds the name
        self._exports_ray = False
        self._renamed: set[Scope] = set()  # those in which `ray` becomes `syncline`
        # Comments to insert, by the statement that they stand above.
        self._marks: dict[libcst.CSTNode, dict[str, None]] = {}
        self.edits: set[Edit] = set()
        self.notes: set[Note] = set()

    # -- imports

    def visit_Import(self, node: libcst.Import) -> None:
        for alias in node.names:
            name = _name(alias.name)
            if not _is_below(name, RAY):
                continue
            self._look_up(alias.name, name)
            if alias.asname is None:
                self._imports[alias.name] = _Import(RAY, alias.name, True)
            else:
                self._imports[alias.asname.name] = _Import(name, alias.name, False)
                self._replace(_root(alias.name))

    def visit_ImportFrom(self, node: libcst.ImportFrom) -> None:
        aliases = () if isinstance(node.names, libcst.ImportStar) else node.names
        module = _name(node.module) if node.module and not node.relative else ""
        if node.module is None or not _is_below(module, RAY):
            if any(alias.evaluated_name == RAY for alias in aliases):
                self._note(node, RAY, "look", OTHER_IMPORT)
            return
        names = [f"{module}.{alias.evaluated_name}" for alias in aliases]
        for name in names or [module]:
            self._look_up(node.module, name)
        for alias, name in zip(aliases, names, strict=True):
            bound = alias.asname.name if alias.asname else alias.name
            self._imports[bound] = _Import(name, node.module, False)
        self._replace(_root(node.module))

    # -- strings

    def visit_Assign(self, node: libcst.Assign) -> None:
        for target in node.targets:
            self._check_exports(target.target, node.value)

    def visit_AnnAssign(self, node: libcst.AnnAssign) -> None:
        self._check_exports(node.target, node.value)

    def _check_exports(self, target: libcst.CSTNode, value: libcst.CSTNode | None) -> None:
        if isinstance(value, libcst.List | libcst.Tuple) and _name(target) == "__all__":
            self._exports_ray |= RAY in [_text(element.value) for element in value.elements]

    def visit_Call(self, node: libcst.Call) -> None:
        function = _name(node.func)
        values = [argument.value for argument in node.args]
        if function.rpartition(".")[2] in NAME_FIRST:
            self._rename_strings(values[:1])
        elif function.startswith("sys.modules.") or (values and _name(values[0]) == "sys.modules"):
            self._rename_strings(values[:2])

    def visit_Subscript(self, node: libcst.Subscript) -> None:
        if _name(node.value) == "sys.modules":
            slices = [element.slice for element in node.slice]
            self._rename_strings([each.value for each in slices if isinstance(each, libcst.Index)])

    def visit_Comparison(self, node: libcst.Comparison) -> None:
        if any(_name(each.comparator) == "sys.modules" for each in node.comparisons):
            self._rename_strings([node.left])

    def _rename_strings(self, values: Sequence[libcst.BaseExpression]) -> None:
        for value in values:
            if isinstance(value, libcst.SimpleString) and _DOTTED.fullmatch(value.raw_value):
                self._look_up(value, value.raw_value)
                self._replace(value, len(value.prefix + value.quote))

    def visit_List(self, node: libcst.List | libcst.Tuple) -> None:
        words = [_text(element.value) for element in node.elements]
        if words[:1] == [RAY]:
            self.notes.update(command_notes(" ".join(words), self._line(node.elements[0])))

    visit_Tuple = visit_List

    def visit_Expr(self, node: libcst.Expr) -> bool:
        # A docstring, or text without effect, needs no look.
        return not isinstance(node.value, libcst.SimpleString | libcst.ConcatenatedString)

    def visit_SimpleString(self, node: libcst.SimpleString) -> None:
        text = _text(node)
        if _VARIABLE.fullmatch(text) or text in RENAMED_VARIABLES:
            counterpart = variable(text)
            self._note(
                node,
                text,
                "environment",
                f"syncline reads `{counterpart}`"
                if counterpart
                else "syncline does not read it, but Ray may on a cluster",
            )
        self.notes.update(command_notes(text, self._line(node)))

    # -- names, after the visit

    def resolve_names(self) -> None:
        """Rename the uses of the imported names."""
        scopes = [scope for scope in dict.fromkeys(self._scope_of.values()) if scope is not None]
        is_taken = any(
            _is_not_syncline(each) for scope in scopes for each in scope.assignments[OURS]
        )
        for scope in scopes:
            self._rename_in(scope, is_taken)
        for scope in scopes:
            for access in scope.accesses:
                self._refer(access)
        for node, declared_in in self._scope_of.items():
            if (
                isinstance(node, libcst.Global | libcst.Nonlocal)
                and declared_in is not None
                and any(each.scope in self._renamed for each in declared_in[RAY])
            ):
                for item in node.names:
                    if item.name.value == RAY:
                        self._replace(item.name)

    def _rename_in(self, scope: Scope, is_taken: bool) -> None:
        """Change the imports that bind `ray` in a scope, and the places that set it to None."""
        nodes = dict(_binding_nodes(scope.assignments[RAY]))
        imports = [
            self._imports[node]
            for node in nodes
            if node in self._imports and self._imports[node].is_ray
        ]
        if not imports:
            return
        set_to_none = [node for node in nodes if self._is_set_to_none(node)]
        if (
            is_taken
            or len(imports) + len(set_to_none) < len(nodes)
            or isinstance(scope, ClassScope)  # its names are attributes of the class too
            or (isinstance(scope, GlobalScope) and self._exports_ray)
        ):
            for each in imports:
                span, name = self._spans[each.module], ours(_name(each.module))
                text = f"{OURS} as {RAY}" + (f", {name}" if name != OURS else "")
                self.edits.add(Edit(span.start, span.start + span.length, text))
            return
        self._renamed.add(scope)
        for each in imports:
            self._replace(_root(each.module))
        for node in set_to_none:
            self._replace(node)

    def _is_set_to_none(self, node: libcst.CSTNode) -> bool:
        """Return True for `ray = None`, the usual fallback of a failed import."""
        parent = self._parents[node]
        statement = self._parents[parent] if isinstance(parent, libcst.AssignTarget) else parent
        return (
            isinstance(statement, libcst.Assign | libcst.AnnAssign)
            and statement.value is not None
            and _name(statement.value) == "None"
        )

    def _refer(self, access: Access) -> None:
        """Rename one use of an imported name, and note what syncline lacks."""
        node = access.node
        root = node if isinstance(node, libcst.SimpleString) else _root(node)
        if not isinstance(root, libcst.SimpleString | libcst.Name):
            return
        name = root.value if isinstance(root, libcst.Name) else RAY
        for binding, assignment in _binding_nodes(access.scope[name]):
            if binding in self._imports:
                imported, scope = self._imports[binding], assignment.scope
                break
        else:
            return
        if isinstance(root, libcst.SimpleString):
            for match in _ANNOTATION.finditer(root.raw_value) if imported.is_ray else ():
                before = root.prefix + root.quote + root.raw_value[: match.start()]
                self._look_up(root, match.group())
                self._rename(root, len(before.encode()), scope)
            return
        top: libcst.CSTNode = root
        name = imported.target
        while isinstance(parent := self._parents[top], libcst.Attribute) and parent.value is top:
            name, top = f"{name}.{parent.attr.value}", parent
        found = self._look_up(root, name)
        if isinstance(parent, libcst.Call) and parent.func is top:
            keywords = [each.keyword.value for each in parent.args if each.keyword is not None]
            for keyword in unknown_arguments(found, keywords):
                message = f"`{ours(name)}` has no argument `{keyword}`: leave it out"
                self._note(root, f"{name}({keyword}=…)", "argument", message)
        if imported.is_ray:
            self._rename(root, 0, scope)

    def _rename(self, node: libcst.CSTNode, offset: int, scope: Scope) -> None:
        if scope in self._renamed:
            self._replace(node, offset)

    # -- shared

    def _look_up(self, node: libcst.CSTNode, name: str) -> object:
        """Find a dotted name in syncline; note it if it is missing or differs."""
        found = find(name)
        if name in DIFFERENCES:
            self._note(node, name, "look", DIFFERENCES[name])
        if isinstance(found, Missing):
            if found.elsewhere:
                hint: str | None = f"use `{found.elsewhere}`"
            else:
                hint = found.remedy or remedy(name)
            message = f"syncline has no `{ours(found.name)}`" + (f": {hint}" if hint else "")
            self._note(node, found.name, "no counterpart", message)
            self._marks.setdefault(self._statement(node), {})[message] = None
        return found

    def _statement(self, node: libcst.CSTNode) -> libcst.CSTNode:
        """Return the innermost statement around a node that begins a line."""
        while not (
            isinstance(node, libcst.SimpleStatementLine | libcst.BaseCompoundStatement)
            and not self._line_before(node).strip()  # "el" before the `if` of an `elif`
        ):
            node = self._parents[node]
        return node

    def _line_before(self, node: libcst.CSTNode) -> str:
        """Return the text between the begin of the line and a node."""
        before = self._code[: self._spans[node].start]
        return before[before.rfind(b"\n") + 1 :].decode()

    def marks(self) -> list[Edit]:
        """Return comments above the statements with names that syncline lacks."""
        edits = []
        for node, messages in self._marks.items():
            start, end = self._spans[node].start, self._newline + self._line_before(node)
            lines = [line for message in sorted(messages) for line in _comment(message)]
            edits.append(Edit(start, start, "".join(line + end for line in lines)))
        return edits

    def _note(self, node: libcst.CSTNode, name: str, kind: NoteKind, message: str) -> None:
        self.notes.add(Note(self._line(node), name, kind, message))

    def _line(self, node: libcst.CSTNode) -> int:
        return self._positions[node].start.line

    def _replace(self, node: libcst.CSTNode, offset: int = 0) -> None:
        """Replace the word `ray` at a byte offset in a node."""
        start = self._spans[node].start + offset
        self.edits.add(Edit(start, start + len(RAY), OURS))


def _name(node: libcst.CSTNode) -> str:
    return get_full_name_for_node(node) or ""


def _text(node: libcst.BaseExpression) -> str:
    """Return the value of a plain string; "" for everything else."""
    value = node.evaluated_value if isinstance(node, libcst.SimpleString) else ""
    return value if isinstance(value, str) else ""


def _is_below(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _comment(message: str) -> list[str]:
    """Return the lines of a comment, for files of any encoding."""
    text = message.replace("…", "...").encode("ascii", "replace").decode()
    return textwrap.wrap(text, 88, initial_indent=f"{MARK} ", subsequent_indent="#   ")


def _root(node: libcst.CSTNode) -> libcst.CSTNode:
    while isinstance(node, libcst.Attribute):
        node = node.value
    return node


def _binding_nodes(
    assignments: Iterable[BaseAssignment],
) -> Iterator[tuple[libcst.CSTNode, Assignment]]:
    """Yield assignments with the nodes that bind the name; Python's own names have none."""
    for each in assignments:
        if isinstance(each, ImportAssignment):
            yield each.as_name, each
        elif isinstance(each, Assignment):
            yield each.node, each


def _is_not_syncline(assignment: BaseAssignment) -> bool:
    """Return True if an assignment binds the name `syncline` to something else than the package."""
    if isinstance(assignment, ImportAssignment) and isinstance(assignment.node, libcst.Import):
        names = [alias.asname.name for alias in assignment.node.names if alias.asname]
        return assignment.as_name in names
    return True
