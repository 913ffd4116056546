"""Runs missing trials, here, in other processes or on other machines, then makes tables and figures."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from meshnn.arguments import known
from meshnn.errors import MeshError
from meshnn.paper.experiment import Experiment, Figure, PaperTable, Parameters, Record, TrialOptions, key_of
from meshnn.paper.results import Results, locked, planned_records, read_results, tables_of, write_text
from meshnn.paper.tables import markdown

__all__ = ["Outcome", "run"]

BACKENDS = ("loky", "threading", "dask", "ray")


class Outcome(NamedTuple):
    """The results of a run."""

    folder: Path
    tables: list[PaperTable]
    figures: list[Figure]


def run(
    experiment: Experiment,
    options: TrialOptions,
    out: Path,
    jobs: int = 1,
    backend: str = "loky",
    tell: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> Outcome:
    """Run the missing trials, saving each; then make tables and figures from the saved results.

    Parameters
    ----------
    experiment, options : Experiment, TrialOptions
    out : Path
        The folder of all experiments.
    jobs : int
        Trials at a time.
    backend : str
        Of joblib: "loky" (processes), "threading", "dask" or "ray"; the last two may be followed by a colon and the
        address of a cluster.
    tell : function of (trials done, trials in all, what was done), optional
    """
    trials = options.trials or (experiment.quick_trials if options.quick else experiment.trials)
    options = replace(options, trials=trials)
    check_backend(backend)
    _check_packages(experiment)
    folder = out / (experiment.name if options.protocol == "ours" else f"{experiment.name}-{options.protocol}")
    with locked(folder):
        planned = {key_of(parameters): parameters for parameters in experiment.plan(options)}
        results = Results(folder, experiment, options, list(planned))
        missing = [parameters for key, parameters in planned.items() if key not in results.records]
        done = len(planned) - len(missing)
        tell(done, len(planned), "")
        if missing:
            if experiment.prepare is not None:
                experiment.prepare(options, lambda text: tell(done, len(planned), text))
            for record in _records(experiment, options, missing, jobs, backend):
                results.add(record)
                done += 1
                tell(done, len(planned), record["key"])
        results.order()
        # from the file, which must hold all that is needed
        return conclude(experiment, folder, planned_records(read_results(results.path)) or [])


def _check_packages(experiment: Experiment) -> None:
    extras = {"matplotlib": "plots", "torch": "torch"}
    for name in ("matplotlib", *experiment.needs):
        if find_spec(name) is None:
            raise MeshError(f"reproduce {experiment.name} needs {name}; pip install 'meshnn[{extras[name]}]'")


def conclude(experiment: Experiment, folder: Path, records: list[Record]) -> Outcome:
    """Write tables and figures of saved records."""
    tables = tables_of(experiment, records, folder)
    write_text(folder / "table.md", markdown(tables))
    figures = experiment.draw(records, folder)
    listed = [{"file": figure.path.name, "caption": figure.caption} for figure in figures]
    write_text(folder / "figures.json", json.dumps(listed, indent=1) + "\n")
    return Outcome(folder, tables, figures)


def _records(
    experiment: Experiment, options: TrialOptions, trials: list[Parameters], jobs: int, backend: str
) -> Iterator[Record]:
    """Yield the records of trials, each as soon as it is done."""
    if jobs == 1 and backend == "loky":
        for parameters in trials:
            yield _trial(experiment, options, parameters)
        return
    from joblib import Parallel, delayed

    with _backend(backend, jobs), warnings.catch_warnings():
        # it only says that processes that use much memory are replaced
        warnings.filterwarnings("ignore", "A worker stopped while some jobs")
        # unordered: a slow trial does not delay the saving of others
        parallel = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
        yield from parallel(delayed(_trial)(experiment, options, parameters) for parameters in trials)


def _trial(experiment: Experiment, options: TrialOptions, parameters: Parameters) -> Record:
    key, began = key_of(parameters), time.perf_counter()
    try:
        numbers = experiment.run(parameters, options)
    except MeshError as error:
        raise MeshError(f"{experiment.name}, trial {key}: {error}") from None
    seconds = round(time.perf_counter() - began, 4)
    return {"key": key, "parameters": parameters, "numbers": numbers, "seconds": seconds}


def check_backend(backend: str) -> tuple[str, str]:
    """Return name and address of a backend."""
    name, _, address = backend.partition(":")
    known("backend", name, BACKENDS)
    if address and name not in ("dask", "ray"):
        raise MeshError(f"backend {name} has no address, got {backend!r}; leave out the part after the colon")
    return name, address


@contextmanager
def _backend(backend: str, jobs: int) -> Iterator[None]:
    from joblib import parallel_config

    name, address = check_backend(backend)
    if name == "ray":
        _ray(address)
    with _dask(address, jobs) if name == "dask" else nullcontext(), parallel_config(backend=name, n_jobs=jobs):
        yield


def _dask(address: str, jobs: int) -> Any:
    try:
        import distributed

        client: Any = distributed.Client  # it has no types
        if address:
            return client(address, set_as_default=True)
        return client(n_workers=jobs, threads_per_worker=1, dashboard_address=None, set_as_default=True)
    except ImportError:
        raise MeshError("--backend dask needs dask.distributed; pip install 'dask[distributed]'") from None
    except (OSError, ValueError) as error:
        raise MeshError(f"cannot reach the Dask cluster {address}: {error}; check the address") from None


def _ray(address: str) -> None:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise MeshError("--backend ray needs Ray; pip install ray") from None
    ray.init(address=address or None, ignore_reinit_error=True)
    register_ray()
