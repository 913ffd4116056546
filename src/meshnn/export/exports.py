"""`Exports`: the methods `to_c` and `to_onnx` of every trained model."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from meshnn.export.blueprint import Blueprint, ExportError

if TYPE_CHECKING:
    from meshnn.arrays import Array
    from meshnn.export.c.nets import IntegerNet
    from meshnn.export.c.quantise import Quantiser
    from meshnn.export.c.writer import CReport


class Exports:
    """A model that can be exported."""

    def blueprint(self) -> Blueprint:
        """Return what it computes as plain values and arrays, which exports are written from."""
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
            Prefix of all names in the header; else the name of the file.
        X : array_like (n_samples, n_features), optional
            Training samples, on which integer nets choose their scales; without them the ranges that a fitted model
            keeps of its training rows are used, and a model without ranges is refused. Of a net in time, the steps of
            a sequence.
        y : array_like, optional
            True answers for X; report and header then state the accuracy on them, in floats and in whole numbers.
        tune : bool
            Whether the weights of integer nets are fine-tuned with quantisation in the loop, if there are samples; kept
            if it brings the outputs nearer to those of the net in floats.
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
        from meshnn.export.c.writer import write_c

        options: dict[str, Any] = {"dtype": dtype, "optimize": optimize, "name": name, "tune": tune, "learn": learn}
        return write_c(self, path, X=X, y=y, **options)

    def _encoded_samples(self, X: Any) -> Any:
        """Return samples as the features that the net was trained on."""
        return X

    def _learner(self) -> Any:
        """Return a portable stream that goes on learning."""
        raise ExportError(
            f"a {type(self).__name__} does not learn from a stream, so there is no learner to write; learn=True is for "
            "meshes, classifiers and regressors"
        )

    def _tuned(self, quantiser: Quantiser, net: IntegerNet, X: Array) -> IntegerNet:
        """Return a better integer net, if fine-tuning finds one."""
        return net

    def to_onnx(self, path: str | PathLike[str] | None = None, **options: Any) -> Any:
        """Return it as an ONNX model, written to a file if there is a path; see `meshnn.export.onnx.to_onnx`."""
        from meshnn.export.onnx import to_onnx

        return to_onnx(self.blueprint(), path, **options)
