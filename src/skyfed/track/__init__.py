"""Trackers that people already use, as thin optional sinks: TensorBoard, MLflow, W&B."""
