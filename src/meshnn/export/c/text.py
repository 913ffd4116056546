"""C text: literals, tables, strings, names, templates, and the sources of the core specialised for one header.

The sources are `_core/portable*.h`. A header gets the functions that it calls, with the prefix `net_` renamed and every
`if (NET_FLAG)` resolved. The results are bit-identical on every machine with IEEE 754 floats: no function calls a
library or computes in double, and `arithmetic_begin` disables fused multiply-adds, excess precision and fast math.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from meshnn.arrays import Array
from meshnn.errors import MeshError
from meshnn.export.blueprint import ExportError


def check_name(name: str) -> str:
    """Return the prefix of the names in a header; raise an error if it is not valid in C."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,30}", name):
        raise ExportError(
            f"name={name!r} cannot be the prefix of C names; use a letter, then up to 30 letters, digits and _, "
            "such as net"
        )
    return name


def literal(value: float) -> str:
    """Return a float32 as a C literal: the shortest decimal number with the same bits."""
    with np.errstate(over="ignore"):  # infinity is an error below
        found = np.float32(value)
    if not np.isfinite(found):
        raise MeshError(
            f"{float(value):.3g} cannot be written as a float of C; weights must be finite, and features numbers "
            "that float32 holds: scale them first"
        )
    text = repr(float(str(found)))
    return f"{text if 'e' in text or '.' in text else text + '.0'}f"


def integer_type(values: Array) -> str:
    """Return the smallest type of `<stdint.h>` that holds all values."""
    least, most = int(np.min(values, initial=0)), int(np.max(values, initial=0))
    for kind in ("uint8", "int8", "uint16", "int16"):
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return f"{kind}_t"
    return "int32_t"


class Tables:
    """The constant arrays of one header: templates define and read them, and their bytes are counted.

    `flash` is the prefix of the macros FLASH and AT, which keep tables in flash on AVR; "" defines plain arrays.
    """

    def __init__(self, flash: str = "") -> None:
        self.flash, self.bytes = flash, 0
        self._kinds: dict[str, str] = {}

    def define(self, name: str, values: Any, kind: str = "float") -> str:
        """Return the definition of a table."""
        self._kinds[name] = kind
        self.bytes += len(values) * (4 if kind == "float" else int(kind.strip("uint_")) // 8)
        items = [literal(v) if kind == "float" else str(int(v)) for v in values]
        lines = "".join(f"    {', '.join(items[k : k + 10])},\n" for k in range(0, len(items), 10))
        mark = f" {self.flash}_FLASH" if self.flash else ""
        return f"static const {kind} {name}[{len(items)}]{mark} = {{\n{lines}}};"

    def at(self, name: str, index: Any) -> str:
        """Return the expression that reads an entry of a table."""
        return f"{self.flash}_AT({self._kinds[name]}, {name}, {index})" if self.flash else f"{name}[{index}]"


def plain(text: Any, most: int = 200) -> str:
    """Return a name as printable ASCII of limited length that cannot end a comment."""
    shown = str(text).encode("ascii", "backslashreplace").decode()
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in shown)
    shown = shown if len(shown) <= most else shown[: most - 3] + "..."
    return shown.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def string(text: Any, number: int | None = None, most: int = 200) -> str:
    """Return a C string literal in UTF-8, in which bytes of special characters are escaped.

    A NUL, which would end it, becomes `\\0` (two characters). A long text is cut, because compilers may limit strings
    to 4095 bytes, and its `number` is appended to keep texts distinct; without a number it is not cut.
    """
    content = str(text).replace("\0", "\\0").encode("utf-8", "backslashreplace")
    if number is not None and len(content) > most:
        content = f"{content[: most - 12].decode('utf-8', 'ignore')}...#{number}".encode()
    # three octal digits, so that the next character cannot become part of the escape
    escaped = re.sub(rb'[^ -~]|[\\"?%`]', lambda found: b"\\%03o" % found[0][0], content)
    return f'"{escaped.decode()}"'


def identifiers(names: Iterable[Any]) -> list[str]:
    """Return unique C identifiers for names, in order.

    >>> identifiers(["Ulm", "Bad Urach", "bad urach", "7"])
    ['ulm', 'bad_urach', 'bad_urach_2', '7']
    """
    found: list[str] = []
    for name in names:
        base = "".join(c if c.isalnum() and c.isascii() else "_" for c in str(name).lower())[:30] or "_"
        fresh, k = base, 1
        while fresh in found:
            k += 1
            fresh = f"{base}_{k}"
        found.append(fresh)
    return found


