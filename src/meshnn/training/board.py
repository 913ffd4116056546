"""`Board`: letters between processes of one machine, through memory that they share.

A letter of 80 kB takes gloo a millisecond and Dask's connections two; a step of a small net takes less. Each process
has a board of its own, on which it alone writes: a number that says how many letters it has put up, then the last two.
Nobody can be more than one letter ahead of another, so that two places are enough.
"""

from __future__ import annotations

import mmap
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from meshnn.arrays import FloatArray

__all__ = ["Board", "is_alive", "this_machine"]

FOLDER = Path("/dev/shm")
#: Bytes before the letters; seconds of looking without sleep, and of sleep between two looks afterwards.
HEAD, BUSY, NAP = 64, 3e-4, 5e-5
#: Seconds between two looks whether to give up.
LOOK = 0.05


def this_machine() -> str:
    """A word that is the same for processes that share memory; "" where boards cannot be.

    What is written must be seen in the order in which it was written, which x86 promises.
    """
    with suppress(OSError):
        if platform.machine() in ("x86_64", "AMD64") and os.access(FOLDER, os.W_OK):
            status = FOLDER.stat()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            return f"{boot}-{status.st_dev}-{status.st_ino}"
    return ""


def is_alive(pid: int) -> bool:
    """Whether a process of this machine is there, and not only waits to be counted as dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


class Board:
    """The boards of a crew, as one of them sees them.

    Parameters
    ----------
    session : str
        That of these processes only.
    rank : int
    sizes : list of int
        Numbers of the letters of each.
    give_up : callable
        Raises if there is nobody to wait for any more; asked now and then, with who is waited for and for how long.
    """

    def __init__(self, session: str, rank: int, sizes: list[int], give_up: Callable[[int, float], None]) -> None:
        self.rank, self.sizes, self.give_up, self.round = rank, sizes, give_up, 0
        self._paths = [FOLDER / f"meshnn-{session}-{k}" for k in range(len(sizes))]
        own = self._paths[rank]
        with own.with_suffix(".new").open("wb") as file:
            file.truncate(HEAD + 16 * sizes[rank])
        own.with_suffix(".new").rename(own)  # there at once, in its full length
        try:
            # before the first letter: whoever has the first letters of all knows that all have seen this board
            self._maps = [self._found(k) for k in range(len(sizes))]
        except BaseException:
            self.close()
            raise

    def _found(self, k: int) -> mmap.mmap:
        """The board of another, once it is there."""
        begun = time.perf_counter()
        look = begun + LOOK
        while not self._paths[k].exists():
            time.sleep(NAP)
            if (now := time.perf_counter()) > look:
                self.give_up(k, now - begun)
                look = now + LOOK
        with self._paths[k].open("r+b") as file:
            return mmap.mmap(file.fileno(), HEAD + 16 * self.sizes[k])

    def swap(self, letter: FloatArray) -> list[FloatArray]:
        """Put a letter up for all; those of all."""
        own, place = self._maps[self.rank], self.round & 1
        view = np.frombuffer(own, np.float64, self.sizes[self.rank], HEAD + 8 * place * self.sizes[self.rank])
        view[:] = letter.ravel()
        np.frombuffer(own, np.int64, 1)[0] = self.round + 1
        found = []
        for k, size in enumerate(self.sizes):
            board = self._maps[k]
            self._wait(board, k)
            found.append(np.frombuffer(board, np.float64, size, HEAD + 8 * place * size).copy())
        self.round += 1
        if self.round == 1:
            self._paths[self.rank].unlink(
                missing_ok=True
            )  # a file without a name is gone with the last process, however it ends
        return found

    def _wait(self, board: mmap.mmap, k: int) -> None:
        count = np.frombuffer(board, np.int64, 1)
        begun = now = time.perf_counter()
        look = begun + LOOK
        while count[0] <= self.round:
            if now - begun > BUSY:
                time.sleep(NAP)
            if now > look:
                self.give_up(k, now - begun)
                look = now + LOOK
            now = time.perf_counter()

    def close(self) -> None:
        """No more letters. If there was none, somebody is gone, who may have left a board behind."""
        for path in self._paths if self.round == 0 else []:
            path.unlink(missing_ok=True)
