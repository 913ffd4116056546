"""The C sources of the core as text for headers: elementary functions, activations, the learner.

The sources are `_core/portable*.h`. A header gets the functions that it calls, with the prefix `net_` renamed and every
`if (NET_FLAG)` decided. The bits are the same on every machine whose float is that of IEEE 754: no function calls a
library or computes in double, and `arithmetic_begin` forbids fused multiply-adds, excess precision and fast math.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from meshnn.codes import ACTIVATIONS
from meshnn.errors import MeshError

__all__ = ["activation_source", "arithmetic_begin", "called", "functions", "renamed"]

_FUNCTION = re.compile(r"^static inline .*?\bnet_(\w+)\(", re.MULTILINE)
#: A condition on one flag, alone or behind an else; the statement that it guards, or `{`.
_CONDITION = re.compile(r" *(?:\} else )?if \((!?)NET_([A-Z0-9_]+)(?: > 0\.0f)?\) (.*)")


@cache
def _parts(file: str) -> tuple[str, ...]:
    """Split a source at blank lines: functions with the comment before them, and other parts."""
    path = Path(__file__).parents[2] / "_core" / file
    return tuple(path.read_text(encoding="ascii").rstrip("\n").split("\n\n"))


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


def called(names: Iterable[str], among: Mapping[str, str]) -> str:
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
    """Replace the prefixes `net_` and `NET_` of the sources by those of a header."""
    return re.sub(r"\bNET_", f"{name.upper()}_", re.sub(r"\bnet_", f"{name}_", text))


def arithmetic_begin(name: str) -> str:
    """Return the lines before the first function of a header: compilers that cannot keep the bits are refused.

    `<stdint.h>` must have been included. Behind the last function, the header must restore the options of gcc.
    """
    found = next(part for part in _parts("portable_math.h") if part.startswith("#if"))
    return found.replace('"net:', f'"{name}:')


def activation_source(names: Iterable[str], slopes: bool, prefix: str, also: Iterable[str] = ()) -> str:
    """Return activations as functions `float PREFIXname(float t)`, with all that they call.

    Parameters
    ----------
    names : of activations
    slopes : bool
        With slopes they are `float PREFIXname(float t, float *d)`, and the slope is stored in `d`.
    prefix : str
        Begins all names, such as "net_".
    also : names of elementary functions to add: `exp`, `expm1`, `log`, `log1p`, `sqrt`, `abs`, `bits`, `from_bits`

    Examples
    --------
    >>> from meshnn.export.c.source import activation_source
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
    text = called([*wanted, *also], functions(["portable_math.h"], {"SLOPES": slopes, "BUILTIN_SQRT": False}))
    return renamed(text if slopes else text.replace("(float t, float *d)", "(float t)"), prefix.removesuffix("_"))
