"""Ways out of Python: C for small chips, ONNX. What is written knows a model as a `Recipe` of plain values only."""
