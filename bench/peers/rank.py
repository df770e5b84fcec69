#!/usr/bin/env python3
"""Runs one rank of a contender; compare.py starts it. README.md lists its commands and answers."""

import argparse
import dataclasses
import gc
import json
import os
import sys
import time

# The answers keep stdout for themselves; whatever libraries print goes to stderr.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def answer(**values):
    print(json.dumps(values), file=answers)


def resident_bytes():
    """Bytes of this process in memory, without files; a page shared by n processes counts 1/n."""
    with open("/proc/self/smaps_rollup") as file:
        lines = [line.split() for line in file]
    return sum(int(line[1]) * 1024 for line in lines if line[0] in ("Pss_Anon:", "Pss_Shmem:"))


def is_right(contender, steps, learning_rate):
    """Whether all values moved by `steps` times the learning rate."""
    for values, sign in contender.moved():
        ratios = [float(value) / (-sign * steps * learning_rate) for value in values.detach().aminmax()]
        if not all(abs(ratio - 1) <= 0.005 for ratio in ratios):  # bfloat16 rounds by 0.002
            return False
    return True


def load_everything(make, job):
    """Takes steps of a tiny model, so that the program with all its libraries is in memory."""
    folder = os.path.join(job.shared, "tiny")
    os.makedirs(folder, exist_ok=True)
    tiny = make(dataclasses.replace(job, scale=0.0, shared=folder))
    tiny.step()
    tiny.step()
    del tiny
    gc.collect()


def serve(options):
    import torch
    import torch.distributed as dist

    import contenders

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    job = contenders.Job(
        rank=dist.get_rank(),
        world=dist.get_world_size(),
        dtype=getattr(torch, options.dtype),
        scale=options.scale,
        is_clipped=options.clip,
        shared=options.shared,
    )
    make = contenders.CONTENDERS[options.contender]
    load_everything(make, job)
    program_bytes = resident_bytes()
    contender = make(job)
    answer(program_bytes=program_bytes)
    steps = 0
    for line in sys.stdin:
        command = line.strip()
        if command == "step":
            dist.barrier()
            start = time.perf_counter()
            contender.step()
            seconds = time.perf_counter() - start
            dist.barrier()  # a step has ended when every rank's has
            steps += 1
            answer(seconds=seconds, resident_bytes=resident_bytes())
        elif command == "check":
            rate = contenders.LEARNING_RATE
            is_found = not is_right(contender, steps, 1.5 * rate)  # a wrong rate must be found
            answer(is_right=is_found and is_right(contender, steps, rate))
        else:
            break
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(";")[0])
    parser.add_argument("--contender", required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--scale", type=float, required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--clip", action="store_true")
    try:
        serve(parser.parse_args())
    except Exception as error:
        answer(error=f"{type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    main()
