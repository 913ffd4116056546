"""Atomic writing of files, locks between processes, and error messages with advice."""

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
    """Return the message of the operating system, with advice for common errors.

    >>> reason(OSError(errno.ENOSPC, "No space left on device"))
    'no space left on the disk; free some space or choose another path'
    """
    denied = "permission denied; choose a path that you may access"
    known = {
        errno.ENOENT: "the file does not exist; check the path"
        if reading
        else "its directory does not exist; create it first",
        errno.ENOTDIR: "a part of its path is a file, not a directory; choose another path",
        errno.EISDIR: "it is a directory; pass the path of a file",
        errno.EACCES: denied,
        errno.EPERM: denied,
        errno.ENOSPC: "no space left on the disk; free some space or choose another path",
    }
    return known.get(error.errno or 0) or error.strerror or str(error)


@contextmanager
def explained(verb: str, shown: str) -> Iterator[None]:
    """Raise an `OSError` as a `FileError` that states what failed (`verb`), why, and how to fix it."""
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot {verb} {shown}: {reason(error, verb == 'read')}") from None


def as_path(path: Any) -> tuple[str, str]:
    """Return the path as text for the operating system and as printable text for messages."""
    if not isinstance(path, (str, os.PathLike)):
        raise FileError(f"path must be a string or a Path, got {path!r}")
    text = os.fsdecode(path)
    shown = text if text.isprintable() else repr(text)
    if not text:
        raise FileError("the path is empty; pass the path of a file")
    with suppress(UnicodeEncodeError):
        if b"\0" not in os.fsencode(text):
            return text, shown
    raise FileError(f"{shown} is not a valid file name; choose another name")


def write_whole(path: str | os.PathLike[str], chunks: Iterable[Any]) -> None:
    """Write chunks of bytes to a file; if writing fails, the old file is unchanged."""
    with replacing(path) as file:
        for chunk in chunks:
            file.write(chunk)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a new file that replaces `path` when the block ends and is deleted if the block fails.

    Links are followed, the permissions of an existing file are kept, and the bytes are synchronised to the disk.

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
        temporary = os.path.join(
            folder, f".{secrets.token_hex(8)}.tmp"
        )  # short, in case the file system limits the length of names
        try:
            with open(temporary, "xb", opener=None if mode is None else _open_private) as file:
                if mode is not None:
                    with suppress(OSError):  # some file systems have no permissions
                        os.chmod(temporary, mode)
                yield file
                file.flush()
                os.fsync(file.fileno())  # otherwise a power failure could leave a file without its bytes
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        with suppress(OSError):  # not every operating system can synchronise a directory
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _mode_to_keep(target: str, shown: str) -> int | None:
    """Return the permissions of the file that will be replaced, or None if there is no such file."""
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if not stat.S_ISREG(status.st_mode):  # do not replace /dev/null by a file
        raise FileError(f"cannot write {shown}: it is a device or a pipe; pass the path of a file")
    if not os.access(target, os.W_OK):  # renaming would succeed, but the file is write-protected on purpose
        raise PermissionError(errno.EACCES, "is write-protected")
    return stat.S_IMODE(status.st_mode)


def _open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read, until its permissions are set."""
    return os.open(path, flags, 0o600)


class Lock:
    """A lock on a path, held until `release` or until the process ends.

    It locks a file beside the path and deletes it afterwards. The lock file of a killed process does not block others.
    Where the operating system has no file locks, or the lock file cannot be created, nothing is locked.

    Parameters
    ----------
    path : path-like
        Path to lock.

    Raises
    ------
    FileError
        If another process holds the lock.
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
                        f"{shown} is in use by {_holder(handle)}; wait until it finishes or pass another path"
                    ) from None
                else:
                    if self._is_there(handle):  # false if its holder deleted it in the meantime
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
        """Release the lock."""
        handle, self._handle = self._handle, None
        if handle is not None:
            import fcntl

            with suppress(OSError):
                os.unlink(self._beside)  # before unlocking: afterwards it may belong to another process
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)  # explicit, because a forked process may share the handle
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
