"""`CNet`: a header that was exported, compiled by the C compiler of this computer and run, to test it from Python."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import DataError, MeshError
from meshnn.export.blueprint import ExportError

__all__ = ["CLearner", "CNet", "CompilerError"]

#: What headers are promised to compile with; a warning is an error.
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror")
_TYPES = {
    "float": "float32",
    "int8_t": "int8",
    "uint8_t": "uint8",
    "int16_t": "int16",
    "int32_t": "int32",
    "int": "int32",
}


class CompilerError(MeshError):
    """There is no C compiler, or it refuses a header."""


class CNet:
    """A header that `to_c` wrote, compiled and run on this computer.

    Parameters
    ----------
    path : path of the header
    compiler : str, optional
        Else that in the environment variable CC, or cc, gcc or clang.
    flags : sequence of str
        For the compiler.

    Attributes
    ----------
    n_inputs, n_outputs : int
    dtype : numpy.dtype
        Of the features that the header takes.

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

    def __init__(
        self, path: str | PathLike[str], *, compiler: str | None = None, flags: tuple[str, ...] | list[str] = FLAGS
    ) -> None:
        path = Path(path)
        text = _text_of(path, "CNet takes a header that to_c wrote")
        found = re.search(r"static inline void (\w+_)outputs\((.*?), (float|int32_t) y\[(\d+)\]\) \{", text)
        size = re.search(r"#define \w+_INPUTS (\d+)", text)
        if found is None or size is None:
            if re.search(r"^} \w+_learner;$", text, re.MULTILINE):
                raise CompilerError(f"{path} is a header that learns; CLearner runs it")
            raise CompilerError(f"{path} is no header that to_c wrote: it has no function that ends in _outputs")
        self.prefix, first, kind, outputs = found.groups()
        self.timed = first.startswith("const " + self.prefix + "state")
        self.n_inputs, self.n_outputs = int(size[1]), int(outputs)
        taken = re.search(rf"{self.prefix}(?:step\(\w+ \*m|outputs\()(?:, )?const (\w+) x\[", text)
        assert taken is not None
        self._x, self._y = taken[1], kind
        self.dtype = np.dtype(_TYPES[self._x])
        self._answer = re.search(rf"static inline (\w+) {self.prefix}predict\(.*?(?:, (\w+) (\w+)\[\d+\])?\) \{{", text)
        shares = re.search(rf"void {self.prefix}probabilities\(.*?, float out\[(\d+)\]\)", text)
        self.n_classes = None if shares is None else int(shares[1])
        self._quantises = f"{self.prefix}quantise(" in text
        self._library = _compiled(text, self._wrapper(), compiler, tuple(flags))
        self._state: Any = None
        if self.timed:
            size_of = self._library.cnet_size
            size_of.restype = ctypes.c_long
            self._state = ctypes.create_string_buffer(size_of())
            self.reset()

    def outputs(self, X: Any) -> Array:
        """Outputs `(n, n_outputs)` of the net, before anything is made of them; of a net in time after each step."""
        return self._called("outputs", X, self.n_outputs, _TYPES[self._y])

    def predict(self, X: Any) -> Array:
        """The numbers of classes `(n,)`, the labels `(n, n_labels)` or the values, as the header gives them.

        A net in time goes on from where it was; `reset` begins anew.
        """
        if self._answer is None:
            raise ExportError("this header has no function that predicts; outputs(X) has what the net gives")
        returns, kind, _ = self._answer.groups()
        if kind is None:
            return self._called("predict", X, 1, _TYPES[returns])[:, 0]
        return self._called("predict", X, self.n_outputs, _TYPES[kind])

    def predict_proba(self, X: Any) -> Array:
        """Probabilities `(n, n_classes)`."""
        if self.n_classes is None:
            raise ExportError("this header gives no probabilities")
        return self._called("probabilities", X, self.n_classes, "float32")

    def quantise(self, X: Any) -> Array:
        """Features as an integer net takes them."""
        if not self._quantises:
            raise ExportError("this header takes features as they are; there is nothing to quantise")
        return self._called("quantise", X, self.n_inputs, self.dtype.name, np.dtype(np.float32))

    def reset(self) -> None:
        """A net in time forgets its steps."""
        if self.timed:
            self._library.cnet_init(self._state)

    def _called(self, what: str, X: Any, width: int, dtype: str, given: np.dtype[Any] | None = None) -> Array:
        given = self.dtype if given is None else given
        found = np.asarray(X)
        if found.ndim != 2 or found.shape[1] != self.n_inputs:
            raise DataError(f"X must have shape (n, {self.n_inputs}), got {found.shape}")
        if given.kind in "iu":
            limits = np.iinfo(given)
            if not np.array_equal(found, np.rint(found)) or (found < limits.min).any() or (found > limits.max).any():
                how = "net.quantise(X) makes them" if self._quantises else "see the comment in the header"
                raise DataError(f"this header takes whole numbers from {limits.min} to {limits.max}; {how}")
        samples = np.ascontiguousarray(found, given)
        out = np.empty((len(samples), width), dtype)
        state = [self._state] if self.timed and what != "quantise" else []
        getattr(self._library, f"cnet_{what}")(
            *state,
            samples.ctypes.data_as(ctypes.c_void_p),
            out.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_long(len(out)),
        )
        return out

    # -- C -----------------------------------------------------------------------------------------------------------

    def _wrapper(self) -> str:
        """Functions over many samples, so that Python calls once."""
        p, n = self.prefix, self.n_inputs
        text = (
            "long cnet_size(void);\nlong cnet_size(void) { return (long)sizeof(" + f"{p}state" + "); }\n"
            if self.timed
            else ""
        )
        if self.timed:
            text += f"void cnet_init(void *m);\nvoid cnet_init(void *m) {{ {p}init(({p}state *)m); }}\n"
        text += self._entry("outputs", f"{p}outputs(%s, y + k * {self.n_outputs})", self._y)
        if self._answer is not None:
            returns, kind, _ = self._answer.groups()
            call = f"y[k] = {p}predict(%s)" if kind is None else f"{p}predict(%s, y + k * {self.n_outputs})"
            text += self._entry("predict", call, returns if kind is None else kind)
        if self.n_classes is not None:
            text += self._entry("probabilities", f"{p}probabilities(%s, y + k * {self.n_classes})", "float")
        if self._quantises:
            head = f"void cnet_quantise(const float *x, {self._x} *y, long n)"
            text += f"{head};\n{head} {{\n    long k;\n"
            text += f"    for (k = 0; k < n; k++) {p}quantise(x + k * {n}, y + k * {n});\n}}\n"
        return text

    def _entry(self, name: str, call: str, kind: str) -> str:
        p, n = self.prefix, self.n_inputs
        state = "void *m, " if self.timed else ""
        head = f"void cnet_{name}({state}const {self._x} *x, {kind} *y, long n)"
        body = f"{call % f'x + k * {n}'};"
        if self.timed:
            body = f"{p}step(({p}state *)m, x + k * {n}); {call % f'(const {p}state *)m'};"
        return f"{head};\n{head} {{\n    long k;\n    for (k = 0; k < n; k++) {{ {body} }}\n}}\n"


