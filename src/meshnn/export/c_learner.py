"""A portable stream as one C99 header: a net that goes on learning where Python is not.

The functions are `kernels/portable.py`, loop by loop; lists and first values are tables. In the texts `@` stands for
the prefix of all names, `~` for the same in capitals, and what a net does not need is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from meshnn.codes import ACTIVATIONS, ADAM, BINARY_CROSS_ENTROPY, CROSS_ENTROPY
from meshnn.errors import MeshError
from meshnn.export.blob import EVERYTHING, MAGIC, SECTIONS, VERSION, graph_checksum, kind_of
from meshnn.export.c_learner_texts import (
    BEGIN,
    CLASSES,
    FILTER,
    FILTER_CLASSES,
    FILTER_LABELS,
    FILTER_VALUES,
    FIRST_ORDER,
    INFLUENCES,
    LABELS,
    LEARN,
    MOMENTS,
    SAVING,
    STEP,
    VALUES,
)
from meshnn.export.c_math import activation_source, arithmetic_begin, arithmetic_end, literal
from meshnn.export.c_text import comment
from meshnn.files import write_whole

__all__ = ["Learner", "learner_bytes", "learner_header", "write_learner"]

Array = NDArray[Any]
_PER_LINE = 110


class Learner(Protocol):
    """What is read of a `PortableStream`."""

    topology: Any
    codes: Any
    ties: Any
    net: Any
    room: Any
    rule: Any
    loss: Any
    learner: Any
    memory: str


def learner_header(stream: Learner, name: str = "net", top: Sequence[str] = ()) -> str:
    """The header of a learner that begins where the stream is, and makes the same bits of the same samples.

    Parameters
    ----------
    stream : PortableStream
    name : str
        Begins the names of all functions and tables.
    top : sequence of str
        Lines of a comment in front of all.

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.export.c_learner import learner_header
    >>> mesh = Mesh(Topology.mesh(1, 2, 1), activation="tanh", random_state=0)
    >>> text = learner_header(mesh.stream(portable=True))
    >>> "static inline void net_step(net_learner *l, const float x[NET_INPUTS], float y[NET_OUTPUTS])" in text
    True
    """
    if not (name.isascii() and name.isidentifier() and not name.startswith("_")):
        raise MeshError(f"name begins the names of C functions: letters, digits and _, not {name!r}")
    if not len(stream.net.par):
        raise MeshError("no parameter of the net reaches an output: there is nothing to learn")
    parts = [
        _comment(stream),
        "#ifndef ~H\n#define ~H\n#include <stdint.h>\n",
        _sizes(stream),
        arithmetic_begin(name),
        _tables(stream),
        _struct(stream),
        _functions(stream),
        arithmetic_end(),
        "#endif\n",
    ]
    text = "\n".join(parts).replace("@", f"{name}_").replace("~", f"{name.upper()}_")
    return (comment(top) if top else "") + text


def write_learner(stream: Learner, path: str | PathLike[str], name: str = "net") -> None:
    """Write the header, whole or not at all."""
    write_whole(path, [learner_header(stream, name).encode()])


# -- what it is ------------------------------------------------------------------------------------------------------


def _fields(stream: Learner) -> list[tuple[str, Array, str]]:
    """What the learner remembers, in order: name, first values, and what it is."""
    room, N = stream.room, stream.ties.n_parameters
    found = [
        ("theta", room.theta[:N], "parameters"),
        ("s", room.s, "states of all neurons"),
        ("J", room.J, "influences of the parameters on the neurons they reach"),
        ("first", room.first, "mean of the gradient"),
        ("second", room.second, "mean square of the gradient"),
        ("P", room.P, "covariance of the parameters, the upper half row by row"),
        ("last", room.last, "the last change"),
        ("noise", room.noise, "variance of the targets around the outputs"),
        ("memo", room.memo, "what else the learner remembers"),
        ("x_moments", room.x_moments, "of the inputs: seen, mean, variance, and those of a block"),
        ("y_moments", room.y_moments, "the same of the targets"),
    ]
    return [field for field in found if field[1].size]


def learner_bytes(stream: Learner) -> int:
    """Of RAM that the struct of a learner takes."""
    return int(4 * (sum(array.size for _, array, _ in _fields(stream)) + len(stream.room.clock)))


def _comment(stream: Learner) -> str:
    t, room = stream.topology, stream.room
    ram = learner_bytes(stream)
    work = 4 * (2 * len(stream.net.code) + len(room.w) + 4 * len(room.column))
    work = max(work, 4 * (len(room.h) + len(room.u) + len(room.moved) + len(room.g)))
    target = "target[0] is the label, from 0" if stream.loss.code == CROSS_ENTROPY else "a target an output"
    state = "the state goes on from sample to sample" if stream.memory == "carry" else "every sample begins anew"
    bias = " + bias" if t.n_clamped > t.n_inputs else ""
    return f"""\
