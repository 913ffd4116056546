"""Ways out of Python: C for small chips, ONNX. What is written knows a model as a `Recipe` of plain values only."""

from meshnn.export.cnet import CNet, CompilerError
from meshnn.export.recipe import ExportError, Recipe

__all__ = ["CNet", "CompilerError", "ExportError", "Recipe"]
