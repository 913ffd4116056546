import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from meshnn import Mesh, Topology

os.environ.setdefault("MESHNN_QUIET", "1")

# The same examples every time and no time limit: the first call of a kernel compiles it.
settings.register_profile(
    "meshnn", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("meshnn")


@pytest.fixture
def mesh():
    return Mesh(Topology.mesh(3, 6, 2), activation="tanh", dtype="float64", random_state=0)


@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    return rng.standard_normal((100, 3)), rng.integers(0, 2, 100)
