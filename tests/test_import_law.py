"""The import law: who may import whom, which libraries where, and who reads the environment.

Covered: every `import` statement, `import_module("literal")` and `load("literal")` in
`src/syncline`, found in the syntax tree without running anything, so imports inside functions and
under TYPE_CHECKING count too; and what `import syncline` loads, in a fresh process. Not covered:
names that are built at run time. To extend the law, add a row to one of the tables below.
"""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"
PACKAGE = "syncline"

# Single modules that every package may import, and that import none but each other.
BASE = frozenset({"faults", "optional", "records", "settings", "suggestions", "system"})

# Single modules that are core's public face: who may import core may import them.
CORE_FACE = frozenset(
    {"actor", "exceptions", "remote_function", "runtime_context", "runtime_env", "types"}
)

# Packages that the dashboard and the command line show or control.
SHOWN = frozenset(
    {
        "__init__",
        "core",
        "data",
        "train",
        "tune",
        "serve",
        "rl",
        "launcher",
        "runs",
        "storage",
        "util",
    }
)

# package -> the other packages that it may import. A package that has no row may not exist.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "core": frozenset(),
    "storage": frozenset(),
    "runs": frozenset({"storage"}),
    "diagnosis": frozenset({"runs"}),
    "data": frozenset({"core", "runs", "storage"}),
    "train": frozenset({"core", "data", "diagnosis", "runs", "storage"}),
    "tune": frozenset({"core", "data", "train", "runs", "storage"}),
    "serve": frozenset({"core", "runs", "storage"}),
    "rl": frozenset({"core", "data", "train", "tune", "runs", "storage"}),
    "rllib": frozenset({"rl"}),
    "launcher": frozenset({"core", "diagnosis", "train", "runs", "storage"}),
    # Ray's remaining module paths. The table names modules of other packages, which load on use.
    "ray_paths": frozenset({"core"}),
    # Names that older programs import: they look at the packages from outside.
    "util": frozenset({"core", "data", "ray_paths", "runs", "storage", "train"}),
    "air": frozenset({"core", "data", "train", "tune", "runs", "storage"}),
    # These use the library as its users do: `import syncline` (the row "__init__") is theirs too.
    "testing": frozenset(
        {
            "__init__",
            "core",
            "dag",
            "experimental",
            "data",
            "train",
            "tune",
            "serve",
            "runs",
            "storage",
            "util",
            "air",
            "ray_paths",
        }
    ),
    "dashboard": SHOWN,
    "__main__": frozenset({"cli"}),
    "as_ray": frozenset({"__init__", "cli", "core"}),
    "dag": frozenset({"core"}),
    "experimental": frozenset({"core", "ray_paths", "util"}),
    "job_submission": frozenset({"core"}),
    "cli": SHOWN | {"dashboard", "job_submission"},
    # The package's own __init__: core at once, the rest by name when first used.
    "__init__": frozenset(
        {"air", "core", "data", "ray_paths", "runs", "serve", "train", "tune", "util"}
    ),
    **{module: frozenset() for module in BASE},
    **{module: frozenset({"core"}) for module in CORE_FACE},
}

# Single files -> what they may import of other packages, besides. The Dask scheduler stands on core
# alone, and is no part of data.
MAY_ALSO: dict[str, frozenset[str]] = {
    "data/io/conversion.py": frozenset({"syncline.util.dask"}),
    "data/from_memory.py": frozenset({"syncline.util.dask"}),
    # Trainers of the older API as trials; loaded by `TorchTrainer.as_trainable` alone, and nothing
    # in tune knows them.
    "util/sgd/torch/trainable.py": frozenset(
        {
            "syncline.tune.execution.placement_groups.Gang",
            "syncline.tune.execution.placement_groups.PlacementGroupFactory",
            "syncline.tune.trainable.trainable.Trainable",
        }
    ),
}


