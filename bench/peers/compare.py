#!/usr/bin/env python3
"""Compares steps of zero with those of other libraries, one step of each in turn.

Starts the chosen contenders and the rows of zero beside which they stand, two ranks each. In every
round each takes one step, in random order, while the others are idle. Prints a table; see README.md
in this folder for what a step includes.
"""

import argparse
import collections
import json
import os
import queue
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

WORLD = 2
FOLDER = os.path.dirname(os.path.abspath(__file__))

# The row of zero that does the same work.
PEERS = {
    "hand": "zero_1",
    "hand_held": "zero_1_held",
    "ddp": "zero_0",
    "zero_optimizer": "zero_1",
    "fsdp2": "zero_3",
    "deepspeed_1": "zero_1",
    "deepspeed_2": "zero_2",
    "deepspeed_3": "zero_3",
}
ZERO = [f"zero_{stage}{held}" for stage in range(4) for held in ("", "_held")]

# One thread per rank. The C library keeps freed memory, so that steps spend no time on new pages,
# and what is resident after a step is the most that it needed.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "DS_ACCELERATOR": "cpu",
    "MASTER_ADDR": "127.0.0.1",
    "WORLD_SIZE": str(WORLD),
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 62),
    "MALLOC_ARENA_MAX": "1",
}


class Failure(Exception):
    pass


