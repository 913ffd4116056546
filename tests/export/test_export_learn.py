"""Learners in C: bit-identical to portable streams, on this computer and on boards, and their saved state."""

import zlib

import numpy as np
import pytest
from export_cases import random_net
from test_portable import hostile, recurrent, tied_mesh

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
    """Return a learner in C that starts in the state of the stream."""
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
    """Return the net of the benchmarks: eight fully recurrent neurons, 89 parameters."""
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


SEVERAL = ["tanh", "sin", "softplus", "gauss", "elu", "sigmoid", "relu", "hardtanh"]
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
    "leaky, adam": (net(recurrent(3, 2, 2), 1, ["leaky_relu", "hardtanh", "tanh"], 7), "squared_error", ADAM),
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
    saved = learner.save(everything=True)  # the complete saved state restores the stream
    assert saved == stream.to_bytes(everything=True)
    assert learner.save() == stream.to_bytes()
    fresh = make().stream(loss, portable=True, **options)
    import_snapshot(saved, fresh)
    for name in PortableStream.kept[:-1]:
        assert_same_bits(getattr(fresh.room, name), getattr(stream.room, name))
    assert fresh.samples == stream.samples


def any_graph(seed):
    stream = random_net(seed, dtype="float32")[0].stream(learner=("ekf", "adam", "sgd")[seed], portable=True)
    return stream, *signal(100, stream.topology.n_inputs, stream.topology.n_outputs)


def hostile_data(learner, scale):
    mesh = Mesh(recurrent(3, 2, 2), 1, ["tanh", "relu", "sin"], random_state=0)
    return mesh.stream(learner=learner, scale=scale, portable=True), *hostile(1500, 2, 2, 5)


def one_sample_determines_all():
    """Inputs are so large and noise is so small that the variances consist of rounding errors."""
    options = {"memory": "none", "noise": 1e-3, "tails": 0.0, "forgetting": 0.0}
    stream = Mesh(Topology.layered([3, 2]), 1, random_state=0).stream(learner="ekf", portable=True, **options)
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(300, 3)) * 10.0 ** rng.integers(0, 5, size=(300, 3))).astype(np.float32)
    return stream, X, (X @ rng.normal(size=(3, 2))).astype(np.float32)