@dataclass(frozen=True, kw_only=True)
class LibraryRule:
    """One library and the only files that may import it."""

    library: str
    # Parts of a path below src/syncline; a file may import the library if one of its folders, or
    # its name, contains one of them.
    path_contains: tuple[str, ...] = ()
    # Files and packages that may, besides.
    also: tuple[str, ...] = ()
    # Packages that may not, whatever their paths contain.
    never: tuple[str, ...] = ()

    def allows(self, path: PurePosixPath) -> bool:
        if any(path.is_relative_to(package) for package in self.never):
            return False
        if any(path.is_relative_to(place) for place in self.also):
            return True
        return any(fragment in part for fragment in self.path_contains for part in path.parts)


LIBRARY_RULES = (
    LibraryRule(
        library="torch", path_contains=("torch", "lightning", "huggingface"), never=("core",)
    ),
    *(
        LibraryRule(library=name, path_contains=(name,), never=("core",))
        for name in ("xgboost", "lightgbm", "tensorflow", "jax")
    ),
    LibraryRule(library="ray", also=("core/cluster",)),
    LibraryRule(library="pyarrow", path_contains=("",), never=("core",)),
)

# The only module that reads the environment. Programs in `testing` stand for users' programs, whose
# tasks may look at theirs.
READS_ENVIRONMENT = ("settings.py", "testing")

# What a bare `import syncline` must leave for later.
HEAVY = ("torch", "pyarrow", "numpy", "pandas", "ray")


# The only files that import modules of syncline by name: public packages that load on first use,
# commands and the web application, which load when they run, and tools that look modules up by
# names that users write.
LOADS_OWN_MODULES_BY_NAME = frozenset(
    {
        "__init__.py",
        "as_ray/finder.py",
        "cli/__init__.py",
        "cli/app.py",
        "cli/lazy_commands.py",
        "dashboard/server.py",
        "data/__init__.py",
        "experimental/__init__.py",
        "ray_paths/finder.py",
        "serve/__init__.py",
        "cli/migration/surface.py",
        "rl/public_paths.py",
        "train/__init__.py",
        "train/xgboost/__init__.py",
        "tune/__init__.py",
        "util/__init__.py",
        "util/sgd/__init__.py",
        "util/sgd/torch/__init__.py",
    }
)


@functools.lru_cache(maxsize=1)
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def source_files() -> list[Path]:
    return sorted((SRC / PACKAGE).rglob("*.py"))


def below_package(file: Path) -> PurePosixPath:
    return PurePosixPath(file.relative_to(SRC / PACKAGE).as_posix())


def unit_of(path: PurePosixPath) -> str:
    """Return the package or module below `syncline` of a file: core/api.py -> core."""
    return path.parts[0].removesuffix(".py")


def imported_modules(tree: ast.AST, path: PurePosixPath) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of everything that a file imports; `from a import b` yields a.b,
    since b may be a module.
    """
    # The module itself is the last part; for a package's __init__ that part is the file name, so
    # that one level up is the package.
    module = (PACKAGE, *path.with_suffix("").parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = (node.module or "").split(".") if node.module else []
            prefix = [*module[: -node.level], *origin] if node.level else origin
            yield from ((node.lineno, ".".join([*prefix, alias.name])) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            if name in ("import_module", "__import__", "load") and isinstance(
                node.args[0].value, str
            ):
                yield node.lineno, node.args[0].value


def names_own_module_in_call(call: ast.Call) -> bool:
    """Return True for `import_module("syncline…")` and for f-strings that begin like that."""
    if not call.args:
        return False
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    argument = call.args[0]
    if isinstance(argument, ast.JoinedStr):
        if isinstance(argument.values[0], ast.FormattedValue):
            return name in ("import_module", "__import__") and "__name__" in ast.dump(argument)
        argument = argument.values[0]
    is_own = isinstance(argument, ast.Constant) and str(argument.value).startswith(PACKAGE)
    return name in ("import_module", "__import__") and is_own


def import_graph() -> dict[str, set[str]]:
    """Return module -> the modules of syncline that it imports anywhere, also for types only."""
    modules = {}
    for file in source_files():
        path = below_package(file)
        parts = path.with_suffix("").parts
        name = ".".join([PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)])
        modules[name] = (file.read_text(encoding="utf-8"), path)
    graph = {}
    for module, (source, path) in modules.items():
        names = {name for _, name in imported_modules(ast.parse(source), path)}
        # `from a import b` yields a.b; where that is no module, the import is of a.
        targets = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module] = (targets & set(modules)) - {module}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other."""
    reachable: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        pending = [start]
        while pending:
            for target in graph[pending.pop()] - seen:
                seen.add(target)
                pending.append(target)
        reachable[start] = seen
    groups = {
        tuple(sorted(other for other in reachable[start] if start in reachable[other]))
        for start in graph
        if start in reachable[start]
    }
    return sorted(map(list, groups))


