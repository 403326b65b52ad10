"""Graph optimization for ONNX models."""