def _comment(text: str) -> str:
    """Return lines as a C comment."""
    return "/*\n" + "".join(f" * {line}".rstrip() + "\n" for line in text.strip("\n").split("\n")) + " */"


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("meshnn.export.c"), trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined,
        keep_trailing_newline=True,
    )  # fmt: skip
    found.filters |= {"literal": literal, "plain": plain, "string": string, "comment": _comment, "json": json.dumps}
    found.filters |= {"log2": np.log2, "integer_type": integer_type}
    return found


def render(template: str, **values: Any) -> str:
    """Return a template with values inserted; a missing value is an error."""
    return _environment().get_template(template).render(**values)


# -- sources of the core ----------------------------------------------------------------------------------------------


@cache
def _parts(file: str) -> tuple[str, ...]:
    """Split a source at blank lines: functions with their comments, and other parts."""
    path = Path(__file__).parents[2] / "_core" / file
    return tuple(path.read_text(encoding="ascii").rstrip("\n").split("\n\n"))


def functions(files: Iterable[str], flags: Mapping[str, bool]) -> dict[str, str]:
    """Return the functions of some sources by name, without `net_`, with all conditions on flags resolved."""
    pattern = re.compile(r"^static inline .*?\bnet_(\w+)\(", re.MULTILINE)
    parts = [part for file in files for part in _parts(file)]
    return {found[1]: _decided(part, flags) for part in parts if (found := pattern.search(part))}


def _decided(text: str, flags: Mapping[str, bool]) -> str:
    """Keep the active branch of each `if (NET_FLAG)`, dedented, and remove the others."""
    lines: list[str] = []
    # per open block: indentation, whether this branch is kept, whether any branch was kept
    blocks: list[list[int]] = []
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        # a condition on one flag, alone or after an else; then its statement, or `{`
        condition = re.fullmatch(r" *(?:\} else )?if \((!?)NET_([A-Z0-9_]+)(?: > 0\.0f)?\) (.*)", line)
        flagged = condition is not None and condition[2] in flags
        holds = condition is None or (flagged and flags[condition[2]] != bool(condition[1]))
        if blocks and indent == blocks[-1][0] and line[indent] == "}":
            if line[indent:] == "}":
                blocks.pop()
            else:
                blocks[-1][1:] = holds and not blocks[-1][2], holds or blocks[-1][2]
        elif flagged and condition is not None and condition[3] == "{":
            blocks.append([indent, holds, holds])
        elif all(kept for _, kept, _ in blocks) and (holds or not flagged):
            line = " " * indent + condition[3] if flagged and condition is not None else line
            lines.append(line[4 * len(blocks) :])
    return "\n".join(lines)


def called(names: Iterable[str], among: Mapping[str, str]) -> str:
    """Join the functions and all functions that they call, in the order of the sources."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [call for call in re.findall(r"\bnet_(\w+)\(", among[name]) if call in among]
    return "\n\n".join(text for name, text in among.items() if name in found) + "\n" if found else ""


def renamed(text: str, name: str) -> str:
    """Replace the prefixes `net_` and `NET_` of the sources by those of a header."""
    return re.sub(r"\bNET_", f"{name.upper()}_", re.sub(r"\bnet_", f"{name}_", text))


def arithmetic_begin(name: str) -> str:
    """Return the lines before the first function of a header, which reject unsuitable compilers.

    `<stdint.h>` must be included before. After the last function, the header must restore the gcc options.
    """
    found = next(part for part in _parts("portable_math.h") if part.startswith("#if"))
    return found.replace('"net:', f'"{name}:')


def activation_source(names: Iterable[str], slopes: bool, name: str, also: Iterable[str] = ()) -> str:
    """Return activations and elementary functions with all that they call, with the prefix `name` and _.

    With `slopes` an activation is `float net_tanh(float t, float *d)` and stores its slope in `d`.

    >>> print(activation_source(["relu"], False, "net"))
    static inline float net_relu(float t) {
        return t <= 0.0f ? 0.0f : t;
    }
    <BLANKLINE>
    """
    text = called([*names, *also], functions(["portable_math.h"], {"SLOPES": slopes, "BUILTIN_SQRT": False}))
    return renamed(text if slopes else text.replace("(float t, float *d)", "(float t)"), name)
