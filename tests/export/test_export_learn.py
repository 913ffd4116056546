"""Learners in C: the bits of portable streams, on this computer and on boards, and what they save."""

import zlib

import numpy as np
import pytest
from test_portable import hostile, random_mesh, recurrent, tied_mesh

import boards
from commands import meshnn
from meshnn import Mesh, MeshClassifier, MeshRegressor, MeshStreamClassifier, MeshStreamRegressor, Topology, load
from meshnn.errors import DataError, MeshError
from meshnn.export import CLearner
from meshnn.export.c.learner import learner_header
from meshnn.export.snapshot import import_snapshot, read_snapshot
from meshnn.streaming.portable import PortableStream, portable_of

COMPILERS = [
    ("gcc", "-std=c99 -O2"),
    pytest.param("gcc", "-std=c99 -O0", marks=pytest.mark.slow),
    pytest.param("gcc", "-std=gnu99 -O3 -march=native -ffp-contract=fast", marks=pytest.mark.slow),
    pytest.param("g++", "-std=c++11 -O2", marks=pytest.mark.slow),
]


def compiled(stream, folder, flags="-std=c99 -O1", compiler="gcc"):
    """A learner in C that begins where the stream is."""
    stream.to_c(folder / "net.h")
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror"]
    return CLearner(folder / "net.h", compiler=compiler, flags=[*flags.split(), *warnings])


def parameters(learner):
    snapshot = read_snapshot(learner.save())
    return snapshot.numbers[: snapshot.n_parameters]


def assert_same_bits(got, want):
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def signal(T, inputs=1, outputs=1):
    t = np.arange(T + 1)
    x = np.sin(0.3 * t) * np.cos(0.11 * t) + 0.05 * np.sin(1.7 * t * t)
    X = np.stack([x[:-1] * (k + 1) + 3 * k for k in range(inputs)], axis=1)
    return X.astype(np.float32), np.stack([x[1:] * (k + 1) + k for k in range(outputs)], axis=1).astype(np.float32)


def eight(learner="ekf", ticks=2, **options):
    """The net of the bars: eight neurons that feed each other, 89 parameters."""
    return Mesh(recurrent(8, 1, 1), ticks, "tanh", random_state=0).stream(learner=learner, portable=True, **options)


@pytest.mark.parametrize(("compiler", "flags"), COMPILERS)
def test_two_thousand_steps_have_the_same_bits(tmp_path, compiler, flags):
    stream = eight(scale=True)
    X, Y = signal(2050)
    stream.run(X[:50], Y[:50])
    learner = compiled(stream, tmp_path, flags, compiler)
    want = stream.run(X[50:], Y[50:])
    assert_same_bits(learner.run(X[50:], Y[50:]), want)
    assert_same_bits(parameters(learner), stream.parameters)
    assert np.square(want[-500:] - Y[-500:]).mean() < 0.05 * Y.var()
    kept = sum(getattr(stream.room, name).nbytes for name in PortableStream.kept if name != "clock")
    assert learner.ram_bytes == kept + 16


def net(topology, ticks, activation, seed):
    return lambda: Mesh(topology, ticks, activation, random_state=seed)


