"""`Exports`: what every trained model has, so that it can leave Python."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from meshnn.export.recipe import Recipe

if TYPE_CHECKING:
    from meshnn.export.c import CReport

__all__ = ["Exports"]


class Exports:
    """Models that can say what they compute."""

    def recipe(self) -> Recipe:
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

        Returns
        -------
        CReport
            Sizes; print it.
        """
        from meshnn.arguments import known
        from meshnn.export import c

        recipe = self.recipe()
        if known("dtype", dtype, c.DTYPES) == "float32":
            return c.write_float(recipe, path, optimize, name)
        return c.write_integer(c.integer_net(recipe, X, dtype)[1], path, optimize, name)

    def to_onnx(self, path: str | PathLike[str] | None = None, **options: Any) -> Any:
        """As a model of ONNX, written to a file if there is a path; see `meshnn.export.onnx.to_onnx`."""
        from meshnn.export.onnx import to_onnx

        return to_onnx(self.recipe(), path, **options)
