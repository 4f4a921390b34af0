"""Training jobs: stages like any other, tracked in MLflow."""
