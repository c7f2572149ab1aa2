"""One training run: setup, optimisation, checkpoints, interruption, sweeps."""
