"""A portable stream as one C99 header: a net that goes on learning where Python is not.

The functions are those of `_core/portable.h`, which the core runs itself, specialised for one net (`c_math.py`): sizes,
settings, tables and first values are constants, and functions and branches that the net does not need are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.codes import ACTIVATIONS, ADAM, BINARY_CROSS_ENTROPY, CROSS_ENTROPY
from meshnn.errors import MeshError
from meshnn.export.blob import EVERYTHING, MAGIC, SECTIONS, VERSION, graph_checksum, kind_of
from meshnn.export.c_math import arithmetic_begin, arithmetic_end, functions, literal, needed, renamed
from meshnn.export.c_text import check_name, comment, floats, numbers
from meshnn.files import write_whole

__all__ = ["learner_bytes", "learner_header", "write_learner"]

Array = NDArray[Any]
#: Settings in the order of `rule`, as in `portable.c`.
SETTINGS = (
    "RATE", "CLIP", "L2", "BETA1", "BETA2", "EPSILON", "TAILS", "NOISE_RATE", "NOISE_FLOOR", "Q_RATE", "Q_MIN", "Q_MAX",
    "BOUND", "CEILING",
)  # fmt: skip
_FIELDS = {
    "theta": "parameters",
    "x_moments": "of the inputs: seen, mean, variance, and those of a block",
    "y_moments": "the same of the targets",
    "s": "states of all neurons",
    "J": "influences of the parameters on the neurons they reach",
    "first": "mean of the gradient",
    "second": "mean square of the gradient",
    "P": "covariance of the parameters, the upper half row by row",
    "last": "the last change",
    "noise": "variance of the targets around the outputs",
    "memo": "counters of the learner",
}
_TABLES = (
    "ptr", "col", "num", "row_ptr", "rows", "par_ptr", "par", "edge_ptr", "edge_row", "edge_src", "out_row", "sub_ptr",
    "sub_num",
)  # fmt: skip


def learner_header(stream: Any, name: str = "net", top: Sequence[str] = ()) -> str:
    """Return the header of a learner that begins where the stream is and computes the same bits from the same samples.

    Parameters
    ----------
    stream : PortableStream
    name : str
        Prefix of the names of all functions and tables.
    top : sequence of str
        Lines of a comment at the beginning.

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.export.c_learner import learner_header
    >>> mesh = Mesh(Topology.mesh(1, 2, 1), activation="tanh", random_state=0)
    >>> text = learner_header(mesh.stream(portable=True))
    >>> "static inline void net_step(net_learner *l, const float x[NET_INPUTS], float y[NET_OUTPUTS])" in text
    True
    """
    check_name(name)
    if not len(stream.net.par):
        raise MeshError("no parameter of the net reaches an output: there is nothing to learn")
    body = _functions(stream)
    parts = [
        _usage(stream), "#ifndef NET_H\n#define NET_H\n#include <stdint.h>\n", _constants(stream, body),
        arithmetic_begin(name), _tables(stream), _struct(stream), body, arithmetic_end(), "#endif\n",
    ]  # fmt: skip
    return (comment(top) if top else "") + renamed("\n".join(parts), name)


def write_learner(stream: Any, path: str | PathLike[str], name: str = "net") -> None:
    """Write the header, whole or not at all."""
    write_whole(path, [learner_header(stream, name).encode()])


def _fields(stream: Any) -> dict[str, Array]:
    """Return the arrays that the learner remembers, with their first values, in the order in which they are saved."""
    found = {name: getattr(stream.room, name) for name in EVERYTHING}
    found["theta"] = found["theta"][: stream.ties.n_parameters]
    return {name: values for name, values in found.items() if values.size}


def learner_bytes(stream: Any) -> int:
    """Return the bytes of RAM of the struct of a learner."""
    return int(4 * (sum(values.size for values in _fields(stream).values()) + len(stream.room.clock)))


def _saved_bytes(stream: Any, names: Sequence[str]) -> int:
    return 36 + 4 * sum(values.size for name, values in _fields(stream).items() if name in names)


def _usage(stream: Any) -> str:
    t, room, N = stream.topology, stream.room, stream.ties.n_parameters
    tick = 2 * len(stream.net.code) + len(room.w) + len(room.column)
    update = (3 if len(room.P) else 2) * N + t.n_outputs
    target = "target[0] is the label, from 0" if stream.loss.code == CROSS_ENTROPY else "one target per output"
    state = "the state is carried from sample to sample" if stream.memory == "carry" else "every sample begins anew"
    bias = " + bias" if t.n_clamped > t.n_inputs else ""
    return f"""\
