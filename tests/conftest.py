import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings

from examples import ALL, FEW
from folders import table, with_column, write
from meshnn import Mesh, Topology

# The examples are the same in every run. There is no time limit, because other processes may use the processor.
settings.register_profile(
    "meshnn",
    max_examples=ALL,
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# A short run for development; CI runs all examples.
settings.register_profile("few", settings.get_profile("meshnn"), max_examples=FEW)
# Reports the first failure without shrinking it.
settings.register_profile("first", settings.get_profile("meshnn"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("meshnn")

# Processes that tests start import the same modules as the tests.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
)


def pytest_terminal_summary(terminalreporter):
    """Print the figures that passed tests recorded with `record_property("figure", ...)`, in any worker."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "figure":
                terminalreporter.line(value)


@pytest.fixture(autouse=True)
def _elsewhere(request, monkeypatch):
    """Change to a temporary folder: commands write files named after tables into the working directory."""
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
    """Write a folder of Parquet files with a numeric target."""
    return write(tmp_path / "numbers", [table(seed=k) for k in range(3)])


@pytest.fixture
def classes(tmp_path):
    """Write a folder of Parquet files with two classes."""
    found = [table(seed=k) for k in range(3)]
    labels = [np.array(["no", "yes"])[(t["y"].to_numpy() > 0).astype(int)] for t in found]
    return write(tmp_path / "classes", [with_column(t, "y", y) for t, y in zip(found, labels, strict=True)])
