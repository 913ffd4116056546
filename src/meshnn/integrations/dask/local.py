"""`cluster`: a Dask client for the command line, with new local processes or a running cluster."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from meshnn.errors import MeshError

__all__ = ["cluster"]


@contextmanager
def cluster(processes: int, address: str | None, scratch: Path | None = None) -> Iterator[Any]:
    """Start local worker processes, which end with the block, or connect to the scheduler at an address."""
    from distributed import Client, LocalCluster

    # errors are also raised, and the command shows them in one line
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if address is None:
        folder = None if scratch is None else str(scratch)
        with _interrupts_blocked():
            local = LocalCluster(
                n_workers=processes, threads_per_worker=1, processes=True, local_directory=folder,
                dashboard_address=":0", scheduler_kwargs={"dashboard": False}, silence_logs=logging.CRITICAL,
            )  # fmt: skip
        with local, Client(local) as client:
            yield client
        return
    try:
        found = Client(address, timeout=10)
    except (OSError, TimeoutError):
        raise MeshError(f"no scheduler of Dask answers at {address}; start one with `dask scheduler`") from None
    with found as client:
        if not client.scheduler_info(n_workers=-1)["workers"]:
            raise MeshError(f"the cluster at {address} has no worker; start workers with `dask worker {address}`")
        yield client


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block interrupts while threads and processes start, as a terminal sends Ctrl-C to all processes.

    This process receives a pending interrupt after the block and stops the others.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # when started later, it would unblock interrupts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
