#!/usr/bin/env python3
"""torch.optim.AdamW(fused=True) with torch.nn.utils.clip_grad_norm_ on the tensors of GPT-2: a peer of zero's step.

Prints JSON as Google Benchmark does (--benchmark_format=json), so that its tools can compare the two. See README.md in this folder.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from datetime import datetime, timezone

import torch

from models import MODELS, shapes_of

# The same data as in bench/cuda/device_array.cuh and passes.cuh: normally distributed, and moments that are the gradient and its square.
GRADIENT_DEVIATION = 1e-3
PARAMETER_DEVIATION = 0.02
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def make_parameters(model, dtype, device):
    torch.manual_seed(1)
    parameters = []
    for shape in shapes_of(model):
        parameter = torch.nn.Parameter(torch.empty(shape, dtype=dtype, device=device).normal_(0.0, PARAMETER_DEVIATION))
        parameter.grad = torch.empty_like(parameter).normal_(0.0, GRADIENT_DEVIATION)
        parameters.append(parameter)
    return parameters


def set_moments(optimizer, parameters):
    optimizer.step()  # creates the states
    for parameter in parameters:
        optimizer.state[parameter]["exp_avg"].copy_(parameter.grad)
        optimizer.state[parameter]["exp_avg_sq"].copy_(parameter.grad * parameter.grad)


def seconds_of(body, device, minimum):
    """Seconds per call, over at least `minimum` seconds: events on a device, the clock on the host."""
    body()  # the first call creates the states
    calls = 0
    if device == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        started = time.perf_counter()
        begin.record()
        while calls == 0 or time.perf_counter() - started < minimum:
            body()
            calls += 1
            if calls % 16 == 0:
                torch.cuda.synchronize()  # keeps the host from running far ahead
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e-3 / calls, calls
    started = time.perf_counter()
    while calls == 0 or time.perf_counter() - started < minimum:
        body()
        calls += 1
    return (time.perf_counter() - started) / calls, calls


def run(name, body, bytes_per_call, device, repetitions, minimum):
    results = [seconds_of(body, device, minimum) for _ in range(repetitions)]
    rows = []

    def row(suffix, run_type, seconds, iterations, extra):
        rows.append({"name": name + suffix, "run_name": name, "run_type": run_type, "repetitions": repetitions, "threads": 1, "iterations": iterations,
                     "real_time": seconds * 1e3, "cpu_time": seconds * 1e3, "time_unit": "ms", "bytes_per_second": bytes_per_call / seconds, **extra})

    for index, (seconds, calls) in enumerate(results):
        row("", "iteration", seconds, calls, {"repetition_index": index})
    row("_median", "aggregate", statistics.median(seconds for seconds, _ in results), repetitions, {"aggregate_name": "median"})
    return rows


def benchmarks_on(device, options):
    parameters = make_parameters(options.model, TYPES[options.dtype], device)
    elements = sum(parameter.numel() for parameter in parameters)
    size = parameters[0].element_size()
    optimizer = torch.optim.AdamW(parameters, lr=1e-6, weight_decay=0.01, fused=True)  # states have the type of the parameters

    set_moments(optimizer, parameters)
    # The twin of all: a copy of as many bytes as the parameters have, into memory that holds NaN.
    source = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    target = torch.full_like(source, float("nan"))

    def copy():
        target.copy_(source)

    def clip():
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)

    def step():
        clip()
        optimizer.step()

    # Bytes that must move: the norm reads the gradients; the update reads gradient, parameter and two states, and writes the last three.
    what = f"{options.model}/{options.dtype}/{device}"
    rows = run(f"torch_copy/{what}", copy, 2 * elements * size, device, options.repetitions, options.min_time)
    rows += run(f"torch_clip_grad_norm/{what}", clip, elements * size, device, options.repetitions, options.min_time)
    rows += run(f"torch_adamw_fused/{what}", optimizer.step, 7 * elements * size, device, options.repetitions, options.min_time)
    rows += run(f"torch_step/{what}", step, 8 * elements * size, device, options.repetitions, options.min_time)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda", "all"], default="all", help="all: every one present")
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--dtype", choices=TYPES, default="float32", help="of parameters, gradients and states")
    parser.add_argument("--threads", type=int, default=0, help="of the host; 0: torch's choice")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--min-time", type=float, default=0.5, help="seconds of a repetition")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    devices = [options.device] if options.device != "all" else ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    if "cuda" in devices and not torch.cuda.is_available():
        print("skipped: no CUDA device", file=sys.stderr)
        return 0
    context = {"date": datetime.now(timezone.utc).isoformat(), "host_name": platform.node(), "executable": os.path.basename(__file__), "num_cpus": os.cpu_count(),
               "torch": torch.__version__, "torch_threads": torch.get_num_threads(),
               "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "none"}
    rows = [row for device in devices for row in benchmarks_on(device, options)]
    json.dump({"context": context, "benchmarks": rows}, sys.stdout, indent=2)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
