#!/usr/bin/env python3
"""Shows how the step time and the memory of one rank grow with ranks and parameters. scripts/bench.sh calls it. Python's standard library only.

usage: bench_scaling.py PLAN RESULT.json... [--svg PLOT.svg] [--page PAGE.md]

PLAN is the output of stage_scaling_table, RESULT.json that of stage_scaling_bench. With --page the table replaces the text of the page between the lines
<!-- scaling --> and <!-- end of scaling -->. Without --svg and --page the table is printed.
"""

import re
import statistics
import sys

from bench_plot import Axis, Panel, page, short
from bench_table import arguments_of, publish, read

MARKS = ("<!-- scaling -->", "<!-- end of scaling -->")
SHOWN_WORLDS = (1, 8, 64)
LEAST_FITTED = 1 / 16  # beyond 16 ranks the caches dominate: docs/data/benchmarks.txt
GB = 1e9


def measured(files):
    """(W, parameters) -> (seconds, ratio to the twin, allocated bytes)"""
    rows, _ = read(files)
    rows = [row for row in rows if row.operation == "scaling"]
    twins = {row.pair(): row for row in rows if row.who == "twin"}
    points = {}
    for row in rows:
        if row.who == "twin":
            continue
        if row.pair() not in twins:
            print(f"left out: {row.name}: no result of its twin", file=sys.stderr)
            continue
        if row.counters["allocated_bytes"] != row.counters["planned_bytes"]:
            raise ValueError(f"{row.case}, {row.elements} parameters: {row.counters['allocated_bytes']:.0f} bytes were allocated, "
                             f"{row.counters['planned_bytes']:.0f} planned")
        world = int(re.fullmatch(r"W(\d+)", row.case).group(1))
        points[world, row.elements] = statistics.median(row.seconds), row.ratio(twins[row.pair()]), row.counters["allocated_bytes"]
    if not points:
        raise ValueError("the results hold no benchmark of the operation 'scaling' with its twin")
    return points


def planned(file):
    """(stage, W, parameters) -> bytes"""
    with open(file, encoding="utf-8") as stream:
        lines = [[int(word) for word in line.split()] for line in stream]
    return {(stage, world, elements): size for stage, world, elements, size in lines}


def fit(points):
    """The straight line a + b x with the least relative squares, so that all magnitudes count equally."""
    weights = [1 / (y * y) for _, y in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points)) / total
    slope = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points)) / sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points))
    return mean_y - slope * mean_x, slope


def table(points):
    sizes = sorted({elements for _, elements in points})
    lines = [["ranks"] + [cell for size in sizes for cell in (f"{short(size)}: step", "ratio", "memory")]]
    for world in sorted({world for world, _ in points}):
        line = [f"{world}"]
        for size in sizes:
            if (world, size) in points:
                seconds, ratio, memory = points[world, size]
                line += [f"{seconds * 1e3:.3g} ms", f"{ratio:.2f}", f"{memory / GB:.3g} GB"]
            else:
                line += ["", "", ""]
        lines.append(line)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = ["| " + " | ".join(cell.rjust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    return "\n".join(text) + "\n"


def powers(low, high, unit, step=1):
    return [(10.0 ** power, f"{10.0 ** (power - unit):g}") for power in range(low, high + 1, step)]


def over_parameters(title, label, points, low, high, unit, largest):
    """Log-log: proportional growth is a straight line of slope 1."""
    ticks = [(10.0 ** power, short(10.0 ** power)) for power in range(6, largest + 1, 1 if largest < 10 else 2)]
    return Panel(title, Axis("parameters", 1e6, 10.0 ** largest, ticks, True), Axis(label, 10.0 ** low, 10.0 ** high, powers(low, high, unit), True))


def over_ranks(title, label, highest, step):
    ticks = [(1 / world, f"1/{world}" if world > 1 else "1") for world in (1, 2, 4, 8, 64)]
    return Panel(title, Axis("1 / number of ranks", 0.0, 1.0, ticks), Axis(label, 0.0, highest, [(step * i, f"{step * i:g}") for i in range(int(highest / step) + 1)]))


def plot(points, plans):
    sizes = sorted({elements for _, elements in points})
    worlds = sorted({world for world, _ in points})
    time = over_parameters("step of one rank, stage 2", "ms", points, -4, 1, -3, 9)
    memory = over_parameters("memory of one rank, stage 2", "GB", points, 6, 14, 9, 13)
    for world in (one for one in SHOWN_WORLDS if one in worlds):
        name = f"W = {world}"
        own = [(size, points[world, size]) for size in sizes if (world, size) in points]
        time.line(name, [(size, one[0]) for size, one in own])
        time.dots(name, [(size, one[0]) for size, one in own])
        memory.line(name, sorted((size, bytes_) for (stage, other, size), bytes_ in plans.items() if stage == 2 and other == world))
        memory.dots(name, [(size, one[2]) for size, one in own])
    per_parameter = {size: [(1 / world, points[world, size][0] / size * 1e9) for world in worlds if (world, size) in points] for size in sizes}
    highest = max(y for line in per_parameter.values() for _, y in line)
    rate = over_ranks("step of one rank, by ranks", "ns a parameter", float(int(highest) + 1), max(1, int(highest / 5)))
    for size, line in per_parameter.items():
        name = f"{short(size)} parameters"
        start, slope = fit([point for point in line if point[0] >= LEAST_FITTED] or line)
        rate.line(name, [(0.0, start), (1.0, start + slope)])
        rate.dots(name, line)
    largest = max(size for _, _, size in plans)
    stages = over_ranks(f"memory, {short(largest)} parameters", "bytes a parameter", 24.0, 4)
    for stage in range(4):
        stages.line(f"stage {stage}", sorted((1 / world, bytes_ / size) for (one, world, size), bytes_ in plans.items() if one == stage and size == largest))
    return page("Step time and memory of one rank", [time, rate, memory, stages], 2,
                "Dots: measured. Lines: time by ranks, a + b / W fitted up to W = 16; memory, planned; otherwise from dot to dot.")


def main(arguments):
    files, options = arguments_of(arguments)
    if "--help" in options:
        print(__doc__)
        return 0
    if len(files) < 2 or None in options.values():
        print(__doc__, file=sys.stderr)
        return 2
    points = measured(files[1:])
    publish(options, lambda: plot(points, planned(files[0])), MARKS, table(points))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ValueError, KeyError, OSError) as error:
        print(f"bench_scaling.py: {error}", file=sys.stderr)
        sys.exit(1)
