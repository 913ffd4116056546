"""Rendering of the C templates: literals, tables, comments and strings, and names that C takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from meshnn.arrays import Array
from meshnn.errors import MeshError
from meshnn.export.blueprint import ExportError
from meshnn.export.limits import LIMITS

__all__ = ["Tables", "check_name", "identifiers", "integer_type", "literal", "plain", "render", "string"]

_RESERVED = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool class delete
false friend namespace new operator private protected public template this throw true try typename using virtual main
"""


def check_name(name: str) -> str:
    """Return the prefix of the names in a header, if C takes it."""
    if name in _RESERVED.split():
        raise ExportError(f"name={name!r} is a word of C or C++ itself; take another one, such as net_{name}")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,30}", name):
        raise ExportError(
            f"name={name!r} cannot begin the names of a C header; take a letter, then up to 30 letters, digits and _, "
            "such as net"
        )
    return name


def literal(value: float) -> str:
    """Return a float32 as C writes it: the shortest decimal number with the same bits."""
    with np.errstate(over="ignore"):  # refused
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
    for kind, low, high in (("uint8_t", 0, 2**8), ("int8_t", -(2**7), 2**7), ("uint16_t", 0, 2**16),
                            ("int16_t", -(2**15), 2**15)):  # fmt: skip
        if low <= least and most < high:
            return kind
    return "int32_t"


class Tables:
    """The constant arrays of one header: templates define and read them, and their bytes are counted.

    Parameters
    ----------
    flash : str
        Prefix of the macros FLASH and AT, which keep tables in flash on AVR; none if they are read as plain arrays.
    """

    def __init__(self, flash: str = "") -> None:
        self.flash, self.bytes = flash, 0
        self._kinds: dict[str, str] = {}

    def define(self, name: str, values: Any, kind: str = "float") -> str:
        """Return the definition of a table."""
        self._kinds[name] = kind
        self.bytes += len(values) * (4 if kind == "float" else int(kind.strip("uint_")) // 8)
        items = [literal(v) if kind == "float" else str(int(v)) for v in values]
        mark = f" {self.flash}_FLASH" if self.flash else ""
        return f"static const {kind} {name}[{len(items)}]{mark} = {{\n{wrapped(items)}\n}};"

    def at(self, name: str, index: Any) -> str:
        """Return the expression that reads an entry of a table."""
        return f"{self.flash}_AT({self._kinds[name]}, {name}, {index})" if self.flash else f"{name}[{index}]"


def wrapped(items: Iterable[str]) -> str:
    """Return the items of an initialiser in lines of at most 110 characters."""
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > 110:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*lines, line])


def plain(text: Any) -> str:
    """Return a name as printable ASCII that cannot end a comment, in bounded length."""
    shown = str(text).encode("ascii", "backslashreplace").decode()
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in shown)
    shown = shown if len(shown) <= LIMITS.label_bytes else shown[: LIMITS.label_bytes - 3] + "..."
    return shown.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def string(text: Any, number: int | None = None) -> str:
    """Return a string literal of C in UTF-8, with everything special escaped by bytes.

    A NUL would end it and becomes `\\0` in two characters. A long text is cut and gets its `number`, which keeps
    different texts different; without a number it is left whole.
    """
    content = str(text).replace("\0", "\\0").encode("utf-8", "backslashreplace")
    if number is not None and len(content) > LIMITS.label_bytes:
        short = content[: LIMITS.label_bytes - 12].decode("utf-8", "ignore")
        content = f"{short}...#{number}".encode()
    safe = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-+.,:;()[]{}<>=!#$&*/|~^'@")
    # three octal digits: the next character cannot become part of the escape
    return '"' + "".join(chr(b) if chr(b) in safe else f"\\{b:03o}" for b in content) + '"'


def identifiers(names: Iterable[Any]) -> list[str]:
    """Return different identifiers of C for names, in the order given.

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
    """Return lines as a comment of C."""
    return "/*\n" + "".join(f" * {line}".rstrip() + "\n" for line in text.strip("\n").split("\n")) + " */"


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("meshnn.export.c"), trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined,
        keep_trailing_newline=True,
    )  # fmt: skip
    found.filters |= {"literal": literal, "plain": plain, "string": string, "comment": _comment, "json": json.dumps}
    found.globals["integer_type"] = integer_type
    return found


def render(template: str, **values: Any) -> str:
    """Return a template filled in; a value that is missing is an error."""
    return _environment().get_template(template).render(**values)