SEVERAL = ["tanh", "sin", "softplus", "gauss", "elu", "sigmoid", "relu", "leaky_relu"]
ROUGH = Topology.mesh(2, 5, 3, density=0.5, random_state=1)
ADAM, EKF = {"learner": "adam"}, {"learner": "ekf"}
FIXED = {"forgetting": 1e-3, "noise": 0.1, "tails": 0.0}
#: Net, loss and options.
KINDS = {
    "adam": (net(recurrent(3, 2, 2), 2, "tanh", 0), "squared_error", ADAM),
    "sgd": (net(recurrent(8, 1, 1), 1, SEVERAL, 0), "squared_error", {"learner": "sgd", "l2": 1e-3, "scale": True}),
    "ekf": (net(recurrent(3, 2, 2), 1, "tanh", 1), "squared_error", EKF | FIXED),
    "static": (
        net(Topology.layered([2, 4, 2]), 2, "tanh", 2),
        "squared_error",
        EKF | {"memory": "none", "scale": True},
    ),
    "labels, ekf": (net(recurrent(3, 2, 2), 1, SEVERAL[:3], 3), "binary_cross_entropy", EKF | {"scale": True}),
    "labels, adam": (net(Topology.columns(2, 3, 2), 2, "tanh", 4), "binary_cross_entropy", ADAM),
    "classes, ekf": (net(recurrent(3, 2, 3), 1, "tanh", 5), "cross_entropy", EKF),
    "classes, adam": (net(ROUGH, 2, "elu", 6), "cross_entropy", ADAM | {"scale": True}),
    "tied, ekf": (lambda: tied_mesh("float32"), "squared_error", EKF),
    "tied, adam": (lambda: tied_mesh("float32"), "squared_error", ADAM | {"memory": "none"}),
}


def targets_of(stream, Y):
    if stream.loss.name == "cross_entropy":
        found = np.digitize(Y[:, :1], np.quantile(Y[:, 0], [1 / 3, 2 / 3])).astype(np.float32)
    else:
        found = (np.median(Y, axis=0) < Y).astype(np.float32) if stream.loss.name[:6] == "binary" else Y.copy()
    found[3::11] = np.nan
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_learner_has_the_same_bits(tmp_path, kind):
    make, loss, options = KINDS[kind]
    stream = make().stream(loss, portable=True, **options)
    t = stream.topology
    X, Y = signal(400, t.n_inputs, t.n_outputs)
    Y = targets_of(stream, Y)
    stream.run(X[:20], Y[:20])
    learner = compiled(stream, tmp_path)
    assert_same_bits(learner.run(X[20:], Y[20:]), stream.run(X[20:], Y[20:]))
    assert_same_bits(parameters(learner), stream.parameters)
    assert learner.counts() == stream.room.clock.tolist()
    learner.reset()
    stream.reset()
    assert_same_bits(learner.run(X[:20], Y[:20]), stream.run(X[:20], Y[:20]))
    saved = learner.save(everything=True)  # all of it, read back, is the stream
    assert saved == stream.to_bytes(everything=True)
    assert learner.save() == stream.to_bytes()
    fresh = make().stream(loss, portable=True, **options)
    import_snapshot(saved, fresh)
    for name in PortableStream.kept[:-1]:
        assert_same_bits(getattr(fresh.room, name), getattr(stream.room, name))
    assert fresh.samples == stream.samples


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_any_graph_has_the_same_bits(tmp_path, seed):
    stream = random_mesh(seed, "float32").stream(learner=("ekf", "adam", "sgd")[seed], portable=True)
    X, Y = signal(100, stream.topology.n_inputs, stream.topology.n_outputs)
    learner = compiled(stream, tmp_path)
    assert_same_bits(learner.run(X, Y), stream.run(X, Y))
    assert_same_bits(parameters(learner), stream.parameters)


@pytest.mark.slow
@pytest.mark.parametrize(("learner", "scale"), [("ekf", True), ("ekf", False), ("adam", True), ("sgd", False)])
def test_hostile_data_have_the_same_bits(tmp_path, learner, scale):
    mesh = Mesh(recurrent(3, 2, 2), 1, ["tanh", "relu", "sin"], random_state=0)
    stream = mesh.stream(learner=learner, scale=scale, portable=True)
    X, Y = hostile(1500, 2, 2, 5)
    device = compiled(stream, tmp_path)
    assert_same_bits(device.run(X, Y), stream.run(X, Y))
    assert_same_bits(parameters(device), stream.parameters)
    assert device.counts() == stream.room.clock.tolist()
    X[::3, 0], Y[::5, 0] = np.nan, np.inf  # C is handed what Python refuses
    assert np.isfinite(device.run(X, Y)).all()
    assert np.isfinite(parameters(device)).all()


