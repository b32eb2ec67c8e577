"""The networks that workloads train, defined here: nothing is downloaded."""
