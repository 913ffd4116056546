"""The extension module: instruction sets, damaged files and invalid arguments."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import meshnn
from meshnn import Mesh, Topology, _core
from meshnn.codes import StepRule
from meshnn.engine import Optimizer
from meshnn.losses import LOSSES
from meshnn.plan import METHODS

ISAS = _core.isas[: _core.isas.index(_core.isa) + 1]  # those that this processor supports


def run(program, **env):
    """Run a program in a separate process in this folder."""
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=os.environ | env, text=True,
                          cwd=Path(__file__).parent, capture_output=True, timeout=300)  # fmt: skip


# -- instruction sets --------------------------------------------------------------------------------------------------


def found_here():
    """Return the instruction set in use, and gradients, Jacobians and states of a few nets, as lists."""
    found = []
    graphs = (
        Topology.mesh(6, 13, 3),
        Topology.layered([17, 19, 4]),
        Topology.mesh(5, 30, 2, density=0.2, random_state=1),
    )
    for dtype in ("float32", "float64"):
        for t, activation in zip(graphs, ("tanh", "relu", "softplus"), strict=True):
            mesh, rng = Mesh(t, 4, activation, dtype=dtype, random_state=0), np.random.default_rng(0)
            X, y = rng.standard_normal((75, t.n_inputs)), rng.integers(0, t.n_outputs, 75)
            arrays = [mesh.gradient(X, y, gradient=method)[1] for method in METHODS]
            for array in (*arrays, mesh.jacobian(X[:3]), mesh.states(X[:3])):
                found.append((1e-12 if dtype == "float64" else 1e-5, array.ravel().tolist()))
    return _core.isa, found


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_computes_the_same(isa):
    done = run("import json, test_core; print(json.dumps(test_core.found_here()))", MESHNN_ISA=isa)
    used, found = json.loads(done.stdout)
    assert used == isa
    for (tolerance, got), (_, want) in zip(found, found_here()[1], strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("isa", ["mmx", *_core.isas[len(ISAS) :]])
def test_an_instruction_set_that_is_not_there_is_named(isa):
    last = run("import meshnn._core", MESHNN_ISA=isa).stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert isa in last


@pytest.mark.parametrize("damage", ["empty", "head", "half", "all but a byte", "garbled", "missing"])
def test_a_damaged_library_is_an_import_error(damage, tmp_path):
    package = Path(meshnn.__file__).parent
    shutil.copytree(package, tmp_path / "meshnn", ignore=shutil.ignore_patterns("__pycache__", "_core"))
    library = tmp_path / "meshnn" / Path(_core.__file__).name
    whole = library.read_bytes()
    spoilt = {
        "empty": b"", "head": whole[:500], "half": whole[: len(whole) // 2], "all but a byte": whole[:-1],
        "garbled": whole[:16] + bytes(len(whole)), "missing": whole,
    }[damage]  # fmt: skip
    library.write_bytes(spoilt)
    if damage == "missing":
        library.unlink()
    program = "try:\n from meshnn import Mesh\nexcept ImportError:\n print('refused')"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


# -- arguments ---------------------------------------------------------------------------------------------------------


def engine(need="gradient", method="adjoint"):
    mesh = Mesh(Topology.mesh(3, 5, 2), 3, "tanh", dtype="float64", random_state=0)
    return mesh, (mesh.engine() if need == "outputs" else mesh.engine(need, method))


def adam(size):
    return Optimizer(StepRule.ADAM, (0.9, 0.999), 1e-8, 0.0, 0.0, *(np.zeros(size) for _ in range(3))).state


def calls():
    """Yield one call per method of an engine: the function, its arguments, and the arguments that it writes."""
    rng, n = np.random.default_rng(0), 70
    X, labels, share = rng.standard_normal((1, n, 3)), np.zeros((1, n, 1)), np.full((1, n), 1 / n)
    code = LOSSES["cross_entropy"].code
    for method in METHODS:
        mesh, made = engine("gradient", method)
        samples, targets = (mesh.values, X, None, 1, 2, 100.0), (labels, share, None, None, code, 0)
        size, core = mesh.n_parameters, made.core
        yield core.loss, [*samples, *targets, np.empty(size), made.influence], [12]
        mesh, made = engine("jacobian", method)
        yield made.core.jacobian, [*samples, np.empty((n, 2, size)), made.influence], [6]
    core = engine("outputs")[1].core
    yield core.forward, [*samples, np.empty((1, n, 2)), None, 0], [6]
    core = engine("curvature")[1].core
    live = np.arange(size)
    yield core.curvature, [*samples, *targets, live, 2, np.empty(size), np.empty((size, size))], [14, 15]
    core = engine("epochs")[1].core
    state = adam(size)
    order = np.stack([rng.permutation(n) for _ in range(2)])
    steps = [order, state, np.full(6, 1e-3), np.empty((2, 3)), 32, 32, 0]
    yield core.epochs, [mesh.values, X, None, 0, 2, 100.0, *targets, *steps], [0, 15]
    yield _core.update, [state, mesh.values, np.zeros(size), 1, 1e-3], [1, 2]


def spoilt(value, written):
    """Yield invalid variants of a value."""
    yield from ("text", object(), [1.0, 2.0], {})
    if not isinstance(value, np.ndarray):
        return
    yield value.astype(np.float32 if value.dtype == np.float64 else np.int32)
    yield value.astype(">f8")
    yield value.astype(complex)
    yield np.resize(value, (2 * value.size,))
    yield value.ravel()[: value.size // 2]
    yield np.empty(0, value.dtype)
    yield np.empty((*value.shape, 0), value.dtype)
    yield np.zeros((2, *value.shape), value.dtype)
    yield np.zeros((1,) * 5, value.dtype)
    if value.size > 1:
        yield np.repeat(value.ravel(), 2)[::2]  # not contiguous
    if written:
        read_only = value.copy()
        read_only.flags.writeable = False
        yield read_only


def check_arguments():
    """Check that an invalid value of any argument raises an error and does not crash."""
    refused = (TypeError, ValueError, BufferError)
    for call, arguments, written in calls():
        call(*arguments)
        for wrong in (arguments[:-1], [*arguments, None], []):
            with pytest.raises(TypeError):
                call(*wrong)
        for k, value in enumerate(arguments):
            for bad in spoilt(value, k in written):
                if call.__name__ == "loss" and k == 12 and getattr(bad, "size", 1) == 0:
                    continue  # None is valid: no gradient is computed
                with pytest.raises(refused):
                    call(*arguments[:k], bad, *arguments[k + 1 :])
            for odd in (None, -1, 2**40, 2.5, float("nan")):  # some of these are valid
                with contextlib.suppress(*refused, OverflowError, MemoryError):
                    call(*arguments[:k], odd, *arguments[k + 1 :])
        call(*arguments)
    print("done")


def test_wrong_arguments_are_refused():
    done = run("import faulthandler; faulthandler.enable(); import test_core; test_core.check_arguments()")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_plan_without_a_way_back_gives_no_gradient():
    for need, method in (("outputs", None), ("gradient", "influence")):
        mesh, made = engine(need, method)
        X, y, share = np.zeros((1, 9, 3)), np.zeros((1, 9, 1)), np.full((1, 9), 1 / 9)
        given = (mesh.values, X, None, 1, 1, 1.0, y, share, None, None, 0, 0)
        assert made.core.loss(*given, None, None)[0] == pytest.approx(mesh.gradient(X[0], np.zeros(9, int))[0])
        with pytest.raises(ValueError, match="plan"):
            made.core.loss(*given, np.empty(mesh.n_parameters), None)


def test_structs():
    mesh, made = engine()
    fields = made.plan.fields() | {"activations": made.codes}
    fields |= dict.fromkeys(("out_ptr", "out_dst", "out_number"), np.empty(0, np.int64))
    plan = _core.Struct("Plan", fields, "d")
    assert isinstance(_core.Engine(plan, "d"), _core.Engine)
    for name in fields:
        with pytest.raises(KeyError, match=name):
            _core.Struct("Plan", {key: value for key, value in fields.items() if key != name}, "d")
        for wrong in ("text", None, np.zeros(3, complex)):
            with pytest.raises((TypeError, BufferError)):
                _core.Struct("Plan", fields | {name: wrong}, "d")
    with pytest.raises(ValueError, match="Plam"):
        _core.Struct("Plam", fields, "d")
    for given, dtype in ((plan, "q"), (None, "d"), (fields, "d"), (adam(mesh.n_parameters), "d")):
        with pytest.raises((TypeError, ValueError)):
            _core.Engine(given, dtype)