/* A net that goes on learning: {stream.learner.name}, exact influences, {stream.loss.name}. Written by meshnn.

   {t.n_inputs} inputs{bias}, {t.n_hidden} hidden, {t.n_outputs} outputs; {t.n_edges} edges, \
{stream.ties.n_parameters} parameters; {stream.net.ticks} ticks a sample, {state}.
   RAM: {ram} bytes in @learner, and about {work + 200} of stack.

   static @learner l;              no memory is asked for, no library is called
   float x[{t.n_inputs}], y[{t.n_outputs}], target[{len(room.target)}];

   @init(&l);                      as the net was when this was written
   for (;;) {{
       @step(&l, x, y);            the outputs of a sample
       @learn(&l, target);         {target}; NaN is one that is missing
   }}
   @reset(&l);                     forget the state, keep what was learned

   uint32_t n = @save(&l, bytes, 0);   {_saved_bytes(stream, False)} bytes: parameters and scaling; all with 1: \
{_saved_bytes(stream, True)}
   int fault = @restore(&l, bytes, n); 0, or why not: 1 cut, 2 not ours or of another version, 3 of another net,
                                         4 altered, 5 not finite; then nothing has changed

   meshnn import bytes --into model.mesh --out new.mesh takes what was saved back to Python.
   Every number has the same bits as in mesh.stream(portable=True), whatever the processor and the compiler. */
