"""Pieces of C headers that all kinds of nets share: names, tables, the comment at the top."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from meshnn.arrays import Array
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.c_math import literal

__all__ = [
    "check_name", "comment", "floats", "header", "indented", "integer_type", "label_source", "table", "table_bytes",
]  # fmt: skip

WIDTH = 110
#: Words that C or C++ keeps for itself.
_WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool class delete
false friend namespace new operator private protected public template this throw true try typename using virtual main
"""
TAKEN = frozenset(_WORDS.split())


def check_name(name: str) -> str:
    """A prefix of names that C takes."""
    if name in TAKEN:
        raise ExportError(f"name={name!r} is a word of C or C++ itself; take another one, such as net_{name}")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,30}", name):
        raise ExportError(
            f"name={name!r} cannot begin the names of a C header; take a letter, then up to 30 letters, digits and _, "
            "such as net"
        )
    return name


def table_bytes(text: str) -> int:
    """Of all tables of numbers in a header."""
    found = re.findall(r"static const (float|u?int(?:8|16|32)_t) \w+\[(\d+)\]", text)
    return sum(int(n) * (4 if kind == "float" else int(kind.strip("uint_")) // 8) for kind, n in found)


def integer_type(least: float, most: float) -> str:
    """The smallest type of `<stdint.h>` that holds all whole numbers between."""
    for kind, low, high in (("uint8_t", 0, 2**8), ("int8_t", -(2**7), 2**7), ("uint16_t", 0, 2**16),
                            ("int16_t", -(2**15), 2**15)):  # fmt: skip
        if low <= least and most < high:
            return kind
    return "int32_t"


def table(kind: str, name: str, values: Iterable[str], shape: str | None = None) -> str:
    """A constant array, in flash where constants are."""
    items = list(values)
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {item},"
    size = shape or str(len(items))
    return f"static const {kind} {name}[{size}] = {{\n" + "\n".join([*lines, line]) + "\n};\n"


def floats(name: str, values: Array) -> str:
    """A constant array of floats."""
    return table("float", name, (literal(v) for v in values))


def numbers(kind: str, name: str, values: Array) -> str:
    """A constant array of whole numbers."""
    return table(kind, name, (str(int(v)) for v in values))


def indented(text: str, by: int = 4) -> str:
    """Lines moved to the right; empty ones stay."""
    return "".join(" " * by + line if line.strip() else line for line in text.splitlines(keepends=True))


def comment(lines: Sequence[str]) -> str:
    """A comment that no text can end; C90's trigraphs and what is not ASCII are written in other ways."""
    safe = [_plain(line) for line in lines]
    return "/*\n" + "".join(f" * {line}".rstrip() + "\n" for line in safe) + " */\n"


def _plain(text: str) -> str:
    text = text.encode("ascii", "backslashreplace").decode()
    text = "".join(c if c.isprintable() else " " for c in text)
    return text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def string(text: str) -> str:
    """A string of C in UTF-8; what is not plain is escaped by bytes, in a way that the next letter cannot change."""
    plain = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-+.,:;()[]{}<>=!#$&*/|~^'@")
    body = "".join(chr(b) if chr(b) in plain else f"\\{b:03o}" for b in text.encode())
    return f'"{body}"'


def label_source(blueprint: Blueprint, p: str) -> str:
    """`net_label`: the class of a number, as a whole number or as text."""
    if not blueprint.classes or blueprint.several:
        return ""
    classes = blueprint.classes
    whole = all(isinstance(c, (int, np.integer)) and not isinstance(c, bool) and -(2**31) < c < 2**31 for c in classes)
    if whole and list(classes) == list(range(len(classes))):
        return ""  # the number is the class
    if whole:
        body = numbers(integer_type(min(classes), max(classes)), "labels", np.array(classes))
        head = f"/* The class of a number that {p}predict gives. */\nstatic inline int32_t {p}label(int k) {{\n"
    else:
        body = table("char *const", "labels", (string(str(c)) for c in classes))
        head = f"/* The class of a number that {p}predict gives. */\nstatic inline const char *{p}label(int k) {{\n"
    return head + indented(body) + "    return labels[k];\n}\n"


def header(name: str, top: Sequence[str], body: str) -> str:
    """The whole file."""
    up, guard = name.upper(), f"{name.upper()}_H"
    begin = f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n\n"
    return comment(top) + begin + _FLASH.replace("@@", up).replace("@", f"{name}_") + in_flash(up, body) + "\n#endif\n"


#: On AVR constants are copied to RAM, of which there is little, unless they are marked and read by an instruction of
#: their own.
_FLASH = """\
#if defined(__AVR__)
#define @@_FLASH __attribute__((__progmem__))
#define @@_AT(kind, table, i) @at_##kind((table) + (i))
static inline uint8_t @at_uint8_t(const uint8_t *p) {
    uint8_t found;
    __asm__("lpm %0, Z" : "=r"(found) : "z"(p));
    return found;
}
static inline int8_t @at_int8_t(const int8_t *p) {
    return (int8_t)@at_uint8_t((const uint8_t *)p);
}
static inline uint16_t @at_uint16_t(const uint16_t *p) {
    const uint8_t *q = (const uint8_t *)p;
    return (uint16_t)(@at_uint8_t(q) | (uint16_t)@at_uint8_t(q + 1) << 8);
}
static inline int16_t @at_int16_t(const int16_t *p) {
    return (int16_t)@at_uint16_t((const uint16_t *)p);
}
static inline uint32_t @at_uint32_t(const uint32_t *p) {
    const uint16_t *q = (const uint16_t *)p;
    return @at_uint16_t(q) | (uint32_t)@at_uint16_t(q + 1) << 16;
}
static inline int32_t @at_int32_t(const int32_t *p) {
    return (int32_t)@at_uint32_t((const uint32_t *)p);
}
static inline float @at_float(const float *p) {
    uint32_t bits = @at_uint32_t((const uint32_t *)p);
    float found;
    __builtin_memcpy(&found, &bits, sizeof found);
    return found;
}
#else
#define @@_FLASH
#define @@_AT(kind, table, i) ((table)[i])
#endif

"""


def in_flash(up: str, body: str) -> str:
    """The same with tables marked as such, and read where they are."""
    declared = re.compile(r"static const (float|u?int\d+_t) (\w+)\[(\d+)\] = ")
    kinds = {found[2]: found[1] for found in declared.finditer(body)}
    body = declared.sub(rf"static const \1 \2[\3] {up}_FLASH = ", body)
    for table_name, kind in kinds.items():
        read = rf"\b{table_name}\[([^\[\]]+)\](?! {up}_FLASH)"
        body = re.sub(read, rf"{up}_AT({kind}, {table_name}, \1)", body)
    return body
