#!/usr/bin/env python3
"""Fits y = W x + b in stage 3, with the package zero (pip install .).

usage: from_python.py            four ranks as threads
       mpirun -n 4 from_python.py --processes
"""

import sys

import numpy as np

import zero

STEPS, INPUTS, OUTPUTS = 300, 12, 3
RNG = np.random.default_rng(1)
TARGET = RNG.standard_normal((OUTPUTS, INPUTS)).astype(np.float32)


def train(ranks):
    """One rank; returns the largest error of a parameter."""
    model = [zero.Parameter("weights", (OUTPUTS, INPUTS)), zero.Parameter("bias", OUTPUTS)]
    data = np.random.default_rng(ranks.rank)
    with zero.Engine(ranks, model, stage=3, optimizer="sgd", momentum=0.5,
                     weight_decay=0.0) as engine:
        for step in range(STEPS):
            x = data.standard_normal(INPUTS).astype(np.float32)
            engine.begin_step()
            with engine.open(0) as layer:
                y = layer.weights["weights"] @ x + layer.weights["bias"]
            error = y - (TARGET @ x + 0.5)
            with engine.open(0, gradients=True) as layer:
                layer.gradients["weights"] += np.outer(error, x)
                layer.gradients["bias"] += error
            engine.step(0.02)
        loss = ranks.sum(float(error @ error)) / ranks.world
        worst = max(abs(engine.get("weights") - TARGET).max(), abs(engine.get("bias") - 0.5).max())
    if ranks.rank == 0:
        print(f"{ranks.world} ranks, largest error {worst:.5f}, loss {loss:.3g}")
    return worst


if __name__ == "__main__":
    if "--processes" in sys.argv:
        worst = zero.run_mpi(train, time_out=60)
    else:
        worst = max(zero.run_ranks(4, train, time_out=60))
    sys.exit(0 if worst < 0.02 else 1)