def layer_violations(source: str, path: PurePosixPath) -> list[str]:
    """Imports within syncline that the table does not allow."""
    unit = unit_of(path)
    if unit not in MAY_IMPORT:
        return [f"{path}: {unit!r} has no row in MAY_IMPORT"]
    allowed = MAY_IMPORT[unit] | BASE | {unit}
    if "core" in allowed:
        allowed |= CORE_FACE
    found = []
    for line, name in imported_modules(parsed(source), path):
        parts = name.split(".")
        if parts[0] != PACKAGE or name in MAY_ALSO.get(str(path), ()):
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        if target in MAY_IMPORT and target not in allowed:
            found.append(f"{path}:{line}: {unit} may not import {name}")
        elif target not in MAY_IMPORT and "__init__" not in allowed:
            # `import syncline` or `from syncline import get`: the package's own __init__, which
            # loads core.
            found.append(
                f"{path}:{line}: imports {name} from the top of the package: name the module that"
                " defines it"
            )
    return found


def library_violations(source: str, path: PurePosixPath) -> list[str]:
    """Imports of libraries outside the files that may have them."""
    return [
        f"{path}:{line}: {name} is imported outside its place"
        for line, name in imported_modules(parsed(source), path)
        for rule in LIBRARY_RULES
        if name.split(".")[0] == rule.library and not rule.allows(path)
    ]


def environment_reads(source: str) -> list[int]:
    """Lines that read the process's environment. Writing it is allowed: `os.environ[k] = v`, `del`,
    and `update`, `pop`, `setdefault`, `clear` whose value nobody uses.
    """
    tree = parsed(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            # Under another name the reads could not be told apart: the import itself counts.
            lines += [
                node.lineno
                for alias in node.names
                if alias.name in ("environ", "environb", "getenv", "getenvb")
            ]
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
        ):
            reads = node.attr in ("getenv", "getenvb") or (
                node.attr in ("environ", "environb") and not _is_written(node, parents)
            )
            lines += [node.lineno] if reads else []
    return sorted(lines)


