"""Strings that have to do with Ray: names of modules for functions that import them, variables of
the environment, command lines.

Names of modules are changed; the others are mentioned only, as are lines for a shell in notebooks.
Docstrings and other text are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import libcst
from libcst.helpers import get_full_name_for_node

from syncline.cli.migration.remedies import COMMANDS, RENAMED_VARIABLES

IMPORTERS = frozenset({"__import__", "find_spec", "getLogger", "import_module", "importorskip"})
"""Functions whose first argument is the name of a module."""
PATCHERS = frozenset({"delattr", "patch", "setattr"})
"""Functions whose first argument may be the dotted name of something in a module."""
OF_MODULES = frozenset({"sys.modules.get", "sys.modules.pop", "sys.modules.setdefault"})
_MODULE = re.compile(r"ray(\.\w+)*")
_VARIABLE = re.compile(r"RAY_\w+")
_NAMES = "|".join(sorted(COMMANDS, key=len, reverse=True))
_COMMAND = re.compile(
    rf"(?:^|[;&|]\s*|\bexec )(?:\w+=\S+ )*ray\s+({_NAMES})(?![\w-])", re.MULTILINE
)
_INSTALL = re.compile(r"\bpip3? install\b.*?(?<![\w./-])(ray)(?![\w.-])")


@dataclass(frozen=True, kw_only=True)
class Mention:
    """A variable or a command line of Ray's, and where."""

    node: libcst.CSTNode
    name: str


class Strings(libcst.CSTVisitor):
    """Finds them. `modules`: strings that name a module of Ray's, or something in one, where that
    is what they are for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.modules: list[libcst.SimpleString] = []
        self.variables: list[Mention] = []
        self.commands: list[Mention] = []

    def visit_Call(self, node: libcst.Call) -> None:
        function = get_full_name_for_node(node.func) or ""
        last = function.rpartition(".")[2]
        values = [argument.value for argument in node.args]
        if (
            last in IMPORTERS
            or function in OF_MODULES
            or last in PATCHERS
            and values
            and "." in _text(values[0])
        ):
            self._module(values[:1])
        elif (
            last in ("setitem", "delitem")
            and len(values) > 1
            and get_full_name_for_node(values[0]) == "sys.modules"
        ):
            self._module(values[1:2])

    def visit_Subscript(self, node: libcst.Subscript) -> None:
        if get_full_name_for_node(node.value) == "sys.modules":
            self._module(
                [
                    element.slice.value
                    for element in node.slice
                    if isinstance(element.slice, libcst.Index)
                ]
            )

    def visit_Comparison(self, node: libcst.Comparison) -> None:
        if any(
            get_full_name_for_node(target.comparator) == "sys.modules"
            for target in node.comparisons
        ):
            self._module([node.left])

    def visit_List(self, node: libcst.List) -> None:
        self._command_words([element.value for element in node.elements])

    def visit_Tuple(self, node: libcst.Tuple) -> None:
        self._command_words([element.value for element in node.elements])

    def visit_Expr(self, node: libcst.Expr) -> bool:
        return not isinstance(
            node.value, libcst.SimpleString | libcst.ConcatenatedString
        )  # a docstring, or text that does nothing

    def visit_SimpleString(self, node: libcst.SimpleString) -> None:
        text = _text(node)
        if _VARIABLE.fullmatch(text) or text in RENAMED_VARIABLES:
            self.variables.append(Mention(node=node, name=text))
        self.commands += [Mention(node=node, name=command) for command in command_lines(text)]

    def _module(self, values: Sequence[libcst.BaseExpression]) -> None:
        self.modules += [
            value
            for value in values
            if isinstance(value, libcst.SimpleString) and _MODULE.fullmatch(value.raw_value)
        ]

    def _command_words(self, values: Sequence[libcst.BaseExpression]) -> None:
        words = [_text(value) for value in values[:3]]
        if len(words) > 1 and words[0] == "ray" and words[1] in COMMANDS:
            both = " ".join(words[1:])
            self.commands.append(
                Mention(node=values[0], name=both if both in COMMANDS else words[1])
            )


def command_lines(text: str) -> list[str]:
    """What follows `ray` where a text has lines that call it: "start", "job submit"; "install" for
    `pip install ray`.
    """
    found = [" ".join(match.group(1).split()) for match in _COMMAND.finditer(text)]
    return [*found, "install"] if _INSTALL.search(text) else found


def _text(node: libcst.BaseExpression) -> str:
    """What a plain string says; empty for everything else."""
    value = node.evaluated_value if isinstance(node, libcst.SimpleString) else ""
    return value if isinstance(value, str) else ""
