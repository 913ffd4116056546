"""What holds for the package as a whole: the README, imports, start-up, typing marker."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


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
    assert float(out.splitlines()[0]) > 0.8  # lm is chaotic: another processor rounds otherwise and ends elsewhere
    assert "<- auto" in out
    assert "solver lm: " in out
    assert (tmp_path / "spirals.mesh").exists()


@pytest.mark.parametrize("k", range(1, len(readme_blocks())))
def test_other_blocks_of_the_readme(k):
    exec(compile(readme_blocks()[k], "README.md", "exec"), {})


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_blocks_of_the_pages(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shared = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL):
        exec(compile(block, page, "exec"), shared)


def test_import_loads_nothing_optional_and_no_compiler():
    program = """
import sys, meshnn
heavy = {"numba", "llvmlite", "torch", "jax", "matplotlib", "networkx", "sklearn", "scipy", "rich", "typer", "pyarrow",
         "safetensors", "pandas"}
print(sorted(heavy & set(sys.modules)))
"""
    done = python(program)
    assert done.stdout == "[]\n", done.stderr


def test_public_names():
    import meshnn

    assert set(meshnn.__all__) == {"Mesh", "MeshClassifier", "MeshError", "MeshRegressor", "Topology", "load"}
    assert all(getattr(meshnn, name) is not None for name in meshnn.__all__)
    with pytest.raises(AttributeError, match="no attribute 'MeshClasifier'"):
        meshnn.MeshClasifier  # noqa: B018
    assert issubclass(meshnn.MeshError, ValueError)
    assert (Path(meshnn.__file__).parent / "py.typed").exists()


def test_the_oracle_is_independent():
    tree = ast.parse((ROOT / "tests/naive.py").read_text())
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert imported == ["math"]
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


@pytest.mark.slow
def test_compiling_is_said_on_screen_once(tmp_path):
    program = """
import numpy as np
from meshnn import Mesh, Topology
m = Mesh(Topology.mesh(2, 3, 2), random_state=0)
m.forward(np.zeros((5, 2)))
"""
    cold = python(program, NUMBA_CACHE_DIR=str(tmp_path), MESHNN_QUIET="")
    assert cold.returncode == 0
    assert cold.stderr == "meshnn: compiling predict_part for float32 (once; later runs load it from disk)\n"
    warm = python(program, NUMBA_CACHE_DIR=str(tmp_path), MESHNN_QUIET="")
    assert warm.stderr == ""
    quiet = python(program, NUMBA_CACHE_DIR=str(tmp_path / "other"), MESHNN_QUIET="1")
    assert quiet.stderr == ""


def test_a_change_in_any_kernel_file_is_noticed():
    """Numba looks at the file of the function only; our stamp is that of all kernel files."""
    from meshnn.kernels import _jit
    from meshnn.kernels.forward import predict_part

    assert predict_part._cache._cache_file._source_stamp == _jit._STAMP
    assert _jit._fingerprint() == _jit._STAMP


@pytest.mark.slow
def test_no_folder_to_cache_in(tmp_path):
    """A place where nothing can be written must not keep anybody from computing."""
    program = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
import numpy as np
from meshnn import Mesh, Topology
print(Mesh(Topology.mesh(1, 1, 1), weights=[1.0] * 6).forward(np.ones((2, 1))).shape)
"""
    done = python(program)
    assert done.stdout == "(2, 1)\n", done.stderr