def _is_written(environ: ast.Attribute, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents[environ]
    if isinstance(parent, ast.Subscript):
        # `os.environ[k] += v` has a store context and reads all the same.
        return isinstance(parent.ctx, ast.Store | ast.Del) and not isinstance(
            parents[parent], ast.AugAssign
        )
    if isinstance(parent, ast.Attribute) and parent.attr in (
        "update",
        "pop",
        "setdefault",
        "clear",
    ):
        call = parents[parent]
        return isinstance(call, ast.Call) and isinstance(parents[call], ast.Expr)
    return False


@pytest.mark.parametrize("file", source_files(), ids=lambda file: str(below_package(file)))
def test_file_obeys_the_import_law(file: Path) -> None:
    source, path = file.read_text(encoding="utf-8"), below_package(file)
    violations = layer_violations(source, path) + library_violations(source, path)
    if not any(path.is_relative_to(place) for place in READS_ENVIRONMENT):
        violations += [
            f"{path}:{line}: reads the environment; only settings.py does"
            for line in environment_reads(source)
        ]
    if str(path) not in LOADS_OWN_MODULES_BY_NAME:
        # It would hide an import from the law.
        violations += [
            f"{path}:{node.lineno}: imports a module of syncline by its name"
            for node in ast.walk(parsed(source))
            if isinstance(node, ast.Call) and names_own_module_in_call(node)
        ]
    assert not violations, "\n".join(violations)


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(import_graph()) == []


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert circles(graph) == [["a", "b", "c"]]


def test_importing_syncline_loads_no_heavy_library() -> None:
    program = f"import sys, syncline; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("path", "source", "allowed"),
    [
        ("train/trainer.py", "from syncline.core import api", True),
        ("train/trainer.py", "from syncline.train.config import RunConfig", True),
        ("core/api.py", "from syncline.exceptions import GetTimeoutError", True),
        ("core/api.py", "from ..train import config", False),
        ("core/__init__.py", "from .. import data", False),
        ("core/__init__.py", "from . import api", True),
        ("core/embedded/engine.py", "from .. import refs", True),
        ("core/embedded/engine.py", "def f():\n    import syncline.data.dataset", False),
        ("data/dataset.py", "import importlib\nimportlib.import_module('syncline.train')", False),
        ("data/io/conversion.py", "load('syncline.util.dask', purpose='to_dask')", True),
        ("data/dataset.py", "load('syncline.util.dask', purpose='to_dask')", False),
        ("runs/run_record.py", "from syncline.core import api", False),
        ("runs/run_record.py", "from syncline.exceptions import RayTaskError", False),
        ("train/result.py", "from syncline.cli import main", False),
        ("settings.py", "from syncline.core import api", False),
        ("train/result.py", "from syncline import get", False),
        ("train/result.py", "import syncline", False),
        ("testing/conformance/suite.py", "import syncline", True),
        ("__init__.py", "from .core.api import get", True),
        ("newcomer/x.py", "", False),
    ],
)
def test_layer_rules_tell_allowed_from_forbidden(path: str, source: str, allowed: bool) -> None:
    assert (layer_violations(source, PurePosixPath(path)) == []) is allowed


@pytest.mark.parametrize(
    ("path", "source", "allowed"),
    [
        ("train/torch/config.py", "import torch.distributed as dist", True),
        ("data/iterate/torch_batches.py", "from torch import Tensor", True),
        ("train/lightning/strategy.py", "import torch", True),
        ("train/session.py", "def f():\n    import torch", False),
        ("core/torch.py", "import torch", False),
        ("train/session.py", "import torchmetrics", True),
        ("train/xgboost/callback.py", "from xgboost import Booster", True),
        ("train/boosting.py", "def f():\n    load('xgboost', purpose='x', install='x')", False),
        ("core/cluster/engine.py", "import ray", True),
        ("core/lifecycle.py", "import ray", False),
        ("train/controller/driver.py", "from ray import get", False),
        ("core/serialization.py", "import pyarrow as pa", False),
        ("train/storage/context.py", "import pyarrow.fs", True),
    ],
)
def test_library_rules_tell_allowed_from_forbidden(path: str, source: str, allowed: bool) -> None:
    assert (library_violations(source, PurePosixPath(path)) == []) is allowed


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("os.environ['A']", True),
        ("os.environ.get('A')", True),
        ("os.getenv('A')", True),
        ("dict(os.environ)", True),
        ("os.environ.copy()", True),
        ("'A' in os.environ", True),
        ("value = os.environ.pop('A')", True),
        ("os.environ['A'] += 'b'", True),
        ("from os import environ", True),
        ("os.environ['A'] = 'b'", False),
        ("del os.environ['A']", False),
        ("os.environ.update(A='b')", False),
        ("os.environ.pop('A', None)", False),
        ("os.path.join('a', 'b')", False),
    ],
)
def test_environment_rule_tells_reads_from_writes(line: str, reads: bool) -> None:
    assert bool(environment_reads(f"import os\n{line}\n")) is reads