HARD = [(any_graph, seed) for seed in range(3)]
HARD += [(hostile_data, "ekf", True), (hostile_data, "ekf", False), (hostile_data, "adam", True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [*HARD, (one_sample_determines_all,)], ids=lambda case: f"{case[0].__name__}{case[1:]}"
)
def test_hard_data_have_the_same_bits(tmp_path, case):
    make, *options = case
    stream, X, Y = make(*options)
    device = compiled(stream, tmp_path)
    assert_same_bits(device.run(X, Y), stream.run(X, Y))
    assert_same_bits(parameters(device), stream.parameters)
    assert device.counts() == stream.room.clock.tolist()
    X[::3, 0], Y[::5, 0] = np.nan, np.inf  # C receives values that Python rejects
    assert np.isfinite(device.run(X, Y)).all()
    assert np.isfinite(parameters(device)).all()
    if len(stream.room.P):
        P = stream.covariance().astype(float)
        assert (np.abs(P) <= 1.01 * np.sqrt(np.outer(P.diagonal(), P.diagonal()))).all()


def saved_by(stream, X, Y, tmp_path, everything=False):
    device = compiled(stream, tmp_path)
    device.run(X, Y)
    return device.save(everything)


def with_checksum(words):
    return words.tobytes() + np.uint32(zlib.crc32(words.tobytes())).tobytes()


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
    before, words = other.save(everything=True), np.frombuffer(short[:-4], "<u4").copy()
    words[9] = 0x7FC00000
    for fault, named, content in (
        (1, "truncated", saved[:-4]), (2, "not a snapshot", b"XNNL" + saved[4:]), (1, "37 bytes", short[:37]),
        (2, "version 7", short[:4] + b"\7\0\0\0" + short[8:]), (3, "checksum", saved[:16] + b"\0\0\0\0" + saved[20:]),
        (4, "checksum", short[:60] + bytes([short[60] ^ 1]) + short[61:]), (5, "number 1 of", with_checksum(words)),
    ):  # fmt: skip
        assert other.restore(content) == fault
        with pytest.raises(DataError, match=named):
            read_snapshot(content, "field.bin")
    assert other.save(everything=True) == before
    assert other.restore(short) == 0
    assert_same_bits(parameters(other), parameters(device))


def test_snapshots_of_other_nets_are_refused(tmp_path):
    saved, scaled = saved_by(eight(), *signal(10), tmp_path), eight(scale=True)
    before = scaled.parameters.copy()
    for content, model, named in (
        (saved, Mesh(recurrent(5, 1, 1), 1, "tanh"), "89 parameters, .* 41"),
        (saved, Mesh(recurrent(8, 1, 1), 1, "relu"), "activations"),
        (saved_by(eight(), *signal(10), tmp_path, everything=True), eight("adam"), "ekf, not adam"),
        (saved, scaled, "89 numbers, .* 103"),
        (scaled.to_bytes(), eight(), "103 numbers, .* 89"),
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
    for model, target, everything in (
        (MeshStreamRegressor(hidden=3, random_state=0), y, True),
        (MeshStreamClassifier(hidden=3, random_state=0), labels, False),
    ):
        for row, value in zip(rows[:60], target, strict=False):
            model.learn_one(row, value)
        portable = portable_of(model)
        for begun in (portable, portable_of(model, "adam")):  # from the state of the model
            np.testing.assert_allclose(begun.peek(X[0]), model.stream_.peek(X[0]), rtol=1e-4, atol=1e-4)
        saved = saved_by(portable, X[60:], target[60:, None], tmp_path, everything)
        portable.run(X[60:], target[60:])
        import_snapshot(saved, model)
        assert model.n_samples_ == 150
        np.testing.assert_allclose(model.stream_.peek(X[0]), portable.peek(X[0]), rtol=1e-4, atol=1e-5)
        if everything:
            np.testing.assert_allclose(model.stream_.learner.covariance(), portable.covariance(), atol=1e-6)
    for model, target in (
        (MeshRegressor(hidden=3, max_epochs=30, random_state=0).fit(X[:60], y[:60]), y),
        (MeshClassifier(hidden=3, max_epochs=30, random_state=0).fit(X[:60], labels[:60]), labels),
    ):
        portable = portable_of(model)

        def agree(model=model, portable=portable, values=target is y):
            out = portable.peek(X[0])
            if values:
                np.testing.assert_allclose(model.predict(X[:1]), out, rtol=1e-4)
            else:
                np.testing.assert_allclose(model.decision_function(X[:1])[0], out[1] - out[0], atol=1e-3)

        agree()
        saved = saved_by(portable, X[60:], target[60:, None], tmp_path)
        portable.run(X[60:], target[60:])
        import_snapshot(saved, model)
        agree()


def test_the_commands_write_a_learner_and_take_its_bytes_back(tmp_path):
    X, Y = signal(60)
    Mesh(recurrent(3, 1, 1), 1, "tanh", random_state=0).save(saved := tmp_path / "net.mesh")
    header, field, new = tmp_path / "net.h", tmp_path / "field.bin", tmp_path / "new.mesh"
    done = meshnn("export", saved, "--to", "c", "--out", header, "--learn")
    assert done.returncode == 0, done.stderr
    portable = portable_of(load(saved))
    assert header.read_text().endswith(learner_header(portable))
    field.write_bytes(saved_by(portable, X, Y, tmp_path))
    portable.run(X, Y)
    done = meshnn("import", field, "--into", saved, "--out", new, "--json")
    assert done.returncode == 0, done.stderr
    assert f'"learner": "{portable.learner.name}"' in done.stdout
    np.testing.assert_array_equal(load(new).parameters, portable.parameters)
    field.write_bytes(field.read_bytes()[:50])
    for path in (field, tmp_path / "none.bin"):
        done = meshnn("import", path, "--into", saved, "--out", tmp_path / "other.mesh")
        assert done.returncode != 0
        assert path.name in done.stderr
    assert not (tmp_path / "other.mesh").exists()


def test_the_header_of_a_model_says_what_inputs_and_classes_are_called(tmp_path):
    X, path = np.random.default_rng(0).standard_normal((60, 2)), tmp_path / "net.h"
    model = MeshStreamClassifier(hidden=2, random_state=0)
    for k, (a, b) in enumerate(X):
        model.learn_one({"a*/": a, "b@~": b}, "no" if k == 0 or a < 0 else "yes")
    report = model.to_c(path, learn=True)
    assert 0 < report.table_bytes != report.ram_bytes
    several = MeshClassifier(hidden=2, max_epochs=2, random_state=0).fit(X, (X > 0).astype(int))
    three = MeshClassifier(hidden=2, max_epochs=2, random_state=0).fit(X, np.arange(60) % 3 + 5)
    for written, lines in (
        (model, ["x[0]: a* /", "x[1]: b@~", "y[0] above 0, target[0] = 1: class no"]),
        (three, ["y[2] the largest, target[0] = 2: class 7"]),
        (several, ["y[1] above 0, target[1] = 1: it has label 1"]),
    ):
        written.to_c(path, learn=True)
        text = path.read_text()
        assert all(f" * {line}\n" in text for line in lines)
        assert text.isascii()
        assert text.count("#include") == 1
    said = [model.predict_one({"a*/": a, "b@~": b}) for a, b in X]
    assert ["no" if portable_of(model).peek(x)[0] > 0 else "yes" for x in X] == said
