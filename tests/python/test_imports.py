# SPDX-License-Identifier: Apache-2.0
"""The modules of the package import each other without a circle, and only downwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from conftest import CHECKOUT

PACKAGE = CHECKOUT / "python" / "cay"

# Each package may import those to its left, and itself.
LAYERS = ["_error", "errors", "_c", "filesystem", "sandbox", "approvals", "tools", "nexau", "inspect"]
APART = {
    (one, other)
    for one in ("tools", "nexau", "inspect")
    for other in ("tools", "nexau", "inspect")
    if one != other
}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """The modules that a module imports, anywhere in it: also in a function, in
    `if TYPE_CHECKING:`, and by import_module() with a literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                submodule = f"{node.module}.{one.name}"
                yield submodule if submodule in modules else node.module
        elif isinstance(node, ast.ImportFrom):
            raise AssertionError("relative imports are not used")
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("import_module")
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


# Imports that close a circle on purpose, with the reason.
ALLOWED = {
    # Programs for 0.1.0 import NexAU's names from cay.sandbox; with a warning.
    ("cay.sandbox", "cay.nexau"),
}


def graph(package: Path = PACKAGE) -> dict[str, set[str]]:
    paths = {module_name(path): path for path in package.rglob("*.py")}
    return {
        name: {
            other
            for other in imported(ast.parse(path.read_text()), set(paths))
            if other in paths and other != name and (name, other) not in ALLOWED
        }
        for name, path in paths.items()
    }


def test_no_module_imports_itself_through_others() -> None:
    arrows = graph()
    assert len(arrows) > 40
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail("an import circle: " + " <- ".join(error.args[1]))


def test_packages_import_only_the_layers_below() -> None:
    def layer(name: str) -> str:
        return name.split(".")[1] if "." in name else ""

    wrong = [
        f"{name} imports {other}"
        for name, others in graph().items()
        for other in others
        if layer(name) and layer(name) != layer(other)
        if LAYERS.index(layer(other)) > LAYERS.index(layer(name))
        or (layer(name), layer(other)) in APART
    ]
    assert wrong == []


def test_the_allowed_circles_exist() -> None:
    sources = {module_name(path): path.read_text() for path in PACKAGE.rglob("*.py")}
    for name, other in ALLOWED:
        assert other in set(imported(ast.parse(sources[name]), set(sources)))
