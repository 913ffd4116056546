"""The reference: a page for every public name and every command, generated from docstrings and help texts.

Public names are those in `__all__` of the modules in `PUBLIC`. Modules that cannot be imported, for example because a
library is not installed, are left out, and the first page of the reference lists them.
"""

from __future__ import annotations

import inspect
import re
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

#: Groups of modules with public names, in the order of the page.
PUBLIC = {
    "Nets and estimators": (
        "meshnn", "meshnn.networks", "meshnn.estimators", "meshnn.topology", "meshnn.topology.lineage",
        "meshnn.plan", "meshnn.errors",
    ),
    "Training": ("meshnn.training", "meshnn.training.structure", "meshnn.losses"),
    "Streams": ("meshnn.online", "meshnn.streaming", "meshnn.streaming.kalman", "meshnn.streaming.portable"),
    "Data": ("meshnn.tables.synthetic",),
    "Plots": ("meshnn.plots",),
    "Export and conversion": (
        "meshnn.export", "meshnn.export.c.writer", "meshnn.export.onnx", "meshnn.neat", "meshnn.torch", "meshnn.jax",
    ),
    "Other libraries": (
        "meshnn.integrations.dask", "meshnn.integrations.river",
        "meshnn.integrations.sktime", "meshnn.integrations.skl2onnx", "meshnn.integrations.networkx",
    ),
}  # fmt: skip
#: Public names of modules that are mostly internal.
ONLY = {
    "meshnn.plan": ("Explanation",),
    "meshnn.streaming.kalman": ("KalmanSettings",),
    "meshnn.streaming.portable": ("PortableStream",),
    "meshnn.export.c.writer": ("CReport",),
    "meshnn.export.onnx": ("to_onnx",),
}


def modules() -> dict[str, ModuleType | str]:
    """Return the public modules by name; if one cannot be imported, the reason."""
    found: dict[str, ModuleType | str] = {}
    for name in (name for group in PUBLIC.values() for name in group):
        try:
            found[name] = import_module(name)
        except ImportError as error:
            found[name] = str(error)
    return found


def public_names(module: ModuleType) -> list[str]:
    """Return the public names of a module."""
    return list(ONLY.get(module.__name__, module.__all__))


def pages() -> dict[str, str]:
    """Return the page of every public name, such as `meshnn.networks.columns`; an object has a single page."""
    first: dict[int, str] = {}
    found = {}
    for name, module in modules().items():
        if isinstance(module, str):
            continue
        for word in public_names(module):
            value = getattr(module, word)
            whole = f"{name}.{word}"
            shared = inspect.isclass(value) or inspect.isroutine(value)
            found[whole] = first.setdefault(id(value), whole) if shared else whole
    return found


def members(kind: type) -> dict[str, str]:
    """Return the public members of a class that this package documents, with their autodoc directives."""
    found = {}
    for name in dir(kind):
        homes = [base for base in kind.__mro__ if name in vars(base)]
        described = [base for base in homes if getattr(vars(base)[name], "__doc__", None)]
        if name.startswith("_") or not described or not described[0].__module__.startswith("meshnn"):
            continue
        value = vars(homes[0])[name]
        if re.fullmatch("set_.*_request", name):  # methods that scikit-learn adds to subclasses
            continue
        if isinstance(value, property | cached_property):
            found[name] = "autoproperty"
        elif isinstance(value, classmethod | staticmethod) or inspect.isroutine(value):
            found[name] = "automethod"
    return found


def linked(text: str) -> str:
    """Return a docstring in which paths such as docs/how-to/tune.md are links; `help()` shows the paths."""
    return re.sub(r"docs/((?:how-to|explanation|reference)/[\w-]+)\.md", r":doc:`/\1`", text)


