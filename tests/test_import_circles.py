"""No module of `ottla` imports itself by way of others, not even for types alone.

Import-linter keeps the layers; within a room it looks at nothing. A circle of types is one thing in several files: none
of them can be read, tested or moved without the others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

TOP = Path(__file__).parents[1]
ALLOWED = {
    frozenset(
        f"ottla.broker.groups.{name}" for name in ("consumer", "classic_in_consumer", "consumer_heartbeats")
    ): "the machine of a consumer group is one class; two of its files hold the steps that are long",
    frozenset(
        f"ottla.broker.groups.streams.{name}" for name in ("group", "heartbeats")
    ): "the same, of a streams group",
}
"""Circles that are what the thing is, each with its reason."""


def test_no_module_imports_itself_by_way_of_others() -> None:
    found = {frozenset(circle) for circle in circles(imports_below(TOP / "ottla"))}
    assert [sorted(circle) for circle in found - ALLOWED.keys()] == []
    assert found >= ALLOWED.keys(), "a circle that is gone needs no leave any more"


def test_an_import_for_types_alone_closes_a_circle(tmp_path: Path) -> None:
    package = tmp_path / "ottla"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from ottla import b\n")
    (package / "b.py").write_text("from .c import thing\n")
    (package / "c.py").write_text("def thing():\n    import ottla.d\n")
    (package / "d.py").write_text("if TYPE_CHECKING:\n    from ottla.b import T\n")
    assert circles(imports_below(package)) == [["ottla.b", "ottla.c", "ottla.d"]]


def imports_below(package: Path) -> dict[str, set[str]]:
    """What each module below `package` imports of them, wherever the import stands in it."""
    files = {_module(package, path): path for path in package.rglob("*.py")}
    return {name: set(_imported(name, path, files)) - {name} for name, path in files.items()}


def _module(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name: str, path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    own_package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            package = own_package.split(".")
            above = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (above, node.module) if part)
            for alias in node.names:
                if f"{source}.{alias.name}" in files:
                    yield f"{source}.{alias.name}"
                elif source in files:
                    yield source


def statements(block: ast.AST) -> Iterator[ast.AST]:
    """All statements of a module, those inside others as well. Their expressions are most of the nodes, and import
    nothing.
    """
    for inner in ast.iter_child_nodes(block):
        if isinstance(inner, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield inner
            yield from statements(inner)


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """The modules that reach each other, circle by circle (strongly connected components of more than one)."""
    reached = {name: _reached(name, imports) for name in imports}
    found: list[list[str]] = []
    for name in sorted(imports):
        if name in reached[name] and not any(name in circle for circle in found):
            found.append(sorted(other for other in reached[name] if name in reached[other]))
    return found


def _reached(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    rest = list(imports[start])
    while rest:
        name = rest.pop()
        if name not in reached:
            reached.add(name)
            rest.extend(imports[name])
    return reached
