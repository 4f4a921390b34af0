"""Which files of the project a module reaches: what a stage declares as its code.

Law: an import counts wherever it stands, inside a function too (one for the
type checker alone never runs and does not), and so does a file named by a
string that lies beside the module (a prompt, a table).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "pipelines"


def closure(module: Path, root: Path) -> list[str]:
    """Files that `module` reaches, as sorted paths below `root` (the folder that holds `pipelines`)."""
    seen: set[Path] = set()
    todo = [module]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        if path.suffix == ".py":
            todo.extend(_reached(path, root))
    return sorted(p.relative_to(root).as_posix() for p in seen)


def imports(path: Path, root: Path, top: str = PACKAGE, *, typing: bool = False) -> Iterator[str]:
    """Dotted names below the package `top` that a file imports, statically or by `import_module`.

    `typing` counts those under `if TYPE_CHECKING` too.
    """
    package = path.relative_to(root).with_suffix("").parts[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree if typing else _Running().visit(tree)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == top)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(x for x in (base, node.module or "") if x)
            if name.split(".")[0] == top:
                yield name
                yield from (f"{name}.{a.name}" for a in node.names)
        elif isinstance(node, ast.Call):
            yield from _by_name(node, top)


class _Running(ast.NodeTransformer):
    """Takes out what only the type checker reads."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if getattr(node.test, "id", getattr(node.test, "attr", "")) == "TYPE_CHECKING":
            return node.orelse
        return self.generic_visit(node)


def _by_name(call: ast.Call, top: str) -> Iterator[str]:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if called in ("import_module", "__import__", "find_spec") and call.args:
        first = call.args[0]
        if isinstance(first, ast.Constant) and str(first.value).split(".")[0] == top:
            yield str(first.value)


def _reached(path: Path, root: Path) -> Iterator[Path]:
    for name in imports(path, root):
        yield from _files(name, root)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_file_name(node.value):
            beside = path.parent / node.value
            if beside.is_file():
                yield beside


def _is_file_name(text: str) -> bool:
    return 0 < len(text) < 100 and "\n" not in text and "." in text and not text.startswith((".", "/"))


def _files(name: str, root: Path) -> Iterator[Path]:
    """The file of a module, and of the packages above it, that exist below `root`."""
    parts = name.split(".")
    for n in range(1, len(parts) + 1):
        base = root.joinpath(*parts[:n])
        for path in (base / "__init__.py", base.with_suffix(".py")):
            if path.is_file():
                yield path