@pytest.mark.slow
def test_variances_that_are_all_rounding_have_the_same_bits(tmp_path):
    """Inputs so large, and noise so small, that one sample says all about a parameter."""
    mesh = Mesh(Topology.layered([3, 2]), 1, random_state=0)
    stream = mesh.stream(learner="ekf", memory="none", portable=True, noise=1e-3, tails=0.0, forgetting=0.0)
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(300, 3)) * 10.0 ** rng.integers(0, 5, size=(300, 3))).astype(np.float32)
    Y = (X @ rng.normal(size=(3, 2))).astype(np.float32)
    device = compiled(stream, tmp_path)
    assert_same_bits(device.run(X, Y), stream.run(X, Y))
    assert_same_bits(parameters(device), stream.parameters)
    assert np.abs(stream.run(X, Y) - Y).max() < 1e-3 * np.abs(Y).max()
    P = stream.covariance().astype(float)
    bound = np.sqrt(np.outer(P.diagonal(), P.diagonal()))
    assert (np.abs(P) <= 1.01 * bound).all()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
def test_numbers_of_another_size_have_the_same_bits(tmp_path, share):
    """Most of a block of wild numbers lets the moments begin anew, some of it does not."""
    mesh = Mesh(Topology.layered([2, 3, 1]), 2, "tanh", random_state=0)
    stream = mesh.stream(memory="none", scale=True, portable=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2432, 2)).astype(np.float32)
    X[2048:, 0] *= np.where(rng.random(384) < share, 1e6, 1.0)
    X[2100:, 1] *= np.float32(1e-4)
    Y = np.tanh(X[:, :1])
    device = compiled(stream, tmp_path)
    assert_same_bits(device.run(X, Y), stream.run(X, Y))
    assert (stream.room.x_moments.reshape(7, 2)[2] < 1e-3).tolist() == [False, True]


def test_what_is_saved_is_restored_or_refused(tmp_path):
    stream = eight(scale=True)
    X, Y = signal(100)
    device, other = compiled(stream, tmp_path), compiled(stream, tmp_path)
    device.run(X[:50], Y[:50])
    saved = device.save(everything=True)
    assert other.restore(saved) == 0
    assert_same_bits(other.run(X[50:], Y[50:]), device.run(X[50:], Y[50:]))
    short = device.save()
    assert len(short) == 36 + 4 * (89 + 14)
    before = other.save(everything=True)
    wrong = {
        1: saved[:-4], 2: b"XNNL" + saved[4:], 3: saved[:16] + b"\0\0\0\0" + saved[20:],
        4: saved[:40] + bytes([saved[40] ^ 1]) + saved[41:],
    }  # fmt: skip
    words = np.frombuffer(short[:-4], "<u4").copy()
    words[10] = 0x7FC00000
    wrong[5] = words.tobytes() + np.uint32(zlib.crc32(words.tobytes())).tobytes()
    for fault, content in wrong.items():
        assert other.restore(content) == fault
    assert other.restore(b"MNNL") == 1
    assert other.save(everything=True) == before
    assert other.restore(short) == 0
    assert_same_bits(parameters(other), parameters(device))


def saved_by(stream, X, Y, tmp_path, everything=False):
    device = compiled(stream, tmp_path)
    device.run(X, Y)
    return device.save(everything)


def test_damaged_snapshots_are_refused(tmp_path):
    saved = saved_by(eight(), *signal(10), tmp_path)
    words = np.frombuffer(saved[:-4], "<u4").copy()
    words[9] = 0x7FC00000
    wrong = {
        "hello": b"hello", "version 7": saved[:4] + b"\7\0\0\0" + saved[8:], "37": saved[:37], "100": saved[:100],
        "checksum": saved[:60] + b"\0" + saved[61:],
        "number 1 of": words.tobytes() + np.uint32(zlib.crc32(words.tobytes())).tobytes(),
    }  # fmt: skip
    for named, content in wrong.items():
        with pytest.raises(DataError, match=named):
            read_snapshot(content, f"hello {named}" if named == "hello" else "field.bin")


