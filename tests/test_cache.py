"""Compiled kernels on disk: noticed when stale or damaged, and never in the way."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from meshnn.kernels import _cache

TINY = """
from meshnn.kernels._jit import jit

@jit
def double(x):
    return 2.0 * x
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A kernel as a new process would find it, and where it is cached."""
    from numba.core import config

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("MESHNN_QUIET", raising=False)
    monkeypatch.setattr(_cache, "_said", set())
    path = tmp_path / "tiny.py"
    path.write_text(TINY)

    def load():
        spec = importlib.util.spec_from_file_location("tiny", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "tiny", module)
        spec.loader.exec_module(module)
        return module.double

    return load


def was_loaded(kernel):
    """Whether the kernel came from the cache; it must be right in any case."""
    assert kernel(3.0) == 6.0
    return sum(kernel.stats.cache_hits.values()) == 1


def files(kernel, ending):
    found = sorted(Path(kernel.stats.cache_path).glob(f"*{ending}"))
    assert found
    return found


def test_a_kernel_is_compiled_once(tiny, capsys):
    assert not was_loaded(tiny())
    assert was_loaded(tiny())
    assert capsys.readouterr().err == ""


def cut(path):
    os.truncate(path, 100)


def empty(path):
    os.truncate(path, 0)


def zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", [cut, empty, zeros, flipped])
def test_damage_is_noticed_said_and_mended(tiny, capsys, damage, ending):
    was_loaded(tiny())
    for path in files(tiny(), ending):
        damage(path)
    assert not was_loaded(tiny())
    said = capsys.readouterr().err
    assert said.startswith("meshnn: compiled kernels in ")
    assert said.endswith("compiling them again\n")
    assert said.count("\n") == 1
    assert was_loaded(tiny())


def test_damage_is_said_once(tiny, capsys):
    for _ in range(2):
        was_loaded(tiny())
        for path in files(tiny(), ".nbc"):
            cut(path)
    assert not was_loaded(tiny())
    assert capsys.readouterr().err.count("\n") == 1


def test_a_lost_file_is_compiled_again(tiny):
    was_loaded(tiny())
    for path in files(tiny(), ".nbc"):
        path.unlink()
    assert not was_loaded(tiny())
    assert was_loaded(tiny())


def test_a_full_disk_does_not_stop_work(tiny, capsys, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_cache._Files, "_write", full)
    assert not was_loaded(tiny())
    said = capsys.readouterr().err
    assert "(No space left on device): later runs compile them again\n" in said
    assert said.count("\n") == 1


def test_data_of_other_sources_are_not_taken(tiny, monkeypatch):
    """The index was written and the data were not: what lies there is of older sources."""
    was_loaded(tiny())
    (old,) = files(tiny(), ".nbc")
    kept = old.read_bytes()
    monkeypatch.setattr(_cache, "fingerprint", lambda kernel: "other")
    assert not was_loaded(tiny())
    old.write_bytes(kept)
    assert not was_loaded(tiny())


def test_a_change_in_any_source_is_noticed(tmp_path):
    package = tmp_path / "meshnn"
    shutil.copytree(_cache._KERNELS, package / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "kernels" / "deep").mkdir()
    (package / "kernels" / "deep" / "more.py").write_text("from meshnn.shapes import (\n    A,\n    kinds)\n")
    (package / "shapes").mkdir()
    for name in ("shapes/__init__.py", "shapes/kinds.py", "far.py", "unrelated.py"):
        (package / name).write_text("")
    (package / "shapes" / "kinds.py").write_text("def f():\n    import meshnn.far\n")

    def stamp():
        return _cache.fingerprint.__wrapped__(None, package / "kernels", package)

    before = stamp()
    assert stamp() == before
    found = [path.relative_to(package).as_posix() for path in _cache.sources(None, package / "kernels", package)]
    assert {"kernels/forward.py", "kernels/deep/more.py", "shapes/__init__.py", "shapes/kinds.py", "far.py"} < {*found}
    assert "unrelated.py" not in found
    for name in found:
        kept = (package / name).read_bytes()
        (package / name).write_bytes(kept + b"\n")
        assert stamp() != before, name
        (package / name).write_bytes(kept)
    (package / "kernels" / "new.py").write_text("")
    assert stamp() != before


def test_the_file_of_a_kernel_and_what_it_imports_count(tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("from meshnn.topology import reach\n")
    found = _cache.sources(kernel)
    assert kernel in found
    assert _cache._PACKAGE / "topology" / "reach.py" in found
    before = _cache.fingerprint.__wrapped__(kernel)
    kernel.write_text("from meshnn.topology import reach\n\n")
    assert _cache.fingerprint.__wrapped__(kernel) != before


def test_the_cache_of_other_sources_is_not_used(tiny, monkeypatch, capsys):
    was_loaded(tiny())
    monkeypatch.setattr(_cache, "fingerprint", lambda kernel: "other")
    assert not was_loaded(tiny())
    assert was_loaded(tiny())
    assert capsys.readouterr().err == ""


def test_the_cache_of_another_numba_is_not_used(tiny, monkeypatch, capsys):
    was_loaded(tiny())
    monkeypatch.setattr("numba.__version__", "0.0")
    assert not was_loaded(tiny())
    assert capsys.readouterr().err == ""


def test_names_within_tuples_belong_to_the_key():
    """Numba compares classes and types only: were two fields swapped, old code would take one for the other."""
    from numba import typeof

    class Inner(NamedTuple):
        a: float
        b: int

    class Outer(NamedTuple):
        first: Inner
        x: np.ndarray

    fields = _cache._fields((typeof(Outer(Inner(1.0, 2), np.zeros(2))), typeof(1)))
    assert fields == ((), ((("first", "x"), ((("a", "b"), ()),)),))


def test_kernels_use_this_cache():
    from meshnn.kernels.forward import predict_part

    assert isinstance(predict_part._cache, _cache.KernelCache)
    assert predict_part._cache._cache_file._source_stamp == _cache.fingerprint()


NESTED = """
from meshnn.kernels._jit import jit, jit_inner

