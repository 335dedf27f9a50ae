"""Metrics where people already look: TensorBoard, Weights & Biases, MLflow, Trackio; each follows metrics.jsonl."""
