"""Training tasks by name: one file each, with `prepare`, `build_model`, `loss` and `evaluate`."""
