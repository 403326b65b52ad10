"""Drop-in replacements: change `import onnxoptimizer` to `from graphopt.compat import onnxoptimizer`, and so on."""
