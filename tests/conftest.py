import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings

from examples import ALL, FEW
from folders import table, with_column, write
from meshnn import Mesh, Topology

# The same examples every time and no time limit: other processes may take the processor.
settings.register_profile(
    "meshnn",
    max_examples=ALL,
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# For a look many times a day; CI tries all of them.
settings.register_profile("few", settings.get_profile("meshnn"), max_examples=FEW)
# The first failure as it is, for who only wants to know whether there is one.
settings.register_profile("first", settings.get_profile("meshnn"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("meshnn")

# Processes that tests start find the same modules as the tests.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
)


def pytest_terminal_summary(terminalreporter):
    """Figures that tests have found, which fail nothing (`record_property("figure", ...)`), also those of workers."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "figure":
                terminalreporter.line(value)


@pytest.fixture(autouse=True)
def _elsewhere(request, monkeypatch):
    """Commands write files named after tables into the working directory: not into the project."""
    if request.module.__name__.startswith(("test_cli", "test_columns", "test_conveniences", "test_frames")):
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))


@pytest.fixture
def mesh():
    return Mesh(Topology.mesh(3, 6, 2), activation="tanh", dtype="float64", random_state=0)


@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    return rng.standard_normal((100, 3)), rng.integers(0, 2, 100)


@pytest.fixture
def numbers(tmp_path):
    """A folder of Parquet files with a numeric target."""
    return write(tmp_path / "numbers", [table(seed=k) for k in range(3)])


@pytest.fixture
def classes(tmp_path):
    """A folder of Parquet files with two classes."""
    found = [table(seed=k) for k in range(3)]
    labels = [np.array(["no", "yes"])[(t["y"].to_numpy() > 0).astype(int)] for t in found]
    return write(tmp_path / "classes", [with_column(t, "y", y) for t, y in zip(found, labels, strict=True)])
