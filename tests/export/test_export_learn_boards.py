"""Learners in C on simulated boards: bit-identical, no library, limits of memory and instructions."""

import zlib

import numpy as np
import pytest
from test_export_learn import KINDS, eight, signal

import boards
from meshnn.export.c.learner import learner_header

pytestmark = pytest.mark.slow
BOARD = """#include "net.h"
static net_learner l;
static float x[1], y[1], target[1];
"""


def on_board(stream, board, flags, T, steps):
    """Return checksums of outputs and parameters after a number of steps on a repeated signal of T samples."""
    X, Y = signal(T)
    words = ",".join(f"0x{word:08x}u" for word in np.concatenate([X[:, 0], Y[:, 0]]).view(np.uint32))
    source = f"""{boards.PRINTING}{BOARD}
static const uint32_t data[{2 * T}] = {{{words}}};
static uint32_t crc = 0xffffffffu;
static void add(float value) {{
    int i;
    crc ^= net_bits(value);
    for (i = 0; i < 32; i++) crc = (crc >> 1) ^ ((crc & 1u) ? 0xedb88320u : 0u);
}}
int main(void) {{
    unsigned t, k;
    net_init(&l);
    for (t = 0; t < {steps}u; t++) {{
        x[0] = net_from_bits(data[t % {T}u]);
        target[0] = net_from_bits(data[{T}u + t % {T}u]);
        net_step(&l, x, y);
        net_learn(&l, target);
        add(y[0]);
    }}
    for (k = 0; k < NET_PARAMETERS; k++) add(l.theta[k]);
    put_bits(crc ^ 0xffffffffu);
    return 0;
}}
"""
    got = int(boards.run_on(board, source, {"net.h": learner_header(stream)}, flags).split()[-1], 16)
    times = -(-steps // T)
    out = stream.run(np.tile(X, (times, 1))[:steps], np.tile(Y, (times, 1))[:steps])
    return got, zlib.crc32(np.concatenate([out[:, 0], stream.parameters]).astype("<f4").tobytes())


@pytest.mark.parametrize(
    ("board", "learner", "flags", "steps"),
    [
        ("m4f", "ekf", "-std=c99 -O2", 2000),
        ("m4f", "ekf", "-std=gnu99 -O3", 2000),
        ("m4f", "adam", "-std=gnu99 -Os", 2000),
        ("m3", "ekf", "-std=c99 -O2", 2000),
        ("m3", "adam", "-std=gnu99 -O2", 2000),
        ("m3", "sgd", "-std=c99 -O1", 2000),
    ],
)
def test_the_same_bits_on_boards(board, learner, flags, steps):
    got, want = on_board(eight(learner, scale=True), board, flags, 500, steps)
    assert got == want


@pytest.mark.parametrize("board", ["m3", "m4f", "avr"])
def test_no_library_is_called_and_nothing_is_warned_of(board):
    arithmetic = "__aeabi_" if board != "avr" else "__"  # floating-point routines of the compiler
    source = '#include "net.h"\nstatic net_learner l;\nfloat x[3], y[3], t[3];\nunsigned char bytes[NET_SAVED_ALL];\n'
    source += "int main(void) { net_init(&l); net_step(&l, x, y); net_learn(&l, t); net_reset(&l);\n"
    source += "return net_restore(&l, bytes, net_save(&l, bytes, 1)); }\n"
    for make, loss, options in KINDS.values():
        stream = make().stream(loss, portable=True, **options)
        for flags in ("-std=c99 -Os", "-std=gnu99 -O3"):
            built = boards.build(board, source, {"net.h": learner_header(stream)}, flags, link=False)
            assert all(name.startswith(arithmetic) for name in built.undefined()), built.undefined()


@pytest.mark.parametrize(
    ("board", "learner", "ram", "most"),
    [("m4f", "ekf", 24_000, 160_000), ("m4f", "adam", 6_000, 90_000), ("m3", "ekf", 24_000, 2_500_000)],
)
@pytest.mark.parametrize("flags", ["-std=c99 -O2", "-std=c99 -Os"])
def test_bars_of_memory_and_instructions(board, learner, ram, most, flags):
    header = {"net.h": learner_header(eight(learner))}
    before = BOARD.replace("static float x[1]", "float x[1] = {0.3f}").replace("target[1]", "target[1] = {0.2f}")
    count = boards.instructions(
        board, "net_init(&l);", "net_step(&l, x, y); net_learn(&l, target);", header, flags, before
    )
    work = "net_init(&l); net_step(&l, x, y); net_learn(&l, target);"
    built = boards.build(board, boards.painted(before, work), header, flags)
    stack = int(built.run().split()[-1], 16)
    sizes = built.sizes()
    print(f"{board} {learner} {flags}: {count} instructions, {sizes}, {stack} bytes of stack")
    assert count <= most
    assert sizes["data"] + sizes["bss"] + stack <= ram
    assert 0 < stack < 3000
