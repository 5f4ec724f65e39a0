"""Modules as ONNX files, for runtimes without torch: context in, an order and its log-probability out."""

from factorank.onnx.exporting import export

__all__ = ["export"]
