"""Exports of trained models: C for small chips, and ONNX. An export knows a model as a Blueprint of plain values."""

from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.c.run import CLearner, CNet, CompilerError

__all__ = ["Blueprint", "CLearner", "CNet", "CompilerError", "ExportError"]