/* A net that goes on learning: {stream.learner.name}, exact influences, {stream.loss.name}. Written by meshnn.

   {t.n_inputs} inputs{bias}, {t.n_hidden} hidden, {t.n_outputs} outputs; {t.n_edges} edges, {N} parameters; \
{stream.net.ticks} ticks per sample, {state}.
   RAM: {learner_bytes(stream)} bytes in net_learner, and about {4 * max(tick, update) + 200} of stack.

   static net_learner l;              no memory is allocated, no library is called
   float x[{t.n_inputs}], y[{t.n_outputs}], target[{stream.net.n_targets}];

   net_init(&l);                      as the net was when this was written
   for (;;) {{
       net_step(&l, x, y);            the outputs of a sample
       net_learn(&l, target);         {target}; NaN is a missing target
   }}
   net_reset(&l);                     forget the state, keep what was learned

   uint32_t n = net_save(&l, bytes, 0);   {_saved_bytes(stream, SECTIONS)} bytes: parameters and scaling; all with 1: \
{_saved_bytes(stream, EVERYTHING)}
   int fault = net_restore(&l, bytes, n); 0, or why not: 1 cut, 2 not ours or of another version, 3 of another net,
                                         4 altered, 5 not finite; then nothing has changed

   meshnn import bytes --into model.mesh --out new.mesh takes the saved bytes back to Python.
   Every number has the same bits as in mesh.stream(portable=True), whatever the processor and the compiler. */
