"""Nets in C: integer nets are bit-identical, float nets close to the oracle; no warnings, no overflow."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from export_cases import iris, oracle, random_net
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import boards
import meshnn
from cases import ACTIVATION_NAMES
from meshnn import Mesh, MeshClassifier, MeshRegressor, MeshStreamClassifier, Topology
from meshnn.errors import DataError, MeshError
from meshnn.export import CNet, CompilerError, ExportError
from meshnn.export.c.layout import Layout
from meshnn.export.c.nets import IntegerNet
from meshnn.export.c.quantise import Quantiser
from meshnn.export.c.text import literal
from meshnn.export.c.writer import write_net

gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def samples(rng, n, kind):
    if kind == "real":
        return rng.standard_normal((40, n))
    low, high = (0, 256) if kind == "bytes" else (-9, 10)
    return rng.integers(low, high, (40, n)).astype(float)


@gcc
@pytest.mark.parametrize("optimize", ["size", "speed"])
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))])
def test_any_net_in_c(tmp_path, seed, optimize):
    """Float nets are close to the oracle, integer nets have the bits of NumPy."""
    rng, path = np.random.default_rng(seed), tmp_path / "net.h"
    for k, kind in enumerate(("real", "bytes", "small")):
        mesh, X = random_net(3 * seed + k)
        mesh.to_c(path, optimize=optimize)
        np.testing.assert_allclose(
            CNet(path).outputs(X), want := oracle(mesh, X), atol=2e-4 * max(1, np.abs(want).max())
        )
        X = samples(rng, mesh.topology.n_inputs, kind)
        for bits in (8, 16):
            net = Quantiser(mesh.blueprint(), X, bits)()
            write_net(net, path, optimize, "net")
            compiled = CNet(path)
            coded = X if net.coding.whole else compiled.quantise(X)
            np.testing.assert_array_equal(coded - net.coding.middle, net.coding(X))
            np.testing.assert_array_equal(compiled.outputs(coded), net.outputs(net.coding(X)))


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_whole_numbers_come_near_to_floats(name):
    mesh = Mesh(Topology.mesh(3, 6, 2), 3, name, dtype="float64", random_state=1)
    X = np.random.default_rng(0).standard_normal((200, 3))
    want = mesh.forward(X)
    for bits, most in ((8, 0.06), (16, 0.002)):
        net = Quantiser(mesh.blueprint(), X, bits)()
        got = net.outputs(net.coding(X)) * net.out_scale
        assert np.sqrt(np.mean((got - want) ** 2)) < most * want.std(), bits


@pytest.mark.parametrize("bits", [8, 16])
def test_whole_numbers_represent_the_ends_of_hardtanh(bits):
    """1 is the largest integer, unless all states on the samples are smaller."""
    t = Topology.layered([2, 6, 2])
    mesh = Mesh(t, 2, "hardtanh", output_activation="hardtanh", dtype="float64", random_state=0)
    mesh.weights = 2 * mesh.weights
    X = 2 * np.random.default_rng(0).standard_normal((200, 2))
    net, want = Quantiser(mesh.blueprint(), X, bits)(), mesh.forward(X)
    got = net.outputs(net.coding(X)) * net.out_scale
    assert (np.abs(want) == 1).mean() > 0.1
    assert (got[np.abs(want) == 1] == want[np.abs(want) == 1]).mean() > 0.9
    assert np.abs(got - want).max() < (0.1 if bits == 8 else 0.001)
    net = Quantiser(mesh.blueprint(), 0.05 * X, bits)()
    assert net.out_scale.max() * net.most == pytest.approx(np.abs(mesh.forward(0.05 * X)).max(), rel=0.05)


@gcc
@pytest.mark.parametrize("bits", [8, 16])
def test_no_inputs_can_make_a_sum_overflow(tmp_path, bits):
    """The program is compiled to abort on overflow; the worst-case inputs nearly reach the bound of the header."""
    rng, path = np.random.default_rng(6), tmp_path / "net.h"
    flags = ("-std=c99", "-O1", "-fsanitize=undefined", "-fno-sanitize=shift", "-fsanitize-undefined-trap-on-error")
    meshes = [random_net(seed)[0] for seed in range(3)]
    for mesh in [*meshes, Mesh(Topology.layered([30, 1]), dtype="float64", random_state=0)]:
        mesh.parameters = mesh.parameters * 10
        n = mesh.topology.n_inputs
        net = Quantiser(mesh.blueprint(), samples(rng, n, "small"), bits)()
        write_net(net, path, "size", "net")
        low, high = net.coding.least + net.coding.middle, net.coding.most + net.coding.middle
        X = rng.choice([low, high, 0], (300, n))
        if n == 30:
            X[0] = np.where(net.weights[0] > 0, high, low)
        got = CNet(path, flags=flags).outputs(X)
        np.testing.assert_array_equal(got, net.outputs(X - net.coding.middle))
        assert f"{net.bound.max():,}" in path.read_text()
    assert 0.9 * net.bound[0] < np.abs(got).max() <= net.bound[0]
    with pytest.raises(ExportError, match="32 bits"):
        IntegerNet(
            net.layout, net.coding, bits, [net.weights[0] + 2**26], net.bias, net.shift, net.out_scale, {}, net.step
        )


@gcc
def test_headers_give_no_warnings_in_c_and_in_cpp(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    (model, X, _), texts = iris(), {}
    for name, options in (
        ("a", {}),
        ("b", {"optimize": "speed"}),
        ("c", {"dtype": "int8", "X": X}),
        ("d", {"dtype": "int16", "X": X, "optimize": "speed"}),
    ):
        model.to_c(tmp_path / f"{name}.h", **options)
        texts[f"{name}.h"] = text = (tmp_path / f"{name}.h").read_text()
        assert set(re.findall("#include (.*)", text)) <= {"<stdint.h>", "<avr/pgmspace.h>"}
    source = "".join(f'#include "{name}"\n' for name in texts)
    source += "int sum(const float *x);\nint sum(const float *x) { return a_predict(x) + b_predict(x); }\n"
    for compiler, flags in (("gcc", "-std=c99 -Os"), ("gcc", "-std=c11 -O3"), ("g++", "-std=c++11 -O2")):
        assert boards.load(source, texts, flags, compiler) is not None


def test_dead_edges_and_settled_neurons_cost_nothing():
    layered = Topology.layered([3, 4, 2])
    want = Mesh(layered, 2, random_state=0).blueprint()
    n = layered.n_neurons
    more = [*zip(layered.src.tolist(), layered.dst.tolist(), strict=True), (5, 5), (n - 1, 6)]
    dead = Mesh(
        Topology(3, 4, 2, more), 2, random_state=0
    ).blueprint()  # a self-loop and a feedback edge that are dead within the ticks
    settled = Mesh(layered, 7, random_state=0).blueprint()
    assert [len(found) for found in want.timetable] == [len(found) for found in dead.timetable] == [4, 2]
    assert [len(found) for found in settled.timetable] == [4, 2, 0, 0, 0, 0, 0]
    assert {Layout(blueprint, padded=False, size=4).multiply_adds for blueprint in (want, dead, settled)} == {20}


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"dtype": "int4"}, MeshError, "int4"),
        ({"name": "2 nets"}, ExportError, "2 nets"),
        ({"dtype": "int8", "X": [["a", "b", "c", "d"]]}, DataError, "X"),
        ({"dtype": "int8", "X": np.zeros((5, 3))}, DataError, r"\(n, 4\)"),
        ({"X": np.zeros((5, 4)), "y": ["rose"] * 5}, DataError, "rose"),
        ({"y": [0]}, DataError, "X"),
        ({"dtype": "int8", "learn": True}, ExportError, "int8"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, error, named):
    with pytest.raises(error, match=named):
        iris()[0].to_c(tmp_path / "net.h", **options)
    assert not (tmp_path / "net.h").exists()


def test_models_that_cannot_be_written_are_refused(tmp_path):
    path, X = tmp_path / "net.h", np.random.default_rng(0).standard_normal((30, 1))
    huge = MeshRegressor(hidden=2, max_epochs=2, random_state=0).fit(X * 1e300, X[:, 0])
    for model, options, named in (
        (MeshClassifier(), {}, "fit"),
        (MeshStreamClassifier(), {}, "learn_one"),
        (Mesh(Topology.layered([200, 200, 2]), random_state=0), {"optimize": "speed"}, "20,000"),
        (huge, {}, r"e\+2"),  # the features overflow in float32
        (Mesh(Topology.layered([2, 3, 1]), random_state=0), {"dtype": "int8"}, "X="),  # no ranges of features
    ):
        with pytest.raises(MeshError, match=named):
            model.to_c(path, **options)
    assert not path.exists()
    with pytest.raises(MeshError, match="nowhere"):
        iris()[0].to_c(tmp_path / "nowhere" / "net.h")


@gcc
def test_what_is_no_header_is_refused(tmp_path):
    path = tmp_path / "net.h"
    with pytest.raises(CompilerError, match=r"net\.h"):
        CNet(path)
    path.write_text("int x;\n")
    with pytest.raises(CompilerError, match=r"net\.h"):
        CNet(path)
    Mesh(Topology.layered([1, 2, 1]), random_state=0).to_c(path, learn=True)
    with pytest.raises(CompilerError, match="CLearner"):
        CNet(path)
    iris()[0].to_c(path)
    with pytest.raises(CompilerError, match="no-such-compiler"):
        CNet(path, compiler="no-such-compiler")
    path.write_text(path.read_text().replace("return t;", "return t", 1))
    with pytest.raises(CompilerError, match="error"):
        CNet(path)


# -- boards ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_digits_in_one_and_a_half_kilobytes(tmp_path):
    """At least 0.97 accuracy in int8, at most 1.5 kB of flash with code, at most 4,000 instructions on a Cortex-M3."""
    X, y = load_digits(return_X_y=True)
    train, test, _, truth = train_test_split(X, y, test_size=0.25, random_state=0)
    model = meshnn.load(Path(__file__).parents[1] / "files" / "digits.mesh")
    model.to_c(tmp_path / "net.h", dtype="int8", X=train)
    headers = {"net.h": (tmp_path / "net.h").read_text()}
    assert (CNet(tmp_path / "net.h").predict(test) == truth).mean() >= 0.97
    before = '#include "net.h"\nextern int8_t x[64]; int8_t x[64];\nextern volatile int k; volatile int k;\n'
    main = f"{before}int main(void) {{ k = net_predict(x); return 0; }}\n"
    built = boards.build("m3", main, headers, "-std=c99 -O2")
    sizes = {name: size for name, size in built.symbols().items() if name.startswith("net_")}
    assert 900 < sum(sizes.values()) <= 1536, sizes
    assert boards.instructions("m3", "", "k = net_predict(x);", headers, "-std=c99 -O2", before) <= 4000


def on_board(board, path, kind, X, flags="-std=c99 -Os"):
    """Return a program that prints the outputs for some samples, and the expected bits."""
    rows = ", ".join(
        "{" + ", ".join(literal(v) if kind == "float" else str(v) for v in row) + "}" for row in X.tolist()
    )
    source = f"""{boards.PRINTING}#include "net.h"
