"""What holds for the package as a whole: the README, imports, start-up, typing marker."""

import os
import re
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


def readme_blocks():
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_ten_lines_of_the_readme(capsys, tmp_path, monkeypatch):
    block = readme_blocks()[0]
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert float(out.splitlines()[0]) > 0.8  # another processor rounds otherwise and ends elsewhere
    assert "<- auto" in out
    assert "solver adam: " in out
    assert (tmp_path / "spirals.mesh").exists()


@pytest.mark.parametrize("k", range(1, len(readme_blocks())))
def test_other_blocks_of_the_readme(k):
    exec(compile(readme_blocks()[k], "README.md", "exec"), {})


FORECASTING = "forecasting.md"  # it has a test of its own
ELSEWHERE = {FORECASTING, "neat.md", "faq.md"}  # the second in test_neat.py, the third in test_docs.py


def run_page(page):
    shared = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL):
        exec(compile(block, page, "exec"), shared)
    return shared


QUICK = ["quickstart.md"]  # the others take seconds each
PAGES = sorted({path.name for path in (ROOT / "docs").glob("*.md")} - ELSEWHERE - {*QUICK})


@pytest.mark.parametrize("page", [*QUICK, *(pytest.param(page, marks=pytest.mark.slow) for page in PAGES)])
def test_blocks_of_the_pages(page, tmp_path, monkeypatch):
    for library in ("onnxruntime", "skl2onnx") if page in ("onnx.md", "deployment.md") else ():
        pytest.importorskip(library, reason=f"docs/{page} IS NOT TESTED without {library}: pip install '.[dev]'")
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # what these libraries will change
def test_forecasts_with_other_libraries():
    import numpy as np

    for library in ("sktime", "skforecast", "darts"):
        pytest.importorskip(library, reason=f"docs/{FORECASTING} IS NOT TESTED without {library}: pip install '.[dev]'")
    found = run_page(FORECASTING)
    future = found["future"].to_numpy()
    for name in ("by_skforecast", "by_darts", "by_sktime"):
        forecast = np.asarray(found[name])
        assert forecast.shape == (24,)
        assert np.corrcoef(forecast, future)[0, 1] > 0.7, name  # about 0.94
    band = found["band"]
    assert list(band.columns) == ["pred", "lower_bound", "upper_bound"]
    assert (band["lower_bound"] < band["upper_bound"]).all()


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
    """A model of a table, and the table."""
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
