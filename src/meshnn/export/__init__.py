"""Exports of trained models to C for microcontrollers and to ONNX, written from a `Blueprint` of plain values."""

from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.c.run import CLearner, CNet, CompilerError

__all__ = ["Blueprint", "CLearner", "CNet", "CompilerError", "ExportError"]
