"""Ways out of Python: C for small chips, ONNX. What is written knows a model as a Blueprint of plain values only."""

from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.cnet import CLearner, CNet, CompilerError

__all__ = ["Blueprint", "CLearner", "CNet", "CompilerError", "ExportError"]