"""


def _constants(stream: Any, body: str) -> str:
    """Return the sizes, settings and words of saved bytes that the functions use, and the type of an index."""
    t, net, room = stream.topology, stream.net, stream.room
    graph = graph_checksum(t, stream.codes, stream.ties.number, stream.ties.n_parameters)
    found: dict[str, object] = {
        "INPUTS": t.n_inputs, "CLAMPED": t.n_clamped, "NEURONS": t.n_neurons, "ROWS": len(net.code),
        "OUTPUTS": t.n_outputs, "TARGETS": net.n_targets, "PARAMETERS": stream.ties.n_parameters,
        "GROUPS": len(net.row_ptr) - 1, "TICKS": net.ticks, "MOST_ROWS": len(room.column) // 4,
        "MOST_EDGES": len(room.w), "INFLUENCES": len(room.J), "COVARIANCES": len(room.P),
        "SAVED": _saved_bytes(stream, SECTIONS), "SAVED_ALL": _saved_bytes(stream, EVERYTHING),
        "MAGIC": f"0x{int.from_bytes(MAGIC, 'little'):08x}", "VERSION": VERSION,
        "KIND": kind_of(stream.learner.name), "GRAPH": f"0x{graph:08x}",
    }  # fmt: skip
    lines = [f"#define NET_{name} {value}u" for name, value in found.items()]
    lines += [f"#define NET_{name} {literal(value)}" for name, value in zip(SETTINGS, stream.rule, strict=True)]
    widest = max(t.n_edges, len(room.J), len(room.P), len(net.sub_src), 7 * t.n_inputs, len(room.theta))
    # int has 16 bits on the smallest processors, and is the fastest there
    index = f"typedef {'unsigned' if widest < 2**16 else 'uint32_t'} net_index;\n"
    return "\n".join([*(line for line in lines if re.search(rf"\b{line.split()[1]}\b", body)), index])


# -- tables and first values -----------------------------------------------------------------------------------------


def _alike(values: Array) -> bool:
    """Whether all are the same bits, so that no table is needed."""
    return bool((values.view(np.uint32) == values.view(np.uint32)[0]).all())


def _diagonal(P: Array, n: int) -> bool:
    """Whether a covariance is a multiple of the unit matrix."""
    diagonal = np.concatenate([[0], np.cumsum(np.arange(n, 1, -1))]).astype(np.int64)
    return _alike(P[diagonal]) and np.count_nonzero(P) == n


def _runs(net: Any) -> Array | None:
    """Return the first source of each row of the groups, if the sources of every row are consecutive; else None."""
    begin, length = net.sub_ptr[:-1], np.diff(net.sub_ptr)
    first = np.zeros(len(begin), np.int64)
    first[length > 0] = net.sub_src[begin[length > 0]]
    within = np.arange(len(net.sub_src)) - np.repeat(begin, length)
    return first if np.array_equal(np.repeat(first, length) + within, net.sub_src) else None


def _tables(stream: Any) -> str:
    net, N, runs = stream.net, stream.ties.n_parameters, _runs(stream.net)
    tables = {name: getattr(net, name) for name in _TABLES}
    tables |= {"sub_src": net.sub_src} if runs is None else {"sub_from": runs}
    if len(set(net.code.tolist())) > 1:
        tables["code"] = net.code
    found = []
    for name, values in tables.items():
        most = int(values.max(initial=0))
        kind = "uint8_t" if most < 2**8 else ("uint16_t" if most < 2**16 else "uint32_t")
        found.append(numbers(kind, f"net_{name}", values if values.size else np.zeros(1)))
    if len(stream.room.theta) > N:
        found.append(floats("net_fixed", stream.room.theta[N:]))
    for name, values in _fields(stream).items():
        if not _alike(values) and not (name == "P" and _diagonal(values, N)):
            found.append(floats(f"net_first_{name}", values))
    return "".join(found)


def _struct(stream: Any) -> str:
    lines = [f"    float {name}[{values.size}]; /* {_FIELDS[name]} */" for name, values in _fields(stream).items()]
    lines.append("    uint32_t clock[4]; /* samples seen, updates made, updates left out, states set to 0 */")
    return "\n".join(["typedef struct {", *lines, "} net_learner;\n"])


def _init(stream: Any) -> str:
    lines = ["static inline void net_init(net_learner *l) {", "    net_index k;"]
    for name, values in _fields(stream).items():
        each = f"    for (k = 0u; k < {values.size}u; k++) l->{name}[k] = "
        if _alike(values):
            lines.append(f"{each}{literal(values[0])};")
        elif name == "P" and _diagonal(values, stream.ties.n_parameters):
            lines.append(f"{each}0.0f;")
            steps = "net_index i; for (i = k = 0u; i < NET_PARAMETERS; k += NET_PARAMETERS - i, i++)"
            lines.append(f"    {{ {steps} l->P[k] = {literal(values[0])}; }}")
        else:
            lines.append(f"{each}net_first_{name}[k];")
    lines += [f"    l->clock[{k}] = {int(value)}u;" for k, value in enumerate(stream.room.clock)]
    return "\n".join([*lines, "}"])


# -- functions -------------------------------------------------------------------------------------------------------


def _functions(stream: Any) -> str:
    net, room = stream.net, stream.room
    flags = {
        "SLOPES": True, "BUILTIN_SQRT": False, "FROZEN": False,
        "SCALED": bool(room.x_moments.size), "SCALED_TARGETS": bool(room.y_moments.size), "CARRIES": bool(net.carries),
        "FIXED": len(room.theta) > stream.ties.n_parameters, "RUNS": _runs(net) is not None,
        "FILTERS": bool(net.filters), "ADAM": net.learner == ADAM, "CLASSES": net.loss == CROSS_ENTROPY,
        "LABELS": net.loss == BINARY_CROSS_ENTROPY, "LOGISTIC": net.loss in (CROSS_ENTROPY, BINARY_CROSS_ENTROPY),
    }  # fmt: skip
    flags |= {name: bool(value > 0) for name, value in zip(SETTINGS, stream.rule, strict=True)}
    found = functions(["portable_math.h", "portable.h", "portable_save.h"], flags)
    used = [name for name, code in ACTIVATIONS.items() if code in net.code]
    case = re.compile(r"\n +case \d+u: return net_(\w+)\(t, d\);")
    found["activate"] = case.sub(lambda line: line[0] if line[1] in used else "", found["activate"])
    if len(used) == 1:
        found["step"] = found["step"].replace("net_activate(net_code[r], ", f"net_{used[0]}(")
    found["init"] = _init(stream)
    text = needed(["bits", "from_bits", "init", "step", "learn", "reset", "save", "restore"], found)
    return re.sub(r"NET_ARRAY\((\w+), (.*)\);", r"float \1[\2];", text)