def test_snapshots_of_other_nets_are_refused(tmp_path):
    saved, scaled = saved_by(eight(), *signal(10), tmp_path), eight(scale=True)
    before = scaled.parameters.copy()
    for content, model, named in (
        (saved, Mesh(recurrent(5, 1, 1), 1, "tanh"), "89 parameters, this net 41"),
        (saved, Mesh(recurrent(8, 1, 1), 1, "relu"), "activations"),
        (saved_by(eight(), *signal(10), tmp_path, everything=True), eight("adam"), "ekf, not adam"),
        (saved, scaled, "89 numbers, this net 103"),
        (scaled.to_bytes(), eight(), "103 numbers, this net 89"),
        (saved, MeshStreamRegressor(), r"MeshStreamRegressor .* field\.bin"),
    ):
        with pytest.raises(DataError, match=named):
            import_snapshot(content, model, "field.bin")
    np.testing.assert_array_equal(scaled.parameters, before)
    with pytest.raises(MeshError, match="'2 nets'"):
        learner_header(eight(), "2 nets")


def test_meshes_and_models_take_it_back(tmp_path):
    X, Y = signal(200)
    mesh = Mesh(recurrent(8, 1, 1), 1, "tanh", random_state=0)
    stream = mesh.stream(learner="ekf", portable=True)
    saved = saved_by(stream, X, Y, tmp_path)
    stream.run(X, Y)
    other = Mesh(recurrent(8, 1, 1), 1, "tanh", random_state=7)
    import_snapshot(saved, other)
    np.testing.assert_array_equal(other.weights, mesh.weights)
    rng = np.random.default_rng(0)
    X = rng.normal(5, 3, size=(150, 2))
    y = X[:, 0] * 2 + np.sin(X[:, 1]) + 100
    labels = (y > y.mean()).astype(int)
    rows = [{"a": a, "b": b} for a, b in X]
    for everything in (False, True):
        for model, target in (
            (MeshStreamRegressor(hidden=3, random_state=0), y),
            (MeshStreamClassifier(hidden=3, random_state=0), labels),
        ):
            for row, value in zip(rows[:60], target, strict=False):
                model.learn_one(row, value)
            portable = portable_of(model)
            saved = saved_by(portable, X[60:], target[60:, None], tmp_path, everything)
            portable.run(X[60:], target[60:])
            import_snapshot(saved, model)
            assert model.n_samples_ == 150
            got = model.stream_.peek(X[0])
            np.testing.assert_allclose(got, portable.peek(X[0]), rtol=1e-4, atol=1e-5)
            if everything:
                np.testing.assert_allclose(model.stream_.learner.covariance(), portable.covariance(), atol=1e-6)
    for model, target in (
        (MeshRegressor(hidden=3, max_epochs=30, random_state=0).fit(X[:60], y[:60]), y),
        (MeshClassifier(hidden=3, max_epochs=30, random_state=0).fit(X[:60], labels[:60]), labels),
    ):
        portable = portable_of(model)
        saved = saved_by(portable, X[60:], target[60:, None], tmp_path)
        portable.run(X[60:], target[60:])
        import_snapshot(saved, model)
        if target is y:
            np.testing.assert_allclose(model.predict(X[:1]), portable.peek(X[0]), rtol=1e-4)
        else:
            logits = portable.peek(X[0])
            np.testing.assert_allclose(model.decision_function(X[:1])[0], logits[1] - logits[0], atol=1e-3)


