"""`Exports`: what every trained model has, so that it can leave Python."""

from __future__ import annotations

from os import PathLike
from typing import Any

from meshnn.export.recipe import Recipe

__all__ = ["Exports"]


class Exports:
    """Models that can say what they compute."""

    def recipe(self) -> Recipe:
        """What it computes, as plain values and arrays: what exports are written from."""
        raise NotImplementedError

    def to_c(self, path: str | PathLike[str], **options: Any) -> Any:
        """Write it as a C header."""
        from meshnn.export.c import to_c

        return to_c(self.recipe(), path, **options)

    def to_onnx(self, path: str | PathLike[str] | None = None, **options: Any) -> Any:
        """As a model of ONNX, written to a file if there is a path; see `meshnn.export.onnx.to_onnx`."""
        from meshnn.export.onnx import to_onnx

        return to_onnx(self.recipe(), path, **options)
