"""Test environments: `nox -s tests` on every supported Python, `nox -s floors` with the lowest supported versions."""

import nox

nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = False
QUICK = ("-q", "-p", "no:cacheprovider", "-m", "not slow", "--hypothesis-profile=few", "-n", "2", "--dist", "worksteal")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session):
    """Run the quick tests with the versions of constraints.txt."""
    session.install("-c", "constraints.txt", "-e", ".[dev,plots,torch]")
    session.run("pytest", *QUICK, *session.posargs, env=ONE_THREAD)


@nox.session(python="3.11")
def floors(session):
    """Run quick tests with the lowest versions that pyproject.toml allows; `-- FILE...` selects the tests."""
    needed = (
        "pytest>=8",
        "pytest-xdist>=3.6",
        "hypothesis>=6.100",
        "pandas>=2.2",
        "PyYAML>=6",
        "torch==2.13.0",
        "onnxruntime>=1.19",
    )
    session.install("--resolution", "lowest-direct", "-e", ".[plots,onnx]", *needed)
    # ignore deprecations that old versions of one dependency meet in new versions of another
    session.run("pytest", *QUICK, "-W", "default", *session.posargs, env=ONE_THREAD)