def _text_of(path: Path, wanted: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CompilerError(f"{path} cannot be read ({error}); {wanted}") from None


def _compiled(header: str, wrapper: str, compiler: str | None, flags: tuple[str, ...]) -> Any:
    names = [compiler] if compiler else [name for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name]
    tool = next((found for name in names if (found := shutil.which(name))), None)
    if tool is None:
        raise CompilerError(f"there is no C compiler ({', '.join(map(str, names))}); install gcc, or set CC")
    with tempfile.TemporaryDirectory(prefix="meshnn-c-") as folder:
        (Path(folder) / "net.h").write_text(header, encoding="utf-8")
        (Path(folder) / "net.c").write_text('#include "net.h"\n' + wrapper, encoding="utf-8")
        library = Path(folder) / "net.so"
        call = [tool, *flags, "-shared", "-fPIC", "-o", str(library), str(Path(folder) / "net.c")]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompilerError(f"{tool} refuses the header:\n{done.stderr[-2000:]}")
        return ctypes.CDLL(str(library))


class CLearner:
    """A header with a learner, compiled and run on this computer: to test it from Python.

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

    def __init__(
        self, path: str | PathLike[str], *, compiler: str | None = None, flags: tuple[str, ...] | list[str] = FLAGS
    ) -> None:
        path = Path(path)
        text = _text_of(path, "CLearner takes a header of a learner")
        found = re.search(r"static inline void (\w+_)learn\(", text)
        if found is None:
            raise CompilerError(f"{path} is no header of a learner: it has no function that ends in _learn")
        p, up = found[1], found[1].upper()
        sizes = {
            name: re.search(rf"#define {up}{name} (\d+)u", text)
            for name in ("INPUTS", "OUTPUTS", "TARGETS", "SAVED_ALL")
        }
        self.n_inputs, self.n_outputs, self.n_targets, self._saved = (int(size[1]) for size in sizes.values() if size)
        self._library = _compiled(text, _LEARNER.replace("@", p).replace("~", up), compiler, tuple(flags))
        self._library.cnet_size.restype = ctypes.c_long
        self._library.cnet_save.restype = ctypes.c_long
        self._state = ctypes.create_string_buffer(self._library.cnet_size())
        self._library.cnet_init(self._state)

    @property
    def ram_bytes(self) -> int:
        """Of the struct of a learner, on this computer."""
        return len(self._state)

    def run(self, X: Any, Y: Any = None) -> Array:
        """Outputs `(T, n_outputs)` for samples `(T, n_inputs)`, each before its target `(T, n_targets)` is learned."""
        samples = np.ascontiguousarray(X, np.float32)
        if samples.ndim != 2 or samples.shape[1] != self.n_inputs:
            raise DataError(f"X must have shape (n, {self.n_inputs}), got {samples.shape}")
        out = np.empty((len(samples), self.n_outputs), np.float32)
        pointers = [samples.ctypes.data_as(ctypes.c_void_p), None, out.ctypes.data_as(ctypes.c_void_p)]
        if Y is not None:
            targets = np.ascontiguousarray(np.asarray(Y, np.float32).reshape(len(samples), -1))
            if targets.shape[1] != self.n_targets:
                raise DataError(f"Y must have shape ({len(samples)}, {self.n_targets}), got {np.shape(Y)}")
            pointers[1] = targets.ctypes.data_as(ctypes.c_void_p)
        self._library.cnet_run(self._state, *pointers, ctypes.c_long(len(samples)))
        return out

    def save(self, everything: bool = False) -> bytes:
        """What `net_save` writes: parameters and scaling, or all that it remembers; for `meshnn import`."""
        room = ctypes.create_string_buffer(self._saved)
        size = self._library.cnet_save(self._state, room, ctypes.c_int(bool(everything)))
        return room.raw[:size]


_LEARNER = """
long cnet_size(void);
long cnet_size(void) { return (long)sizeof(@learner); }
void cnet_init(void *l);
void cnet_init(void *l) { @init((@learner *)l); }
long cnet_save(const void *l, void *bytes, int all);
long cnet_save(const void *l, void *bytes, int all) {
    return (long)@save((const @learner *)l, (uint8_t *)bytes, all);
}
void cnet_run(void *l, const float *x, const float *target, float *y, long n);
void cnet_run(void *l, const float *x, const float *target, float *y, long n) {
    long k;
    for (k = 0; k < n; k++) {
        @step((@learner *)l, x + k * (long)~INPUTS, y + k * (long)~OUTPUTS);
        if (target) @learn((@learner *)l, target + k * (long)~TARGETS);
    }
}
"""