@jit_inner
def innermost(x):
    return 2 * x

@jit_inner
def inner(x):
    return innermost(x) + 1

@jit
def first(x):
    return inner(x)

@jit
def second(x):
    return 10 * inner(x)
"""


def test_inner_kernels_have_no_machine_code_and_are_loaded_into_others(tmp_path, monkeypatch):
    """Saved with the first entry point, taken from the disk for the second one, in what could be another process."""
    from meshnn.kernels._compiler import InnerLibrary

    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "nested.py").write_text(NESTED)

    def module():
        spec = importlib.util.spec_from_file_location("nested", tmp_path / "nested.py")
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "nested", made)
        spec.loader.exec_module(made)
        return made

    def hits(kernel):  # an inner kernel cannot be called
        return sum(kernel.stats.cache_hits.values())

    one, other, again = module(), module(), module()
    assert one.first(3.0) == 7.0
    assert other.second(3.0) == 70.0
    assert [hits(kernel) for kernel in (one.inner, other.inner, other.second)] == [0, 1, 0]
    assert not other.innermost.overloads  # its code is in that of the other
    for kernel in (one.innermost, one.inner, other.inner):
        (result,) = kernel.overloads.values()
        assert isinstance(result.library, InnerLibrary)
        assert result.library.get_pointer_to_function(result.fndesc.llvm_func_name) == 0
    assert (again.first(4.0), again.second(4.0)) == (9.0, 90.0)
    assert [hits(kernel) for kernel in (again.first, again.second)] == [1, 1]
    assert not again.inner.overloads


@pytest.mark.slow
def test_the_command(tmp_path):
    def meshnn(*arguments):
        return subprocess.run([sys.executable, "-m", "meshnn", *arguments], capture_output=True, text=True, timeout=300,
                              check=False, env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)})  # fmt: skip

    def counted():
        found = json.loads(meshnn("cache", "--json").stdout)
        return found["folders"], found["files"], found["bytes"]

    folders, *before = counted()
    (folder,) = tmp_path.iterdir()
    assert str(folder) in folders
    for _ in range(50):  # other tests may compile meanwhile, into folders that count, too: then look again
        (folder / f"{_cache.PREFIX}x.nbi").write_bytes(b"12")
        _, *after = counted()
        (folder / f"{_cache.PREFIX}x.nbi").unlink()
        _, *again = counted()
        if again == before:
            break
        before = again
    assert after == [before[0] + 1, before[1] + 2]
    assert str(folder) in meshnn("cache").stdout.splitlines()


def test_clearing_deletes_only_our_files(tmp_path, monkeypatch):
    from numba.core import caching, config

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    for kind in (caching.InTreeCacheLocator, caching.UserWideCacheLocator):  # those of other tests stay
        monkeypatch.setattr(kind, "get_cache_path", lambda self: str(tmp_path / "none"))
    folder = _cache.folder_in_use()
    for name in ("meshnn-x.nbi", "meshnn-x.1.nbc", "meshnn-x.1.nbc.tmp.ab", "other.nbi", "meshnn-notes.txt"):
        (folder / name).write_bytes(b"12")
    _cache.clear_cache()
    assert sorted(path.name for path in folder.iterdir()) == ["meshnn-notes.txt", "other.nbi"]
    assert _cache.cached_files() == []
