"""LanguageModel and its backends: tabular, onnx, torch."""