def link_pages(app: Any, kind: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Replace paths of pages in a docstring by links."""
    lines[:] = [linked(line) for line in lines]


def heading(text: str, line: str = "=") -> str:
    """Return a reStructuredText heading."""
    return f"{text}\n{line * len(text)}\n\n"


def object_page(name: str, value: Any) -> str:
    """Return the page of one name."""
    module, word = name.rsplit(".", 1)
    text = heading(word) + f".. currentmodule:: {module}\n\n"
    if inspect.isclass(value):
        text += f".. autoclass:: {word}\n"
        text += "".join(f"\n   .. {kind}:: {word}.{part}\n" for part, kind in members(value).items())
    elif inspect.isroutine(value):
        text += f".. autofunction:: {word}\n"
    else:
        text += f".. autodata:: {word}\n   :no-value:\n\nIts value::\n\n"
        text += "".join(f"    {line}\n" for line in wrapped(value))
    return text + f"\nAlso: :doc:`all of {module} <{module}>`.\n"


def wrapped(value: Any) -> list[str]:
    """Return a value as lines; a mapping has one line per key."""
    if isinstance(value, dict):
        return [f"{key!r}: {short(value[key])}" for key in value]
    if isinstance(value, list | tuple):
        return [short(item) for item in value]
    return [short(value)]


def short(value: Any) -> str:
    """Return the text of a value without memory addresses."""
    plain = value.__name__ if inspect.isclass(value) or inspect.isroutine(value) else repr(value)
    return re.sub(r" at 0x[0-9a-f]+|<locals>\.", "", plain)


def first_line(value: Any) -> str:
    """Return the first sentence of a docstring, for tables."""
    plain = inspect.isclass(value) or inspect.isroutine(value)
    text = (inspect.getdoc(value) or "") if plain else "A constant."
    return linked(" ".join(text.split("\n\n")[0].split()))


def table(rows: list[tuple[str, str]]) -> str:
    """Return a table with links and descriptions."""
    text = ".. list-table::\n   :widths: 35 65\n   :class: reference\n\n"
    return text + "".join(f"   * - {left}\n     - {right}\n" for left, right in rows) + "\n"


def module_page(name: str, module: ModuleType, where: dict[str, str]) -> str:
    """Return the page of a module: its docstring and its names."""
    names = public_names(module)
    rows = [(f":doc:`{word} <{where[f'{name}.{word}']}>`", first_line(getattr(module, word))) for word in names]
    # the pages of this module are below it; names of other modules are only linked
    below = [f"{name}.{word}" for word in names if where[f"{name}.{word}"] == f"{name}.{word}"]
    tree = ".. toctree::\n   :hidden:\n\n" + "".join(f"   {page}\n" for page in below) + "\n" if below else ""
    return heading(name) + f"{linked(inspect.getdoc(module) or '')}\n\n" + table(rows) + tree


def option_lines(command: Any) -> str:
    """Return the arguments and options of a command with their help texts."""
    text = ""
    for kind in ("argument", "option"):
        shown = [part for part in command.params if part.param_type_name == kind and not getattr(part, "hidden", False)]
        if not shown:
            continue
        rows = []
        for part in shown:
            names = [*part.opts, *part.secondary_opts] if kind == "option" else [part.name.upper()]
            description = plain_help(" ".join((getattr(part, "help", None) or "").split()))
            default = part.default
            if part.required:
                description += " *Required.*"
            elif default not in (None, False, "", ()) and not callable(default) and kind == "option":
                description += f" Default: ``{getattr(default, 'value', default)}``."
            rows.append((", ".join(f"``{name}``" for name in names), description or "..."))
        text += f".. rubric:: {kind.title()}s\n\n" + table(rows)
    return text


def plain_help(text: str) -> str:
    """Return a help text as reStructuredText, without rich markup; indented lines are commands."""
    plain = re.sub(r"\[/?(bold|dim|italic|cyan|green|yellow|red)\]", "", inspect.cleandoc(text or ""))
    parts = plain.replace("\b", "").replace("\\[", "[").split("\n\n")
    found: list[str] = []
    for part in parts:
        if part.startswith("  "):
            lines = "\n".join(f"    {line.strip()}" for line in part.splitlines())
            if found and found[-1].startswith("::"):
                found[-1] += f"\n{lines}"
            else:
                found.append(f"::\n\n{lines}")
        else:
            found.append(part.replace("*", "\\*").replace("`", "``"))
    return "\n\n".join(found)


def commands_page() -> str:
    """Return the page of the command line, from the help of every command."""
    from typer.main import get_command

    from meshnn.cli.commands import app

    group = get_command(app)
    text = heading("Command line") + plain_help(group.help or "") + "\n\n"
    text += (
        "The guide :doc:`Use the command line <../how-to/use-the-command-line>` shows how the commands work together. "
    )
    text += "``meshnn COMMAND --help`` prints the same texts.\n\n" + option_lines(group)
    for name in group.commands:
        command = group.commands[name]
        usage = " ".join(part.name.upper() for part in command.params if part.param_type_name == "argument")
        text += f".. _meshnn-{name}:\n\n" + heading(f"meshnn {name}", "-")
        text += f"::\n\n    meshnn {name} [OPTIONS] {usage}\n\n" + plain_help(command.help or "") + "\n\n"
        text += option_lines(command)
    return text


def start_page(found: dict[str, ModuleType | str]) -> str:
    """Return the first page of the reference."""
    text = heading("Reference") + "All public names with their docstrings, and all commands.\n\n"
    missing = {name: why for name, why in found.items() if isinstance(why, str)}
    for title, names in PUBLIC.items():
        there = [name for name in names if name not in missing]
        if there:
            text += heading(title, "-")
            text += table([(f":doc:`{name} <{name}>`", first_line_of_module(found[name])) for name in there])
            text += ".. toctree::\n   :hidden:\n\n" + "".join(f"   {name}\n" for name in there) + "\n"
    if missing:
        text += "Not in this build, because a required library is not installed: "
        text += ", ".join(f"``{name}``" for name in missing) + ".\n"
    return text


def first_line_of_module(module: Any) -> str:
    """Return the first sentence of the docstring of a module."""
    return linked(" ".join((inspect.getdoc(module) or "").split("\n\n")[0].split()))


def write(folder: Path) -> list[Path]:
    """Write all changed pages, so that Sphinx reads only these again."""
    found, where = modules(), pages()
    texts = {"index": start_page(found), "commands": commands_page()}
    for name, module in found.items():
        if not isinstance(module, str):
            texts[name] = module_page(name, module, where)
    for name in sorted(set(where.values())):
        module, word = name.rsplit(".", 1)
        texts[name] = object_page(name, getattr(found[module], word))
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.rst"):
        if old.stem not in texts:
            old.unlink()
    written = []
    for name, text in texts.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        written.append(path)
    return written


def setup(app: Any) -> dict[str, bool]:
    """Set up the Sphinx extension: write the pages before Sphinx reads sources."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / "api"))
    app.connect("autodoc-process-docstring", link_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