@pytest.mark.slow
def test_the_command(tmp_path):
    X, Y = signal(50)
    mesh = Mesh(recurrent(8, 1, 1), 1, "tanh", random_state=0)
    mesh.save(tmp_path / "net.mesh")
    stream = mesh.stream(learner="adam", portable=True)
    saved = tmp_path / "field.bin"
    saved.write_bytes(saved_by(stream, X, Y, tmp_path))
    stream.run(X, Y)
    done = meshnn("import", saved, "--into", tmp_path / "net.mesh", "--out", tmp_path / "new.mesh")
    assert done.returncode == 0, done.stderr
    assert "89 parameters of" in done.stdout
    assert "50 samples seen, 50 updates of adam" in done.stdout
    np.testing.assert_array_equal(load(tmp_path / "new.mesh").weights, mesh.weights)
    told = meshnn("import", saved, "--into", tmp_path / "net.mesh", "--out", tmp_path / "new.mesh", "--json")
    assert '"learner": "adam"' in told.stdout
    saved.write_bytes(saved.read_bytes()[:50])
    done = meshnn("import", saved, "--into", tmp_path / "net.mesh", "--out", tmp_path / "other.mesh")
    assert done.returncode != 0
    assert "is cut" in done.stderr
    assert not (tmp_path / "other.mesh").exists()
    done = meshnn("import", tmp_path / "none.bin", "--into", tmp_path / "net.mesh", "--out", tmp_path / "other.mesh")
    assert "none.bin" in done.stderr


@pytest.mark.slow
def test_from_the_desk_to_the_field_and_back(tmp_path):
    """Every model that can: trained, saved, exported, learning in C, imported, predicting."""
    rng = np.random.default_rng(0)
    X = rng.normal(5, 3, size=(300, 2)).astype(np.float32)
    y = (X[:, 0] * 2 + np.sin(X[:, 1]) + 100).astype(np.float32)
    labels = (y > y.mean()).astype(np.float32)
    stream = MeshStreamRegressor(hidden=3, random_state=0)
    for row, value in zip(X[:100].tolist(), y, strict=False):
        stream.learn_one({"a": row[0], "b": row[1]}, float(value))
    mesh = Mesh(Topology.layered([2, 3, 1]), 2, "tanh", random_state=0)
    models = {
        "stream": (stream, y), "mesh": (mesh, y),
        "regressor": (MeshRegressor(hidden=3, max_epochs=30, random_state=0).fit(X[:100], y[:100]), y),
        "classifier": (MeshClassifier(hidden=3, max_epochs=30, random_state=0).fit(X[:100], labels[:100]), labels),
    }  # fmt: skip
    for name, (model, target) in models.items():
        saved, header = tmp_path / f"{name}.mesh", tmp_path / f"{name}.h"
        model.save(saved)
        done = meshnn("export", saved, "--to", "c", "--out", header, "--learn", "--name", "net")
        assert done.returncode == 0, done.stderr
        portable = portable_of(load(saved))
        assert header.read_text().endswith(learner_header(portable))
        (tmp_path / "field.bin").write_bytes(saved_by(portable, X[100:], target[100:, None], tmp_path))
        portable.run(X[100:], target[100:])
        done = meshnn("import", tmp_path / "field.bin", "--into", saved, "--out", tmp_path / "new.mesh")
        assert done.returncode == 0, done.stderr
        new = load(tmp_path / "new.mesh")
        got = (new if name == "mesh" else new.mesh_).parameters
        np.testing.assert_array_equal(got.astype(np.float32), portable.parameters)


