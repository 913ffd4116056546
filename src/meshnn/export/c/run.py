"""`CNet` and `CLearner`: exported headers that are compiled and run on this computer, for tests."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError
from meshnn.export.blueprint import ExportError
from meshnn.export.c.text import render

#: Flags with which headers must compile without warnings.
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror")


class CompilerError(MeshError):
    """Raised when there is no C compiler, or when it reports an error in a header."""


class _Compiled:
    """A header compiled together with `run.c.j2`, whose functions loop over samples."""

    learns = False

    def __init__(
        self, path: str | PathLike[str], *, compiler: str | None = None, flags: tuple[str, ...] | list[str] = FLAGS
    ) -> None:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CompilerError(f"{path} cannot be read ({error}); pass a header that to_c wrote") from None
        mark = " * interface: "
        found = next((line for line in text.splitlines() if line.startswith(mark)), None)
        if found is None:
            raise CompilerError(f"{path} was not written by to_c: no line begins with {mark!r}")
        self.interface: dict[str, Any] = json.loads(found.removeprefix(mark))
        if self.learns != (self.interface["struct"] == "learner"):
            what = "does not learn; CNet" if self.learns else "learns; CLearner"
            raise CompilerError(f"{path} {what} runs such a header")
        self.n_inputs, self.n_outputs = int(self.interface["given"]), int(self.interface["outputs"])
        self._library = _compiled(text, render("run.c.j2", **self.interface), compiler, flags)
        self._memory: Any = None
        if self.interface["struct"]:
            self._library.cnet_size.restype = ctypes.c_long
            self._memory = ctypes.create_string_buffer(self._library.cnet_size())
            self._library.cnet_init(self._memory)


def _compiled(header: str, wrapper: str, compiler: str | None, flags: Iterable[str]) -> Any:
    names = [compiler] if compiler else [name for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name]
    tool = next((found for name in names if (found := shutil.which(name))), None)
    if tool is None:
        raise CompilerError(f"there is no C compiler ({', '.join(names)}); install gcc, or set CC")
    with tempfile.TemporaryDirectory(prefix="meshnn-c-") as folder:
        source, library = Path(folder) / "net.c", Path(folder) / "net.so"
        (Path(folder) / "net.h").write_text(header, encoding="utf-8")
        source.write_text('#include "net.h"\n' + wrapper, encoding="utf-8")
        call = [tool, *flags, "-shared", "-fPIC", "-o", str(library), str(source)]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompilerError(f"{tool} cannot compile the header:\n{done.stderr[-2000:]}")
        return ctypes.CDLL(str(library))


def _samples(X: Any, width: int, dtype: Any = np.float32) -> Array:
    """Return samples as a contiguous array for C."""
    found = np.asarray(X)
    if found.ndim != 2 or found.shape[1] != width:
        raise DataError(f"X must have shape (n, {width}), got {found.shape}")
    return np.ascontiguousarray(found, dtype)


def _pointer(array: Array | None) -> Any:
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def _dtype(kind: str) -> np.dtype[Any]:
    """Return the dtype of a C type."""
    return np.dtype({"float": "float32", "int": "int32"}.get(kind, kind.removesuffix("_t")))


class CNet(_Compiled):
    """A header that `to_c` wrote, compiled and run on this computer.

    Parameters
    ----------
    path : path of the header
    compiler : str, optional
        Default: the environment variable CC, else cc, gcc or clang.
    flags : sequence of str
        Flags for the compiler.

    Attributes
    ----------
    n_inputs, n_outputs : int
        For a table with text columns, `n_inputs` is the number of columns, and text is given by category number.

    Examples
    --------
    >>> import tempfile, os
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.export import CNet
    >>> mesh = Mesh(Topology.layered([2, 3, 1]), random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "net.h")
    ...     report = mesh.to_c(path)
    ...     net = CNet(path)
    >>> abs(float(net.outputs([[1.0, 2.0]])[0, 0] - mesh.forward([[1.0, 2.0]])[0, 0])) < 1e-6
    True
    """

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of the features of the header."""
        return _dtype(self.interface["functions"]["outputs"]["x"])

    def outputs(self, X: Any) -> Array:
        """Return the raw outputs `(n, n_outputs)` of the net; for a stateful net, after each step."""
        return self._called("outputs", X)

    def predict(self, X: Any) -> Array:
        """Return the class numbers `(n,)`, the labels `(n, n_labels)` or the values.

        A stateful net continues from its last step; `reset` resets it.
        """
        return self._called("predict", X)

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities `(n, n_classes)`."""
        return self._called("probabilities", X)

    def quantise(self, X: Any) -> Array:
        """Return features, or columns of a table, as integers for an integer net."""
        return self._called("quantise", X)

    def reset(self) -> None:
        """Reset the state of a stateful net."""
        if self._memory is not None:
            self._library.cnet_init(self._memory)

    def _called(self, name: str, X: Any) -> Array:
        """Call a function of the header for each sample."""
        functions = self.interface["functions"]
        if name not in functions:
            raise ExportError(f"this header has no function {name}, only {', '.join(functions)}")
        f, found = functions[name], np.asarray(X)
        if (kind := _dtype(f["x"])).kind in "iu":
            limits = np.iinfo(kind)
            if not np.array_equal(found, np.rint(found)) or (found < limits.min).any() or (found > limits.max).any():
                how = "net.quantise(X) converts them" if "quantise" in functions else "see the comment in the header"
                raise DataError(f"this header needs integers from {limits.min} to {limits.max}; {how}")
        samples = _samples(found, f["width"], kind)
        out = np.empty((len(samples), f["count"]), _dtype(f["y"]))
        memory = [self._memory] if f["steps"] else []
        getattr(self._library, f"cnet_{name}")(*memory, _pointer(samples), _pointer(out), ctypes.c_long(len(out)))
        return out[:, 0] if f["returns"] else out


class CLearner(_Compiled):
    """A header with a learner that is compiled and run on this computer.

    Parameters
    ----------
    path : path of the header
    compiler, flags
        As for `CNet`.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.export import CLearner
    >>> stream = Mesh(Topology.mesh(1, 2, 1), activation="tanh", random_state=0).stream(portable=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stream.to_c(os.path.join(folder, "net.h"))
    ...     learner = CLearner(os.path.join(folder, "net.h"))
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> np.array_equal(learner.run(X, X**2), stream.run(X, X**2))  # the same bits
    True
    """

    learns = True

    @property
    def ram_bytes(self) -> int:
        """Return the bytes of the learner's struct on this computer."""
        return len(self._memory)

    def run(self, X: Any, Y: Any = None) -> Array:
        """Return the outputs `(T, n_outputs)` of samples `(T, n_inputs)`, each before its target is learned.

        Targets have shape `(T, n_targets)`; without them nothing is learned.
        """
        samples, width, targets = _samples(X, self.n_inputs), self.interface["targets"], None
        out = np.empty((len(samples), self.n_outputs), np.float32)
        if Y is not None:
            targets = np.ascontiguousarray(np.asarray(Y, np.float32).reshape(len(samples), -1))
            if targets.shape[1] != width:
                raise DataError(f"Y must have shape ({len(samples)}, {width}), got {np.shape(Y)}")
        pointers = [_pointer(array) for array in (samples, targets, out)]
        self._library.cnet_run(self._memory, *pointers, ctypes.c_long(len(samples)))
        return out

    def reset(self) -> None:
        """Reset the state; the parameters are kept."""
        self._library.cnet_reset(self._memory)

    def restore(self, content: bytes) -> int:
        """Restore the bytes that `net_save` wrote; return 0, or the error number defined in the header."""
        return int(self._library.cnet_restore(self._memory, content, ctypes.c_uint32(len(content))))

    def counts(self) -> list[int]:
        """Return the numbers of samples, updates, skipped updates and states set to 0."""
        clock = np.frombuffer(self._memory, np.uint32)[-4:]  # the last field of the struct
        return [int(count) for count in clock]

    def save(self, everything: bool = False) -> bytes:
        """Return the bytes that `net_save` writes: parameters and scaling, or the whole state; for `meshnn import`."""
        buffer = ctypes.create_string_buffer(int(self.interface["saved"]))
        size = int(self._library.cnet_save(self._memory, buffer, ctypes.c_int(bool(everything))))
        return buffer.raw[:size]
