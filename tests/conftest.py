import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings

from examples import ALL, FEW
from meshnn import Mesh, Topology

os.environ.setdefault("MESHNN_QUIET", "1")

# The same examples every time and no time limit: the first call of a kernel compiles it.
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


def pytest_sessionstart(session):
    """Workers of pytest-xdist find compiled kernels; this runs before they are started."""
    if session.config.getoption("numprocesses", None):
        program = str(Path(__file__).parent / "warm.py")
        for process in [subprocess.Popen([sys.executable, program, dtype]) for dtype in ("float32", "float64")]:
            process.wait()  # should it fail, the tests will say so better


def pytest_terminal_summary(terminalreporter):
    """Figures that tests have found, which fail nothing (`record_property("figure", ...)`), also those of workers."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "figure":
                terminalreporter.line(value)


@pytest.fixture
def mesh():
    return Mesh(Topology.mesh(3, 6, 2), activation="tanh", dtype="float64", random_state=0)


@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    return rng.standard_normal((100, 3)), rng.integers(0, 2, 100)


@pytest.fixture
def parts(monkeypatch):
    """Split every batch of more than one row into parts, and see who works on them.

    A list of `(number of parts, number of threads that worked)`, one for each time that work was split. Where several
    threads may work, each of them does: they wait for each other at their first part.
    """
    from meshnn.program import threads

    monkeypatch.setattr(threads, "LEAST_WORK", 1)
    monkeypatch.setattr(threads, "FEWEST_CHUNKS", 1)
    real, seen, guard = threads.in_threads, [], threading.Lock()

    def watched(count, n_threads, task):
        workers = min(count, n_threads)
        meet, who = threading.Barrier(workers, timeout=600), set()

        def one(p):
            with guard:
                first = threading.get_ident() not in who
                who.add(threading.get_ident())
            if first and workers > 1:
                meet.wait()
            return task(p)

        found = real(count, n_threads, one)
        seen.append((count, len(who)))
        return found

    for name, module in list(sys.modules.items()):
        if name.startswith("meshnn.") and getattr(module, "in_threads", None) is real:
            monkeypatch.setattr(module, "in_threads", watched)
    return seen


@pytest.fixture
def teams(monkeypatch):
    """Split every batch of more than one row into parts, and see who takes steps together.

    A list of `(most threads, threads that came)`, one for each time that a team was called. All that were called come,
    however busy the machine is.
    """
    from meshnn.program import steps, threads

    monkeypatch.setattr(threads, "LEAST_TEAM_WORK", 1)
    monkeypatch.setattr(threads, "FEWEST_TEAM_CHUNKS", 1)
    monkeypatch.setattr(threads, "PATIENCE", 600.0)
    monkeypatch.setattr(steps, "WORTH_A_THREAD", 0)
    seen = []

    def watched(most, task, abandon):
        who = set()

        def one(me, count):
            who.add((me, count, threading.get_ident()))
            return task(me, count)

        found = threads.together(most, one, abandon)
        assert {me for me, _, _ in who} == set(range(len(who)))
        assert {count for _, count, _ in who} == {len(who)}
        assert len({thread for _, _, thread in who}) == len(who)
        seen.append((most, len(who)))
        return found

    monkeypatch.setattr(steps, "together", watched)
    return seen
