"""Training tasks by name: one file each, with `prepare`, `build_model`, `inputs` and `loss`."""
