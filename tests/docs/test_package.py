"""The package: imports, start-up time, typing marker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python(program, **environment):
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=os.environ | environment, check=False
    )


def test_import_loads_nothing_optional_and_no_compiler():
    program = """
import sys
from meshnn import Mesh, MeshError, Topology, load
heavy = {"torch", "jax", "matplotlib", "networkx", "sklearn", "scipy", "rich", "typer", "pyarrow",
         "safetensors", "pandas", "neat", "meshnn.neat", "onnx", "onnxruntime", "skl2onnx"}
print(sorted(heavy & set(sys.modules)))
"""
    done = python(program)
    assert done.stdout == "[]\n", done.stderr


HEAVY = {"torch", "matplotlib", "networkx", "sklearn", "scipy.linalg", "scipy.sparse", "pyarrow", "pandas",
         "meshnn.paper"}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a fitted model and the path of its table."""
    folder = tmp_path_factory.mktemp("startup")
    (folder / "t.csv").write_text("a,b,c\n" + "".join(f"{k},{k * k % 7},{'xy'[k % 2]}\n" for k in range(30)))
    fit = f"main(['fit', {str(folder / 't.csv')!r}, '-y', 'c', '--max-epochs', '2', '-o', {str(folder / 'm.mesh')!r}])"
    done = python(f"from meshnn.cli import main; {fit}")
    assert done.returncode == 0, done.stderr
    return folder / "m.mesh", folder / "t.csv"


@pytest.mark.parametrize(("arguments", "needed"), [
    (["--version"], set()),
    pytest.param(["--help"], {"pyarrow", "meshnn.paper"}, marks=pytest.mark.slow),
    (["info", "m.mesh"], set()),
    pytest.param(["explain", "m.mesh"], set(), marks=pytest.mark.slow),
    (["predict", "m.mesh", "t.csv"], {"pyarrow"}),
    pytest.param(["evaluate", "m.mesh", "t.csv"], {"pyarrow"}, marks=pytest.mark.slow),
])  # fmt: skip
def test_commands_import_what_they_need(model, arguments, needed):
    program = f"""
import os, sys
os.chdir({str(model[0].parent)!r})
from meshnn.cli import main
try:
    main({arguments!r})
except SystemExit as stop:
    print(stop.code, *sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)
"""
    assert python(program).stderr.splitlines()[-1].split() == ["0", *sorted(needed)]


def test_a_model_without_scikit_learn_is_the_same(model):
    import numpy as np
    import pyarrow as pa

    from meshnn import MeshClassifier, load
    from meshnn.loading import load_fitted

    X = np.random.default_rng(0).standard_normal((20, 2))
    table = pa.table({"a": X[:, 0], "b": X[:, 1]})
    whole, fitted = load(model[0]), load_fitted(model[0])
    assert isinstance(whole, MeshClassifier)
    assert type(fitted).__name__ == "FittedClassifier"
    np.testing.assert_array_equal(whole.predict_proba(table), fitted.predict_proba(table))
    np.testing.assert_array_equal(whole.predict(table), fitted.predict(table))


def test_public_names():
    import meshnn

    assert all(getattr(meshnn, name) is not None for name in meshnn.__all__)
    with pytest.raises(AttributeError, match="no attribute 'MeshClasifier'"):
        meshnn.MeshClasifier  # noqa: B018
    assert issubclass(meshnn.MeshError, ValueError)
    assert (Path(meshnn.__file__).parent / "py.typed").exists()
