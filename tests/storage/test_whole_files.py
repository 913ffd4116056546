"""Files are replaced atomically, and a failed save keeps the old file."""

import errno
import os
import stat
import subprocess
import sys

import pytest

from meshnn.errors import FileError
from meshnn.files import write_whole


@pytest.fixture
def path(tmp_path):
    """Write an old file, alone in its directory."""
    path = tmp_path / "net.mesh"
    path.write_bytes(b"old")
    return path


@pytest.mark.parametrize("place", ["none/f.mesh", "net.mesh/f.mesh", ".", "new/", "x" * 256, "loop", "pipe"])
def test_places_that_cannot_be_written(path, place):
    (path.parent / "loop").symlink_to("loop")
    os.mkfifo(path.parent / "pipe")
    before = sorted(os.listdir(path.parent))
    with pytest.raises(FileError, match="cannot write"):
        write_whole(f"{path.parent}/{place}", [])
    assert sorted(os.listdir(path.parent)) == before
    assert stat.S_ISFIFO(os.stat(path.parent / "pipe").st_mode)


def test_a_write_protected_file_is_left_alone(path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root can write to all files
    with pytest.raises(FileError, match="permission denied"):
        write_whole(path, [])
    assert path.read_bytes() == b"old"


# All or nothing


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_failed_save_leaves_the_old_file(path, monkeypatch, function, error):
    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        for target in (path, path.with_name("new.mesh")):
            with pytest.raises((FileError, KeyboardInterrupt)) as caught:
                write_whole(target, [])
            assert isinstance(error, KeyboardInterrupt) or "no space left on the disk; free some" in str(caught.value)
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_data_are_synced_before_the_rename(path, monkeypatch):
    """Order for safety against power cuts: sync the file, rename it, sync the directory."""
    calls = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(handle):
        status = os.fstat(handle)
        calls.append("directory" if stat.S_ISDIR(status.st_mode) else f"file of {status.st_size}")
        real_fsync(handle)

    def replace(source, target):
        assert os.path.dirname(source) == os.path.dirname(target) == str(path.parent)
        assert os.path.basename(source).startswith(".")
        assert source.endswith(".tmp")
        calls.append("name")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_whole(path, [b"abc", b"de"])
    assert calls == ["file of 5", "name", "directory"]


WRITER = """
import sys
from meshnn.files import write_whole
for k in range(10**9):
    write_whole(sys.argv[1], [str(k).zfill(8).encode()] * 100_000)
    print(k, flush=True)
"""


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    """Processes are killed at random moments; two writers at a time must not affect each other."""
    path = tmp_path / "f.mesh"
    for _ in range(4):
        command = [sys.executable, "-c", WRITER, str(path)]
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
        for writer in writers:
            writer.stdout.readline()
        for writer in writers:
            writer.kill()
            writer.communicate()
        content = path.read_bytes()
        assert content == content[:8] * 100_000


# Permissions and links


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_new_file_has_the_usual_permissions(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "f.mesh", [])
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "f.mesh").st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o755])
def test_an_old_file_keeps_its_permissions(path, monkeypatch, mode):
    os.chmod(path, mode)
    real, seen = os.chmod, []

    def chmod(place, mode):
        seen.append(stat.S_IMODE(os.stat(place).st_mode))
        real(place, mode)

    monkeypatch.setattr(os, "chmod", chmod)
    write_whole(path, [])
    assert stat.S_IMODE(os.stat(path).st_mode) == mode
    assert seen == [0o600]  # never readable for more users than before


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link(tmp_path, exists):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "f.mesh", tmp_path / "link.mesh"
    link.symlink_to("there/f.mesh")
    if exists:
        write_whole(target, [])
    write_whole(link, [b"new"])
    assert link.is_symlink()
    assert not target.is_symlink()
    assert target.read_bytes() == b"new"
    assert os.listdir(target.parent) == ["f.mesh"]
