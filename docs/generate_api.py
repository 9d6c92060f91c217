"""Writes docs/api.md from the docstrings of the public names: `make docs`."""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).with_name("api.md")
ROOT = PAGE.parent.parent
PACKAGE = ROOT / "maintenance_assets"
HEAD = """\
# API

Every public name of `maintenance_assets`, generated from the docstrings by `make docs`. What the
operations mean and how they go together: [Operations](operations.md),
[Lakehouse](lakehouse.md), [Dagster](dagster.md).
"""
SECTIONS = {
    "Operations": ("operations", "planning"),
    "Lakehouse": ("api.lakehouse",),
    "Handlers, and the names of earlier APIs": ("api",),
    "Dagster": ("orchestration",),
    "Values": ("model",),
    "Errors": ("errors",),
}
"""Titles, and the beginnings of the modules that belong to them; the first one that fits."""
RESOURCES = ("LakehouseResource", "LakehouseIOManager")
"""Public beside the names of the package: they are imported from their module."""
RESOURCES_HOME = "orchestration.lakehouse_resource"
Definition = ast.FunctionDef | ast.ClassDef


def homes() -> dict[str, str]:
    """Public names and the modules that they are from, as the package itself keeps them."""
    sys.path.insert(0, str(ROOT))
    import maintenance_assets

    found = dict(maintenance_assets._HOMES)
    return found | dict.fromkeys(RESOURCES, RESOURCES_HOME)


def page() -> str:
    """The whole page."""
    sections: dict[str, list[str]] = {title: [] for title in SECTIONS}
    # Functions first: their names begin in lower case.
    for name, home in sorted(homes().items(), key=lambda item: (item[0][0].isupper(), item[0])):
        sections[_title(home)].append(_entry(name, home))
    parts = [f"## {title}\n\n" + "\n".join(found) for title, found in sections.items()]
    return "\n".join((HEAD, *parts))


def _title(home: str) -> str:
    for title, beginnings in SECTIONS.items():
        if any(f"{home}.".startswith(f"{beginning}.") for beginning in beginnings):
            return title
    raise LookupError(f"docs/generate_api.py knows no section for {home}")


def _entry(name: str, home: str) -> str:
    tree = ast.parse((PACKAGE / f"{home.replace('.', '/')}.py").read_text(encoding="utf-8"))
    node = next(node for node in _definitions(tree.body) if node.name == name)
    if isinstance(node, ast.ClassDef):
        return f"### {name}\n\n{_class(node, tree)}\n"
    return f"### {name}\n\n`{_signature(node, name)}`\n\n{_doc(node)}\n"


def _definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    return (node for node in body if isinstance(node, Definition))


def _class(node: ast.ClassDef, tree: ast.Module) -> str:
    """What it is, how it is made, what it has and what it does; what it inherits, too."""
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    known = {one.name: one for one in _definitions(tree.body) if isinstance(one, ast.ClassDef)}
    family = [node, *(known[base] for base in bases if base in known)]
    if any(base.endswith("Error") for base in bases):
        return f"{_doc(node)} A `{bases[0]}`{_also(bases)}."
    lines = [_doc(node), ""]
    functions = [one for part in family for one in part.body if isinstance(one, ast.FunctionDef)]
    made = next((one for one in functions if one.name == "__init__"), None)
    if made is not None:
        lines += [f"`{_signature(made, node.name)}`", ""]
    lines += [line for part in reversed(family) for line in _fields(part)]
    seen: set[str] = set()
    for function in functions:
        if not function.name.startswith("_") and function.name not in seen:
            seen.add(function.name)
            lines.append(_method(function))
    return "\n".join(lines).rstrip()


def _also(bases: list[str]) -> str:
    return f", and a `{bases[1]}`" if len(bases) > 1 else ""


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Fields with the text below them."""
    for here, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(here, ast.AnnAssign) or not isinstance(here.target, ast.Name):
            continue
        if here.target.id.startswith("_"):
            continue
        text = f"- `{here.target.id}: {ast.unparse(here.annotation)}{_default(here.value)}`"
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text += f": {_folded(str(after.value.value))}"
        yield text


def _default(value: ast.expr | None) -> str:
    """A default, unless it is made by `field(...)`."""
    return "" if value is None or isinstance(value, ast.Call) else f" = {ast.unparse(value)}"


def _method(node: ast.FunctionDef) -> str:
    decorators = {one.id for one in node.decorator_list if isinstance(one, ast.Name)}
    if "property" in decorators or "field_validator" in decorators:
        returns = "" if node.returns is None else f": {ast.unparse(node.returns)}"
        return f"- `{node.name}{returns}` (property): {_doc(node)}"
    return f"- `{_signature(node, node.name)}`: {' '.join(_doc(node).split())}"


def _signature(node: ast.FunctionDef, name: str) -> str:
    arguments = ast.unparse(node.args)
    for own in ("self, ", "cls, ", "self", "cls"):
        if arguments.startswith(own):
            arguments = arguments.removeprefix(own)
            break
    returns = "" if node.name == "__init__" or node.returns is None else ast.unparse(node.returns)
    return f"{name}({arguments}){f' -> {returns}' if returns else ''}".replace("'\"", '"')


def _doc(node: Definition) -> str:
    return _folded(ast.get_docstring(node) or "")


def _folded(text: str) -> str:
    """One paragraph a line, as Markdown takes it."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
