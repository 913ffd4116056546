"""A portable stream as one C99 header: a net that continues to learn on a device without Python.

The functions are those of `_core/portable.h`, which the core also runs, specialised for one net (`text.py`): sizes,
settings, tables and initial values are constants; unused functions and branches are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.codes import ACTIVATIONS, LossCode, StepRule
from meshnn.errors import MeshError
from meshnn.export.c.text import Tables, arithmetic_begin, called, check_name, functions, literal, renamed, render
from meshnn.export.snapshot import LEARNERS, MAGIC, VERSION, graph_checksum, section_arrays

#: Settings in the order of `rule`, as in `portable.c`.
SETTINGS = (
    "RATE", "CLIP", "L2", "BETA1", "BETA2", "EPSILON", "TAILS", "NOISE_RATE", "NOISE_FLOOR", "Q_RATE", "Q_MIN", "Q_MAX",
    "BOUND", "CEILING",
)  # fmt: skip


def learner_header(stream: Any, name: str = "net", top: Sequence[str] = (), tables: Tables | None = None) -> str:
    """Return the header of a learner in the state of the stream, with bit-identical results.

    `name` is the prefix of all functions and tables, `top` are lines of the comment at the beginning, and `tables`
    counts the bytes of the tables.

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.export.c.learner import learner_header
    >>> mesh = Mesh(Topology.mesh(1, 2, 1), activation="tanh", random_state=0)
    >>> text = learner_header(mesh.stream(portable=True))
    >>> "static inline void net_step(net_learner *l, const float x[NET_INPUTS], float y[NET_OUTPUTS])" in text
    True
    """
    check_name(name)
    if not len(stream.net.par):
        raise MeshError("no parameter of the net influences an output; add edges to an output")
    t, room, N = stream.topology, stream.room, stream.ties.n_parameters
    saved, saved_all = (36 + 4 * _count(stream, everything) for everything in (False, True))
    tick, update = 2 * len(stream.net.code) + len(room.w) + len(room.column), (3 if len(room.P) else 2) * N
    interface = {"prefix": f"{name}_", "struct": "learner", "given": t.n_inputs, "outputs": t.n_outputs,
                 "targets": stream.net.n_targets, "saved": saved_all, "functions": {}}  # fmt: skip
    widest = max(t.n_edges, len(room.J), len(room.P), len(stream.net.sub_src), 7 * t.n_inputs, len(room.theta))
    return render(
        "learner.h.j2", top=top, p=f"{name}_", up=name.upper(), stream=stream, net=stream.net, t=t, N=N,
        tables=Tables() if tables is None else tables, classes=stream.loss.code == LossCode.CROSS_ENTROPY, saved=saved,
        saved_all=saved_all, ram=learner_bytes(stream), stack=4 * max(tick, update + t.n_outputs) + 200,
        interface=interface, constants=_constants(stream, saved, saved_all), arrays=_arrays(stream),
        settings=[(key, literal(value)) for key, value in zip(SETTINGS, stream.rule, strict=True)],
        # int has 16 bits on the smallest processors, where it is fastest
        index="unsigned" if widest < 2**16 else "uint32_t", index_tables=_index_tables(stream),
        fixed=room.theta[N:], arithmetic_begin=arithmetic_begin(name), functions=renamed(_functions(stream), name),
    )  # fmt: skip


def _count(stream: Any, everything: bool = True) -> int:
    """Return the number of saved floats."""
    return sum(values.size for values in section_arrays(stream, everything).values())


def learner_bytes(stream: Any) -> int:
    """Return the bytes of RAM for the struct of a learner."""
    return 4 * (_count(stream) + len(stream.room.clock))


def _constants(stream: Any, saved: int, saved_all: int) -> dict[str, object]:
    """Return the sizes and the words of the saved head that the functions use."""
    t, net, room = stream.topology, stream.net, stream.room
    graph = graph_checksum(t, stream.codes, stream.ties)
    return {
        "INPUTS": t.n_inputs, "CLAMPED": t.n_clamped, "NEURONS": t.n_neurons, "ROWS": len(net.code),
        "OUTPUTS": t.n_outputs, "TARGETS": net.n_targets, "PARAMETERS": stream.ties.n_parameters,
        "GROUPS": len(net.row_ptr) - 1, "TICKS": net.ticks, "MOST_ROWS": len(room.column) // 4,
        "MOST_EDGES": len(room.w), "INFLUENCES": len(room.J), "COVARIANCES": len(room.P), "SAVED": saved,
        "SAVED_ALL": saved_all, "MAGIC": f"0x{int.from_bytes(MAGIC, 'little'):08x}", "VERSION": VERSION,
        "KIND": LEARNERS.index(stream.learner.name), "GRAPH": f"0x{graph:08x}",
    }  # fmt: skip


def _arrays(stream: Any) -> list[dict[str, Any]]:
    """Return the arrays of the struct; initial values that are all the same, or a multiple of the unit matrix, need no
    table."""
    found = []
    for name, values in section_arrays(stream, everything=True).items():
        if not values.size:
            continue
        same, n = bool((values.view(np.uint32) == values.view(np.uint32)[0]).all()), stream.ties.n_parameters
        corners = np.concatenate([[0], np.cumsum(np.arange(n, 1, -1))]).astype(np.int64)  # indices of the diagonal of P
        diagonal = name == "P" and np.count_nonzero(values) == n and len(set(values[corners].tolist())) == 1
        how = "same" if same else "diagonal" if diagonal else "table"
        found.append({"name": name, "values": values, "how": how})
    return found


def _runs(net: Any) -> Array | None:
    """Return the first source of each row of the groups, if the sources of every row are consecutive; else None."""
    begin, length = net.sub_ptr[:-1], np.diff(net.sub_ptr)
    first = np.zeros(len(begin), np.int64)
    first[length > 0] = net.sub_src[begin[length > 0]]
    within = np.arange(len(net.sub_src)) - np.repeat(begin, length)
    return first if np.array_equal(np.repeat(first, length) + within, net.sub_src) else None


def _index_tables(stream: Any) -> list[tuple[str, Array, str]]:
    """Return name, values and type of the index tables."""
    net, runs = stream.net, _runs(stream.net)
    names = "ptr col num row_ptr rows par_ptr par edge_ptr edge_row edge_src out_row sub_ptr sub_num"
    tables = {name: getattr(net, name) for name in names.split()}
    tables |= {"sub_src": net.sub_src} if runs is None else {"sub_from": runs}
    if len(set(net.code.tolist())) > 1:
        tables["code"] = net.code
    found = []
    for name, values in tables.items():
        most = int(values.max(initial=0))
        kind = "uint8_t" if most < 2**8 else "uint16_t" if most < 2**16 else "uint32_t"
        found.append((name, values if values.size else np.zeros(1), kind))
    return found


def _functions(stream: Any) -> str:
    """Return the functions of the learner with the prefix `net_` of the sources."""
    net, room = stream.net, stream.room
    flags = {
        "SLOPES": True, "BUILTIN_SQRT": False, "FROZEN": False,
        "SCALED": bool(room.x_moments.size), "SCALED_TARGETS": bool(room.y_moments.size), "CARRIES": bool(net.carries),
        "FIXED": len(room.theta) > stream.ties.n_parameters, "RUNS": _runs(net) is not None,
        "FILTERS": bool(net.filters), "ADAM": net.learner == StepRule.ADAM,
        "CLASSES": net.loss == LossCode.CROSS_ENTROPY,
        "LABELS": net.loss == LossCode.BINARY_CROSS_ENTROPY,
        "LOGISTIC": net.loss in (LossCode.CROSS_ENTROPY, LossCode.BINARY_CROSS_ENTROPY),
    }  # fmt: skip
    flags |= {name: bool(value > 0) for name, value in zip(SETTINGS, stream.rule, strict=True)}
    found = functions(["portable_math.h", "portable.h", "portable_learn.h", "portable_save.h"], flags)
    *cases, last = [(name, code) for name, code in ACTIVATIONS.items() if code in net.code]
    if not cases:
        found["step"] = found["step"].replace("net_activate(net_code[r], ", f"net_{last[0]}(")
    lines = [f"    if (code == {code}u) return net_{name}(t, d);\n" for name, code in cases]
    head = "static inline float net_activate(unsigned code, float t, float *d) {\n"
    found["activate"] = f"{head}{''.join(lines)}    return net_{last[0]}(t, d);\n}}"
    return called(["bits", "from_bits", "step", "learn", "reset", "save", "restore"], found)