"""


def _sizes(stream: Learner) -> str:
    t, net, room = stream.topology, stream.net, stream.room
    sizes = {
        "INPUTS": t.n_inputs, "CLAMPED": t.n_clamped, "NEURONS": t.n_neurons, "ROWS": len(net.code),
        "OUTPUTS": t.n_outputs, "TARGETS": len(room.target), "PARAMETERS": stream.ties.n_parameters,
        "GROUPS": len(net.row_ptr) - 1, "TICKS": net.ticks, "MOST_ROWS": len(room.column), "MOST_EDGES": len(room.w),
        "INFLUENCES": len(room.J), "COVARIANCES": len(room.P), "SAVED": _saved_bytes(stream, False),
        "SAVED_ALL": _saved_bytes(stream, True),
    }  # fmt: skip
    lines = [f"#define ~{name} {value}u" for name, value in sizes.items() if value]
    widest = max(t.n_edges, len(room.J), len(room.P), len(net.sub_src), 7 * t.n_inputs, len(room.theta))
    # int has 16 bits on the smallest processors, and is the fastest there
    return "\n".join([*lines, f"typedef {'unsigned' if widest < 2**16 else 'uint32_t'} @index;\n"])


def _rows(values: Iterable[str]) -> str:
    """Values of a table, some on a line."""
    lines, line = [], "   "
    for value in values:
        if len(line) + len(value) > _PER_LINE:
            lines.append(line)
            line = "   "
        line += f" {value},"
    return "\n".join([*lines, line])


def _integers(name: str, values: Array) -> str:
    most = int(values.max(initial=0))
    kind = "uint8_t" if most < 2**8 else ("uint16_t" if most < 2**16 else "uint32_t")
    return f"static const {kind} @{name}[{len(values)}] = {{\n{_rows(f'{v}u' for v in values.tolist())}\n}};\n"


def _floats(name: str, values: Array) -> str:
    return f"static const float @{name}[{len(values)}] = {{\n{_rows(map(literal, values))}\n}};\n"


def _alike(values: Array) -> bool:
    """Whether all are the same bits, so that no table is needed."""
    return bool((values.view(np.uint32) == values.view(np.uint32)[0]).all())


def _fresh(P: Array, n: int) -> bool:
    """Whether a covariance is a number times the unit matrix."""
    diagonal = np.concatenate([[0], np.cumsum(np.arange(n, 1, -1))]).astype(np.int64)
    rest = np.ones(len(P), np.bool_)
    rest[diagonal] = False
    return _alike(P[diagonal]) and not P[rest].any()


def _runs(net: Any) -> Array | None:
    """The first source of each row of the groups, if those of every row follow each other: then no list is read."""
    begin, end = net.sub_ptr[:-1], net.sub_ptr[1:]
    length = end - begin
    first = np.zeros(len(begin), np.int64)
    first[length > 0] = net.sub_src[begin[length > 0]]
    within = np.arange(len(net.sub_src)) - np.repeat(begin, length)
    return first if np.array_equal(np.repeat(first, length) + within, net.sub_src) else None


def _tables(stream: Learner) -> str:
    net, N = stream.net, stream.ties.n_parameters
    names = ["ptr", "col", "num", "row_ptr", "rows", "par_ptr", "par", "edge_ptr", "edge_row", "edge_src", "out_row"]
    runs = _runs(net)
    if net.sub_src.size:
        names += ["sub_ptr", "sub_num"]
    if runs is None:
        names.append("sub_src")
    if len(set(net.code.tolist())) > 1:
        names.append("code")
    found = [_integers(name, getattr(net, name)) for name in names if getattr(net, name).size]
    if runs is not None and net.sub_src.size:
        found.append(_integers("sub_from", runs))
    if len(stream.room.theta) > N:
        found.append(_floats("fixed", stream.room.theta[N:]))
    for name, values, _ in _fields(stream):
        if not _alike(values) and not (name == "P" and _fresh(values, N)):
            found.append(_floats(f"first_{name}", values))
    return "".join(found)


def _struct(stream: Learner) -> str:
    lines = [f"    float {name}[{values.size}]; /* {what} */" for name, values, what in _fields(stream)]
    lines.append("    uint32_t clock[4]; /* samples seen, updates made, updates left out, states set to 0 */")
    return "\n".join(["typedef struct {", *lines, "} @learner;\n"])


# -- what it does ----------------------------------------------------------------------------------------------------


def _functions(stream: Learner) -> str:
    net, filters = stream.net, bool(stream.net.filters)
    scaled, scaled_targets = bool(stream.room.x_moments.size), bool(stream.room.y_moments.size)
    names = {code: name for name, code in ACTIVATIONS.items()}
    used = sorted(set(net.code.tolist()))
    labels = net.loss in (CROSS_ENTROPY, BINARY_CROSS_ENTROPY)
    also = ["bits", "from_bits", "abs"]
    if scaled or not filters or stream.rule[9] > 0:
        also.append("sqrt")
    if labels or (filters and stream.rule[9] > 0):
        also.append("exp")
    if filters and net.loss == CROSS_ENTROPY:
        also.append("log")
    parts = [activation_source([names[code] for code in used], True, "@", also), BEGIN, _phi(used, names)]
    flags = {
        "SCALED": scaled,
        "SCALED_TARGETS": scaled_targets,
        "CARRIES": bool(net.carries),
        "FIXED": len(stream.room.theta) > stream.ties.n_parameters,
        "SUB": bool(net.sub_src.size),
        "RUNS": bool(net.sub_src.size) and _runs(net) is not None,
        "LISTS": _runs(net) is None,
        "ADAM": net.learner == ADAM,
        "L2": bool(stream.rule[2] > 0),
        "TAILS": bool(stream.rule[6] > 0),
        "NOISE": bool(stream.rule[7] > 0),
        "FINDS_Q": bool(stream.rule[9] > 0),
        "CLASSES": net.loss == CROSS_ENTROPY,
    }
    if scaled:
        parts.append(MOMENTS)
    parts += [INFLUENCES, STEP]
    if filters:
        parts.append(FILTER)
        parts.append(FILTER_LABELS if labels else FILTER_VALUES)
        parts.append(FILTER_CLASSES if net.loss == CROSS_ENTROPY else "")
    else:
        parts.append(CLASSES if net.loss == CROSS_ENTROPY else (LABELS if net.loss == BINARY_CROSS_ENTROPY else VALUES))
        parts.append(FIRST_ORDER)
    flags["FILTERS"] = filters
    parts += [LEARN, _init(stream), SAVING, _saving(stream)]
    text = _chosen("\n".join(part.strip("\n") + "\n" for part in parts if part), flags)
    return _settings(text, stream.rule)


def _chosen(text: str, flags: dict[str, bool]) -> str:
    """Lines between `%if NAME` or `%not NAME` and `%end` stay if they apply."""
    found, keep = [], [True]
    for line in text.split("\n"):
        word = line.strip().split(" ")
        if word[0] in ("%if", "%not"):
            keep.append(flags[word[1]] == (word[0] == "%if"))
        elif word[0] == "%end":
            keep.pop()
        elif all(keep):
            found.append(line)
    return "\n".join(found)


_SETTINGS = (
    "RATE", "CLIP", "L2", "BETA1", "BETA2", "EPSILON", "TAILS", "NOISE_RATE", "NOISE_FLOOR", "Q_RATE", "Q_MIN",
    "Q_MAX", "BOUND", "CEILING",
)  # fmt: skip


def _settings(text: str, rule: Array) -> str:
    for name, value in zip(_SETTINGS, rule, strict=True):
        text = text.replace(f"${name}$", literal(value))
    one = np.float32(1)
    return text.replace("$BETA1_REST$", literal(one - rule[3])).replace("$BETA2_REST$", literal(one - rule[4]))


def _phi(used: list[int], names: dict[int, str]) -> str:
    head = "static inline float @phi(@index r, float t, float *d) {\n"
    if len(used) == 1:
        return head + f"    (void)r;\n    return @{names[used[0]]}(t, d);\n}}\n"
    cases = [f"        case {code}u: return @{names[code]}(t, d);" for code in used[1:]]
    last = f"        default: return @{names[used[0]]}(t, d);"
    return head + "\n".join(["    switch (@code[r]) {", *cases, last, "    }\n}\n"])


def _init(stream: Learner) -> str:
    N = stream.ties.n_parameters
    lines = ["static inline void @init(@learner *l) {", "    @index k;"]
    for name, values, _ in _fields(stream):
        if name == "P" and _fresh(values, N) and not _alike(values):
            lines += [
                "    {",
                "        @index i, at = 0u;",
                "        for (k = 0u; k < ~COVARIANCES; k++) l->P[k] = 0.0f;",
                f"        for (i = 0u; i < ~PARAMETERS; at += ~PARAMETERS - i, i++) l->P[at] = {literal(values[0])};",
                "    }",
            ]
            continue
        value = literal(values[0]) if _alike(values) else f"@first_{name}[k]"
        lines.append(f"    for (k = 0u; k < {values.size}u; k++) l->{name}[k] = {value};")
    lines += [f"    l->clock[{k}] = {int(value)}u;" for k, value in enumerate(stream.room.clock)]
    return "\n".join([*lines, "}\n"])


# -- what is saved ---------------------------------------------------------------------------------------------------


def _saved(stream: Learner, everything: bool) -> list[tuple[str, int]]:
    """Names and lengths of what is saved, in order."""
    lengths = {name: values.size for name, values, _ in _fields(stream)}
    return [(name, lengths[name]) for name in (EVERYTHING if everything else SECTIONS) if name in lengths]


def _saved_bytes(stream: Learner, everything: bool) -> int:
    return 32 + 4 * sum(length for _, length in _saved(stream, everything)) + 4


def _saving(stream: Learner) -> str:
    checksum = graph_checksum(stream.topology, stream.codes, stream.ties.number, stream.ties.n_parameters)
    kind = kind_of(stream.learner.name)

    def moved(call: str, everything: bool) -> list[str]:
        short = [name for name, _ in _saved(stream, False)]
        found = _saved(stream, everything)
        rest = [part for part in found if part[0] not in short] if everything else found
        return [f"at = {call}(bytes, at, l->{name}, {length}u);" for name, length in rest]

    text = SAVING_CALLS
    for word, lines, indent in (
        ("PUT_SHORT", moved("@put_floats", False), 4),
        ("PUT_REST", moved("@put_floats", True), 8),
        ("GET_SHORT", moved("@get_floats", False), 4),
        ("GET_REST", moved("@get_floats", True), 8),
    ):
        text = text.replace(f"    ${word}$", ("\n" + " " * indent).join([" " * 4 + lines[0], *lines[1:]]))
    magic = int.from_bytes(MAGIC, "little")
    words = {"MAGIC": f"0x{magic:08x}u", "VERSION": f"{VERSION}u", "KIND": f"{kind}u", "GRAPH": f"0x{checksum:08x}u"}
    for name, value in words.items():
        text = text.replace(f"${name}$", value)
    return text


SAVING_CALLS = """
static inline uint32_t @save(const @learner *l, unsigned char *bytes, int all) {
    uint32_t at = 32u;
    @put(bytes, 0u, $MAGIC$);
    @put(bytes, 4u, $VERSION$);
    @put(bytes, 8u, all ? 1u : 0u);
    @put(bytes, 12u, $KIND$);
    @put(bytes, 16u, $GRAPH$);
    @put(bytes, 20u, ~PARAMETERS);
    @put(bytes, 24u, l->clock[0]);
    @put(bytes, 28u, l->clock[1]);
    $PUT_SHORT$
    if (all) {
        $PUT_REST$
    }
    @put(bytes, at, @crc(bytes, at));
    return at + 4u;
}

static inline int @restore(@learner *l, const unsigned char *bytes, uint32_t size) {
    uint32_t at;
    if (size < 36u) return 1;
    if (@get(bytes, 0u) != $MAGIC$ || @get(bytes, 4u) != $VERSION$) return 2;
    if (@get(bytes, 16u) != $GRAPH$ || (@get(bytes, 8u) && @get(bytes, 12u) != $KIND$)) return 3;
    if (size != (@get(bytes, 8u) ? ~SAVED_ALL : ~SAVED)) return 1;
    if (@get(bytes, size - 4u) != @crc(bytes, size - 4u)) return 4;
    for (at = 32u; at < size - 4u; at += 4u) {
        if (!@finite(@from_bits(@get(bytes, at)))) return 5;
    }
    l->clock[0] = @get(bytes, 24u);
    l->clock[1] = @get(bytes, 28u);
    at = 32u;
    $GET_SHORT$
    if (@get(bytes, 8u)) {
        $GET_REST$
    }
    return at + 4u == size ? 0 : 1;
}
"""
