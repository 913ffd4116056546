"""C sources of the core as text for headers: elementary functions, activations, the learner.

The sources are `_core/portable*.h`. A header gets the functions that it calls, with the prefix `net_` renamed and every
`if (NET_FLAG)` decided. The bits are the same on every machine whose float is that of IEEE 754: nothing calls a library
or computes in double, and `arithmetic_begin` forbids fused multiply-adds, excess precision and fast math.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from meshnn.codes import ACTIVATIONS as CODES
from meshnn.errors import MeshError

__all__ = [
    "ACTIVATIONS", "activation_source", "arithmetic_begin", "arithmetic_end", "functions", "literal", "math_source",
    "needed", "renamed",
]  # fmt: skip

#: The names of the activations that can be written.
ACTIVATIONS = tuple(CODES)

_SOURCES = Path(__file__).parent.parent / "_core"
_FUNCTION = re.compile(r"^static inline .*?\bnet_(\w+)\(", re.MULTILINE)
#: A condition on one flag, alone or behind an else; the statement that it guards, or `{`.
_CONDITION = re.compile(r" *(?:\} else )?if \((!?)NET_([A-Z0-9_]+)(?: > 0\.0f)?\) (.*)")


def literal(value: float) -> str:
    """A float32 as C writes it: the shortest decimal number that is read as the same bits."""
    with np.errstate(over="ignore"):  # refused
        found = np.float32(value)
    if not np.isfinite(found):
        raise MeshError(
            f"{float(value):.3g} cannot be written as a float of C; weights must be finite, and features numbers "
            "that float32 holds: scale them first"
        )
    text = repr(float(str(found)))
    return f"{text if 'e' in text or '.' in text else text + '.0'}f"


@cache
def _parts(file: str) -> tuple[str, ...]:
    """Functions with the comment before them, and what else blank lines separate."""
    return tuple((_SOURCES / file).read_text(encoding="ascii").rstrip("\n").split("\n\n"))


def functions(files: Iterable[str], flags: Mapping[str, bool]) -> dict[str, str]:
    """Return the functions of some sources by their names without `net_`, with all conditions on flags decided."""
    parts = [part for file in files for part in _parts(file)]
    return {found[1]: _decided(part, flags) for part in parts if (found := _FUNCTION.search(part))}


def _decided(text: str, flags: Mapping[str, bool]) -> str:
    """Keep the branch of each `if (NET_FLAG)` that applies, moved to the left, and drop the others."""
    lines: list[str] = []
    blocks: list[list[int]] = []  # of each open block: indentation, whether this branch is kept, whether one has been
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        condition = _CONDITION.fullmatch(line)
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


def needed(names: Iterable[str], among: Mapping[str, str]) -> str:
    """Join the functions and all that they call, in the order of the sources."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [call for call in re.findall(r"\bnet_(\w+)\(", among[name]) if call in among]
    return "\n\n".join(text for name, text in among.items() if name in found) + "\n" if found else ""


def renamed(text: str, name: str) -> str:
    """Replace the prefixes `net_` and `NET_` by those of a header."""
    return re.sub(r"\bNET_", f"{name.upper()}_", re.sub(r"\bnet_", f"{name}_", text))


def arithmetic_begin(name: str) -> str:
    """Return the lines before the first function: compilers that cannot keep the bits are refused.

    `name` is that of the header, for the error messages of the compiler. `<stdint.h>` must have been included.
    """
    found = next(part for part in _parts("portable_math.h") if part.startswith("#if"))
    return found.replace('"net:', f'"{name}:') + "\n"


def arithmetic_end() -> str:
    """Return the lines behind the last function."""
    return "#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC pop_options\n#endif\n"


def math_source(names: Iterable[str], prefix: str) -> str:
    """Elementary functions and those they call: `exp`, `expm1`, `log`, `log1p`, `sqrt`, `abs`, `bits`, `from_bits`.

    Examples
    --------
    >>> from meshnn.export.c_math import math_source
    >>> "static inline float net_sqrt(float x)" in math_source(["sqrt"], "net_")
    True
    """
    return activation_source([], False, prefix, names)


def activation_source(names: Iterable[str], slopes: bool, prefix: str, also: Iterable[str] = ()) -> str:
    """Activations as functions `float PREFIXname(float t)`, with all that they call.

    Parameters
    ----------
    names : of activations
    slopes : bool
        With slopes they are `float PREFIXname(float t, float *d)`, and the slope is stored in `d`.
    prefix : str
        Begins all names, such as "net_".
    also : names of further elementary functions, see `math_source`

    Examples
    --------
    >>> from meshnn.export.c_math import activation_source
    >>> print(activation_source(["relu"], True, "net_"))
    static inline float net_relu(float t, float *d) {
        *d = t <= 0.0f ? 0.0f : 1.0f;
        return t <= 0.0f ? 0.0f : t;
    }
    <BLANKLINE>
    """
    wanted = list(names)
    for name in wanted:
        if name not in ACTIVATIONS:
            raise MeshError(f"{name!r} has no C; activations that can be written are {', '.join(ACTIVATIONS)}")
    found = functions(["portable_math.h"], {"SLOPES": slopes, "BUILTIN_SQRT": False})
    text = needed([*wanted, *also], found)
    return renamed(text if slopes else text.replace("(float t, float *d)", "(float t)"), prefix.removesuffix("_"))