def test_the_header_of_a_model_says_what_inputs_and_classes_are_called(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    model = MeshStreamClassifier(hidden=2, random_state=0)
    for k, (a, b) in enumerate(X):
        model.learn_one({"a*/": a, "b@~": b}, "no" if k == 0 or a < 0 else "yes")
    report = model.to_c(tmp_path / "net.h", learn=True)
    text = (tmp_path / "net.h").read_text()
    names = ["x[0]: a* /", "x[1]: b@~"]
    classes = ["y[0] above 0, target[0] = 1: class no", "y[0] below 0, target[0] = 0: class yes"]
    assert text.startswith("\n * ".join(["/*", *names, *classes]) + "\n */\n")
    outputs = [portable_of(model).peek(x)[0] for x in X]
    said = [model.predict_one({"a*/": a, "b@~": b}) for a, b in X]
    assert ["no" if y > 0 else "yes" for y in outputs] == said
    assert 0 < report.table_bytes != report.ram_bytes
    three = MeshClassifier(hidden=2, max_epochs=2, random_state=0).fit(X, np.arange(60) % 3 + 5)
    fresh = three.to_c(tmp_path / "three.h", learn=True)
    assert "y[2] the largest, target[0] = 2: class 7" in (tmp_path / "three.h").read_text()
    assert fresh.table_bytes < fresh.ram_bytes  # influences begin with zeros, which take no table
    several = MeshClassifier(hidden=2, max_epochs=2, random_state=0).fit(X, (X > 0).astype(int))
    several.to_c(tmp_path / "several.h", learn=True)
    assert "y[1] above 0, target[1] = 1: it has label 1" in (tmp_path / "several.h").read_text()


def test_the_header_is_written_whole_with_what_one_must_know(tmp_path):
    stream = eight()
    stream.to_c(tmp_path / "pump.h", "pump")
    text = (tmp_path / "pump.h").read_text()
    for words in (
        "89 edges, 89 parameters; 2 ticks per sample",
        "pump_step(&l, x, y);",
        "RAM: 19724 bytes in pump_learner",
    ):
        assert words in text
    assert "#include <stdint.h>" in text
    assert text.count("#include") == 1
    assert "$" not in text
    assert not {"%if", "%not", "%end"} & set(text.split())
    assert all(line.isascii() for line in text.splitlines())


# -- boards ----------------------------------------------------------------------------------------------------------

BOARD = """#include "net.h"
static net_learner l;
static float x[1], y[1], target[1];
"""


def on_board(stream, board, flags, T, steps):
    """Checksums of outputs and parameters after so many steps on a signal of T samples, over and over."""
    X, Y = signal(T)
    words = ",".join(f"0x{word:08x}u" for word in np.concatenate([X[:, 0], Y[:, 0]]).view(np.uint32))
    source = f"""{boards.SAY}{BOARD}
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
    say_bits(crc ^ 0xffffffffu);
    return 0;
}}
"""
    got = int(boards.run_on(board, source, {"net.h": learner_header(stream)}, flags).split()[-1], 16)
    times = -(-steps // T)
    out = stream.run(np.tile(X, (times, 1))[:steps], np.tile(Y, (times, 1))[:steps])
    return got, zlib.crc32(np.concatenate([out[:, 0], stream.parameters]).astype("<f4").tobytes())


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("board", ["m3", "m4f", "avr"])
def test_no_library_is_called_and_nothing_is_warned_of(board):
    arithmetic = "__aeabi_" if board != "avr" else "__"  # of floats, which the compiler brings along
    source = '#include "net.h"\nstatic net_learner l;\nfloat x[3], y[3], t[3];\nunsigned char bytes[NET_SAVED_ALL];\n'
    source += "int main(void) { net_init(&l); net_step(&l, x, y); net_learn(&l, t); net_reset(&l);\n"
    source += "return net_restore(&l, bytes, net_save(&l, bytes, 1)); }\n"
    for make, loss, options in KINDS.values():
        stream = make().stream(loss, portable=True, **options)
        for flags in ("-std=c99 -Os", "-std=gnu99 -O3"):
            built = boards.build(board, source, {"net.h": learner_header(stream)}, flags, link=False)
            assert all(name.startswith(arithmetic) for name in built.undefined()), built.undefined()


@pytest.mark.slow
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
