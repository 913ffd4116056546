"""`Exports`: what every trained model has, so that it can leave Python."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from meshnn.export.blueprint import Blueprint, ExportError

if TYPE_CHECKING:
    from meshnn.arrays import Array
    from meshnn.export.c import CReport
    from meshnn.export.integer import IntegerNet
    from meshnn.export.quantise import Quantiser

__all__ = ["Exports"]


class Exports:
    """Models that can say what they compute."""

    def blueprint(self) -> Blueprint:
        """What it computes, as plain values and arrays: what exports are written from."""
        raise NotImplementedError

    def to_c(
        self,
        path: str | PathLike[str],
        *,
        dtype: str = "float32",
        optimize: str = "size",
        name: str | None = None,
        X: Any = None,
        y: Any = None,
        tune: bool = True,
        learn: bool = False,
    ) -> CReport:
        """Write it as one C99 header that needs no library, see docs/c.md.

        Parameters
        ----------
        path : path of the header
        dtype : "float32", "int8" or "int16"
            Of weights and states.
        optimize : "size" or "speed"
            Tables and loops, or code without loops.
        name : str, optional
            What all names in the header begin with; else the name of the file.
        X : array_like (n_samples, n_features), optional
            Training samples, on which integer nets choose their scales; without them features are taken to be normal.
            Of a net in time, the steps of a sequence.
        y : array_like, optional
            True answers for X; report and header then say how good the net is on them, in floats and in whole numbers.
        tune : bool
            Whether weights of integer nets learn once more, through their rounding; kept if it brings the outputs
            nearer to those of the net in floats.
        learn : bool
            Whether the net goes on learning in C, see docs/c-learning.md; in float32.

        Returns
        -------
        CReport
            Sizes; print it.

        Examples
        --------
        >>> import os, tempfile
        >>> from sklearn.datasets import load_iris
        >>> from meshnn import MeshClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = MeshClassifier(hidden=3, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = model.to_c(os.path.join(folder, "iris.h"), dtype="int8", X=X, y=y)
        >>> report.dtype, report.table_bytes < 300
        ('int8', True)
        """
        from meshnn.export.writing import write_c

        return write_c(self, path, dtype, optimize, name, X, y, tune, learn)

    def _learner(self) -> Any:
        """What goes on learning, as a portable stream."""
        raise ExportError(
            f"a {type(self).__name__} does not learn from a stream, so there is no learner to write; learn=True is for "
            "meshes, classifiers and regressors"
        )

    def _tuned(self, quantiser: Quantiser, net: IntegerNet, X: Array) -> IntegerNet:
        """A better integer net, if one can be learned."""
        return net

    def to_onnx(self, path: str | PathLike[str] | None = None, **options: Any) -> Any:
        """As a model of ONNX, written to a file if there is a path; see `meshnn.export.onnx.to_onnx`."""
        from meshnn.export.onnx import to_onnx

        return to_onnx(self.blueprint(), path, **options)
