"""Files: written whole or not at all, held by one process at a time, and what to do when the system refuses."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from meshnn.errors import FileError

__all__ = ["Lock", "as_path", "explained", "finite", "reason", "replacing", "write_whole"]


def reason(error: OSError, reading: bool = False) -> str:
    """Return the message of the system, with advice where it is known.

    >>> reason(OSError(errno.ENOSPC, "No space left on device"))
    'no space left on the disk; free some or choose another place'
    """
    denied = "permission denied; choose a place you may use"
    known = {
        errno.ENOENT: "there is no such file; check the path"
        if reading
        else "its directory does not exist; create it first",
        errno.ENOTDIR: "what should be its directory is a file; name another directory",
        errno.EISDIR: "it is a directory; name a file",
        errno.EACCES: denied,
        errno.EPERM: denied,
        errno.ENOSPC: "no space left on the disk; free some or choose another place",
    }
    return known.get(error.errno or 0) or error.strerror or str(error)


@contextmanager
def explained(verb: str, shown: str) -> Iterator[None]:
    """Raise refusals of the system as a `FileError`: cannot `verb` the file, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot {verb} {shown}: {reason(error, verb == 'read')}") from None


def as_path(path: Any) -> tuple[str, str]:
    """Return the path as text for the system and as text for people."""
    if not isinstance(path, (str, os.PathLike)):
        raise FileError(f"path must be a string or a Path, got {path!r}")
    text = os.fsdecode(path)
    shown = text if text.isprintable() else repr(text)
    if not text:
        raise FileError("the path is empty; name a file")
    with suppress(UnicodeEncodeError):
        if b"\0" not in os.fsencode(text):
            return text, shown
    raise FileError(f"{shown} cannot be the name of a file; name another")


def write_whole(path: str | os.PathLike[str], chunks: Iterable[Any]) -> None:
    """Write bytes one after the other: all of them, or the old file stays as it was."""
    with replacing(path) as file:
        for chunk in chunks:
            file.write(chunk)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` when the block ends, and never existed if it fails.

    A link is followed, the permissions of an existing file are kept, and the bytes are on the disk afterwards.

    Examples
    --------
    >>> import os, tempfile
    >>> from meshnn.files import replacing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(os.path.join(folder, "a.txt")) as file:
    ...         _ = file.write(b"whole")
    ...     os.listdir(folder)
    ['a.txt']
    """
    text, shown = as_path(path)
    with explained("write", shown):
        if text.endswith(os.sep):
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        target = os.path.realpath(text)
        mode = _mode_to_keep(target, shown)
        folder = os.path.dirname(target)
        temporary = os.path.join(folder, f".{secrets.token_hex(8)}.tmp")  # short: fits wherever the target's name does
        try:
            with open(temporary, "xb", opener=None if mode is None else _open_private) as file:
                if mode is not None:
                    with suppress(OSError):  # some file systems know no permissions
                        os.chmod(temporary, mode)
                yield file
                file.flush()
                os.fsync(file.fileno())  # or a power cut could leave the new name on old bytes
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        with suppress(OSError):  # not every system can do that to a directory
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _mode_to_keep(target: str, shown: str) -> int | None:
    """The permissions of the file that will be replaced; None if there is none."""
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if not stat.S_ISREG(status.st_mode):  # replacing /dev/null would be a bad surprise
        raise FileError(f"cannot write {shown}: it is a device or a pipe; name a file")
    if not os.access(target, os.W_OK):  # replacing needs no right to the file itself, but its owner meant it
        raise PermissionError(errno.EACCES, "is write-protected")
    return stat.S_IMODE(status.st_mode)


def _open_private(path: str, flags: int) -> int:
    """Nobody else may look in until the permissions are set."""
    return os.open(path, flags, 0o600)


class Lock:
    """A path that one run holds until `release`, or until its process ends, however it ends.

    What is locked is a file beside it, which is gone afterwards; one that a killed process left is no obstacle. Where
    the system knows no locks, or no file can be made, nothing is held: writing will tell.

    Parameters
    ----------
    path : path-like
        FileError if another run holds it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text, shown = as_path(path)
        folder, name = os.path.split(os.path.realpath(text))
        self._beside = os.path.join(folder, f".{name}.lock")
        self._handle: int | None = None
        with suppress(ImportError, OSError):
            import fcntl

            while self._handle is None:
                handle = os.open(self._beside, os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise FileError(
                        f"{shown} is in use by {_holder(handle)}; wait for it or name another file"
                    ) from None
                else:
                    if self._is_there(handle):  # or else its holder took it away meanwhile
                        self._handle, handle = handle, -1
                finally:
                    if handle >= 0:
                        os.close(handle)
            os.truncate(self._handle, 0)
            os.write(self._handle, str(os.getpid()).encode())

    def _is_there(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self._beside))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others have it."""
        handle, self._handle = self._handle, None
        if handle is not None:
            import fcntl

            with suppress(OSError):
                os.unlink(self._beside)  # while it is held, or it might be another's
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)  # a forked process may have the handle, too
            os.close(handle)

    def __del__(self) -> None:
        with suppress(Exception):
            self.release()


def _holder(handle: int) -> str:
    pid = os.read(handle, 20).decode(errors="replace")
    return f"process {pid}" if pid.isdigit() else "another process"


def finite(value: Any) -> Any:
    """Return a value for JSON: plain numbers, and None for those that are not finite."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if isinstance(value, float) and value - value != 0.0:
        return None
    return value