class Process:
    """A program that answers each line of its input with one line of JSON."""

    def __init__(self, command, environment, log):
        self.log = log
        with open(log, "w") as errors:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.answers = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def send(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the missing answer says so

    def receive(self, deadline):
        try:
            line = self.answers.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            raise Failure(f"no answer in time; its last words: {self.last_words()}") from None
        if line is None:
            raise Failure(f"it ended; its last words: {self.last_words()}")
        result = json.loads(line)
        if "error" in result:
            raise Failure(result["error"])
        return result

    def last_words(self):
        with open(self.log, errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        return lines[-1] if lines else "none"

    def end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass

    def wait(self):
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Contender:
    """The processes of one contender, and what they measured."""

    def __init__(self, name, commands, environments, options, folder):
        self.name = name
        self.time_limit = options.time_limit
        self.steps = []  # (seconds, resident bytes per rank)
        self.failure = None
        self.processes = []
        for rank, (command, environment) in enumerate(zip(commands, environments)):
            log = os.path.join(folder, f"{name}_{rank}.log")
            self.processes.append(Process(command, environment, log))
        self.start = self.attempt(self.receive)

    def attempt(self, action, *arguments):
        """Returns the action's result; after a failure stops the contender and returns None."""
        try:
            return action(*arguments)
        except Failure as failure:
            self.failure = str(failure).splitlines()[0]
            for process in self.processes:
                process.process.kill()  # its ranks wait for each other
            self.stop()
            return None

    def receive(self):
        deadline = time.monotonic() + self.time_limit
        answers = [process.receive(deadline) for process in self.processes]
        return {key: [answer[key] for answer in answers] for key in answers[0]}

    def ask(self, command):
        for process in self.processes:
            process.send(command)
        return self.receive()

    def step(self):
        answer = self.ask("step")
        self.steps.append((max(answer["seconds"]), sum(answer["resident_bytes"]) / WORLD))

    def check(self):
        if not all(self.ask("check")["is_right"]):
            raise Failure(f"parameters are wrong after {len(self.steps)} steps")

    def stop(self):
        for process in self.processes:
            process.end()
        for process in self.processes:
            process.wait()  # its ranks end together


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(name, options, folder):
    arguments = ["--dtype", options.dtype, "--scale", str(options.scale)]
    if options.clip:
        arguments.append("--clip")
    if name in ZERO:
        stage = ["--stage", name.split("_")[1]]
        writes = [] if name.endswith("_held") else ["--write-gradients"]
        commands = [[options.zero_step, *stage, *writes, *arguments]]
        return Contender(name, commands, [ENVIRONMENT], options, folder)
    shared = os.path.join(folder, name)
    os.mkdir(shared)
    command = [sys.executable, os.path.join(FOLDER, "rank.py"), "--contender", name]
    command += ["--shared", shared, *arguments]
    environment = {**ENVIRONMENT, "MASTER_PORT": str(free_port())}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(WORLD)]
    environments = [{**environment, **rank} for rank in ranks]
    return Contender(name, [command] * WORLD, environments, options, folder)


def measure(contenders, options):
    order = random.Random(1)
    for index in range(options.warm_up + options.rounds):
        round_of = [contender for contender in contenders if not contender.failure]
        order.shuffle(round_of)
        for contender in round_of:
            contender.attempt(contender.step)
            if index == 0 and not contender.failure:
                contender.attempt(contender.check)
        print(f"round {index + 1 - options.warm_up} of {options.rounds}", file=sys.stderr)
    for contender in contenders:
        if not contender.failure:
            contender.attempt(contender.check)
    for contender in contenders:
        del contender.steps[: options.warm_up]


def result_of(contender):
    """What --json writes."""
    return {
        "name": contender.name,
        "failure": contender.failure,
        "seconds": [seconds for seconds, _ in contender.steps],
        "resident_bytes": [resident for _, resident in contender.steps],
        **{key: sum(values) / WORLD for key, values in (contender.start or {}).items()},
    }


def quartiles(values):
    if len(values) < 2:
        return values * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def table_of(results):
    """Ratios are those of steps in the same round; memory is the mean over the ranks."""
    ran = {result["name"]: result for result in results if not result["failure"]}
    rows = [
        "| contender | ms | quartiles | beside | time / zero's | quartiles "
        "| MB per rank | planned | program |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for name, result in ran.items():
        low, middle, high = (1e3 * value for value in quartiles(result["seconds"]))
        row = [name, f"{middle:.1f}", f"{low:.1f} to {high:.1f}"]
        twin = PEERS.get(name)
        if twin in ran:
            pairs = zip(result["seconds"], ran[twin]["seconds"])
            low, middle, high = quartiles([own / other for own, other in pairs])
            row += [twin, f"{middle:.2f}", f"{low:.2f} to {high:.2f}"]
        else:
            row += ["", "", ""]
        program = result["program_bytes"]
        row.append(f"{(result['resident_bytes'][-1] - program) / 1e6:.0f}")
        row.append(f"{result['planned_bytes'] / 1e6:.0f}" if "planned_bytes" in result else "")
        row.append(f"{program / 1e6:.0f}")
        rows.append("| " + " | ".join(row) + " |")
    for result in results:
        if result["failure"]:
            rows.append(f"\n{result['name']}: not run: {result['failure']}")
    return "\n".join(rows)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--zero-step", default="./zero_step", help="the program zero_step.cpp")
    parser.add_argument("--only", default=",".join(PEERS), help=f"of {', '.join([*PEERS, *ZERO])}")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--scale", type=float, default=1.0, help="of every tensor of GPT-2 124M")
    parser.add_argument("--clip", action="store_true", help="to a global norm of 1")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--warm-up", type=int, default=3, help="rounds that do not count")
    parser.add_argument("--time-limit", type=float, default=600, help="seconds for one answer")
    parser.add_argument("--json", help="a file for the results of every round")
    options = parser.parse_args()
    options.zero_step = os.path.abspath(options.zero_step)
    names = options.only.split(",")
    for name in names:
        if name not in PEERS and name not in ZERO:
            parser.error(f"there is no contender '{name}'")
    if options.rounds < 1 or options.warm_up < 1:
        parser.error("--rounds and --warm-up are at least 1")
    twins = collections.Counter(PEERS[name] for name in names if name in PEERS)
    options.names = [name for name in ZERO if name in twins or name in names]
    options.names += [name for name in PEERS if name in names]
    return options


def main():
    options = parse()
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        contenders = []
        try:
            for name in options.names:
                print(f"starting {name}", file=sys.stderr)
                contenders.append(start(name, options, folder))
            measure(contenders, options)
        finally:
            for contender in contenders:
                contender.stop()
    results = [result_of(contender) for contender in contenders]
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "results": results}, file, indent=1)
    print(table_of(results))
    return 1 if any("wrong" in (result["failure"] or "") for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