static const {kind} samples[{len(X)}][{len(X[0])}] = {{{rows}}};
int main(void) {{
    {"float" if kind == "float" else "int32_t"} y[2];
    for (int i = 0; i < {len(X)}; i++) {{
        net_outputs(samples[i], y);
        for (int j = 0; j < 2; j++) {{
            uint32_t bits;
            __builtin_memcpy(&bits, &y[j], 4);
            put_bits(bits);
        }}
    }}
    return 0;
}}
"""
    built = boards.build(board, source, {"net.h": path.read_text()}, flags)
    return built, [int(word, 16) for word in re.findall(r"^[0-9a-f]{8}\r?$", built.run(), re.MULTILINE)]


@pytest.mark.slow
@pytest.mark.parametrize("board", ["m3", "m4f"])
def test_floats_have_the_same_bits_on_every_processor(tmp_path, board):
    mesh = Mesh(Topology.mesh(3, len(ACTIVATION_NAMES), 2), 4, list(ACTIVATION_NAMES), "tanh", random_state=0)
    rng = np.random.default_rng(4)
    X = (rng.standard_normal((60, 3)) * 10.0 ** rng.integers(-9, 4, (60, 3))).astype(np.float32)
    mesh.to_c(tmp_path / "net.h")
    want = CNet(tmp_path / "net.h").outputs(X).view(np.uint32).ravel().tolist()
    for flags in ("-std=c99 -O2", "-std=gnu99 -O3", "-std=c99 -Os"):
        assert on_board(board, tmp_path / "net.h", "float", X, flags)[1] == want, flags


@pytest.mark.slow
def test_sixty_edges_run_on_eight_bits(tmp_path):
    """On an ATmega2560 the bits equal those of Python, and the tables are in flash."""
    path, mesh = tmp_path / "net.h", Mesh(Topology.layered([4, 8, 2]), 2, "tanh", random_state=0)
    assert mesh.topology.n_edges == 58
    X = np.random.default_rng(4).standard_normal((10, 4))
    for dtype in ("int8", "int16"):
        net = mesh.to_c(path, dtype=dtype, X=X).net
        built, got = on_board("avr", path, f"{dtype}_t", net.coding(X))
        assert got == net.outputs(net.coding(X)).astype(np.int32).view(np.uint32).ravel().tolist()
        assert built.sizes()["data"] < 16 + 10 * 4 * 2  # the samples only, nothing of the net
    mesh.to_c(path)
    few = X[:3].astype(np.float32)
    assert on_board("avr", path, "float", few)[1] == CNet(path).outputs(few).view(np.uint32).ravel().tolist()
