#!/usr/bin/env python3
"""Makes one table, and a plot, of results of Google Benchmark in JSON; scripts/bench.sh calls it. Python's standard library only.

usage: bench_table.py RESULT.json... [--svg PLOT.svg] [--page PAGE.md]

A benchmark is called operation/case/who/elements, and each is compared with the "twin" of the same operation, case, number of elements and threads: the ratio
is that of the medians of the throughput. With --svg the ratios are drawn over the number of elements. With --page the table replaces what stands in the page
between the lines <!-- table --> and <!-- end of table -->; otherwise it is printed.
"""

import json
import re
import statistics
import sys

GPT2 = 124_439_808
OPERATIONS = ["flatten", "unflatten", "norm", "update", "sum_ranks", "reduce_scatter", "all_gather", "reduce_scatter_of_1_KB", "step",
              "tensor_update", "matrix_product"]
MARKS = ("<!-- table -->", "<!-- end of table -->")


def goal_of(row):
    """The least ratio that is asked of the host backend at the size of GPT-2 124M, and of the smallest collective; None: nothing is."""
    if row.operation == "reduce_scatter_of_1_KB":
        return 1.0
    if row.elements != GPT2:
        return None
    if row.operation == "update":
        return 0.9 if row.who == "adamw" else None
    if row.operation == "step":
        return 0.85 if "clipped" in row.case else 0.95
    return {"flatten": 0.9, "unflatten": 0.9, "norm": 0.8, "reduce_scatter": 0.85, "all_gather": 0.85}.get(row.operation)


class Row:
    """One benchmark: its repetitions."""

    def __init__(self, name):
        parts = name.split("/")
        threads = [part for part in parts if part.startswith("threads:")]
        parts = [part for part in parts if part not in ("real_time", "manual_time", "process_time") and part not in threads]
        if len(parts) != 4 or not parts[3].isdigit():
            raise ValueError(f"'{name}': a benchmark has to be called operation/case/who/elements")
        self.operation, self.case, self.who = parts[:3]
        self.elements = int(parts[3])
        self.threads = int(threads[0].split(":")[1]) if threads else 1
        self.seconds = []
        self.bytes = []
        self.items = []

    def add(self, run):
        unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[run["time_unit"]]
        self.seconds.append(run["real_time"] * unit * self.threads)  # what is given is divided by the number of threads
        for values, key in ((self.bytes, "bytes_per_second"), (self.items, "items_per_second")):
            if key in run:
                values.append(run[key])

    def pair(self):
        return self.operation, self.case, self.elements, self.threads

    def order(self):
        known = OPERATIONS.index(self.operation) if self.operation in OPERATIONS else len(OPERATIONS)
        return known, self.operation, self.case, self.who, self.threads, self.elements

    def title(self):
        who = "" if self.who == "zero" else " " + self.who
        threads = "" if self.threads == 1 else f", {self.threads} threads"
        return f"{self.operation} {self.case}{who}{threads}".replace("_", " ")

    def ratio(self, twin):
        """How many times as fast as the twin: by bytes, since those may differ; or by items, or by time, where no bytes are counted."""
        for own, other in ((self.bytes, twin.bytes), (self.items, twin.items)):
            if own and other:
                return statistics.median(own) / statistics.median(other)
        return statistics.median(twin.seconds) / statistics.median(self.seconds)

    def spread(self):
        """The middle half of the repetitions, as a part of their median."""
        if len(self.seconds) < 2:
            return 0.0
        quarters = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (quarters[2] - quarters[0]) / quarters[1]

    def speed(self):
        if self.bytes:
            return f"{statistics.median(self.bytes) * 1e-9:.1f}"
        if self.items:
            return f"{statistics.median(self.items) * 1e-9:.1f} G"
        return "-"


def read(files):
    """Rows by name, the latest run of each, and what is known of the machine."""
    results = []
    for file in files:
        with open(file, encoding="utf-8") as stream:
            results.append(json.load(stream))
    rows = {}
    contexts = []
    for result in sorted(results, key=lambda one: one["context"].get("date", "")):
        contexts.append(result["context"])
        fresh = {}
        for run in result["benchmarks"]:
            if run.get("run_type", "iteration") != "iteration":
                continue
            name = run.get("run_name", run["name"])
            if run.get("error_occurred"):
                print(f"left out: {name}: {run.get('error_message', 'failed')}", file=sys.stderr)
                continue
            if name not in fresh:
                fresh[name] = Row(name)
            fresh[name].add(run)
        rows.update(fresh)
    return list(rows.values()), contexts


def compare(rows):
    """(row, its twin) in the order of the table. A benchmark without a twin is an error: the ratio is the point."""
    twins = {row.pair(): row for row in rows if row.who == "twin"}
    pairs = []
    for row in sorted(rows, key=Row.order):
        if row.who == "twin":
            continue
        if row.pair() not in twins:
            raise ValueError(f"no twin was measured for '{row.operation}/{row.case}/{row.who}' with {row.elements} elements and {row.threads} threads")
        pairs.append((row, twins[row.pair()]))
    return pairs


def time_text(seconds):
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e9:.3g} ns"


def goal_text(row, ratio):
    goal = goal_of(row)
    if goal is None:
        return ""
    return f"{goal:.2f}, {'met' if ratio >= goal else 'missed'}"


def table(pairs):
    head = ["what", "elements", "time", "GB/s", "twin GB/s", "ratio", "spread", "goal"]
    lines = [head]
    for row, twin in pairs:
        ratio = row.ratio(twin)
        spread = max(row.spread(), twin.spread())
        lines.append([row.title(), f"{row.elements}", time_text(statistics.median(row.seconds)), row.speed(), twin.speed(), f"{ratio:.2f}", f"{spread:.0%}",
                      goal_text(row, ratio)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    def text(line):
        cells = [cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(zip(line, widths))]
        return "| " + " | ".join(cells) + " |"
    rule = "|" + "|".join("-" * (width + 2) if column == 0 else "-" * (width + 1) + ":" for column, width in enumerate(widths)) + "|"
    return "\n".join([text(head), rule] + [text(line) for line in lines[1:]]) + "\n"


def machine(contexts):
    """One line for each machine, compiler and day."""
    lines = []
    for context in contexts:
        line = (f"{context.get('cpu', 'unknown processor')}, {context.get('num_cpus', '?')} cores, {context.get('compiler', 'unknown compiler')}, "
                f"{context.get('date', 'unknown date')[:10]}")
        if line not in lines:
            lines.append(line)
    return "Measured on " + "; ".join(lines) + ".\n"


# The plot: one panel for an operation, a line for each case.

PANELS = [("flatten and unflatten", ("flatten", "unflatten")), ("norm", ("norm",)), ("update", ("update",)), ("reduce-scatter", ("reduce_scatter",)),
          ("all-gather", ("all_gather",)), ("step, 2 ranks", ("step",))]
STYLE = """
text { font: 12px sans-serif; fill: #1f2328 } .small { font-size: 11px } .title { font-size: 14px; font-weight: bold }
.back { fill: #ffffff } .frame { fill: none; stroke: #8c959f } .grid { stroke: #d0d7de; stroke-width: 0.7 } .twin { stroke: #57606a; stroke-width: 1.2 }
.goal { stroke: #57606a; stroke-dasharray: 5 4 } .line { fill: none; stroke-width: 2 }
.c0 { stroke: #0969da; fill: #0969da } .c1 { stroke: #bc4c00; fill: #bc4c00 } .c2 { stroke: #1a7f37; fill: #1a7f37 }
.c3 { stroke: #8250df; fill: #8250df } .c4 { stroke: #bf3989; fill: #bf3989 } .c5 { stroke: #7d6a00; fill: #7d6a00 } .line { fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .back { fill: #0d1117 } .frame { stroke: #6e7681 } .grid { stroke: #30363d } .twin, .goal { stroke: #9198a1 }
.c0 { stroke: #58a6ff; fill: #58a6ff } .c1 { stroke: #f0883e; fill: #f0883e } .c2 { stroke: #3fb950; fill: #3fb950 }
.c3 { stroke: #bc8cff; fill: #bc8cff } .c4 { stroke: #f778ba; fill: #f778ba } .c5 { stroke: #d4b80c; fill: #d4b80c } .line { fill: none }
}
"""
LEFT, TOP, WIDTH, HEIGHT = 46, 34, 270, 190  # of the axes inside a panel
PANEL_WIDTH, LEGEND_LINE = 340, 15
DASHES = ["", "7 3", "2 3"]


def series_of(pairs, operations):
    """Name -> [(elements, ratio, goal)], of one thread; only what was measured at more than one size."""
    series = {}
    for row, twin in pairs:
        if row.operation in operations and row.threads == 1:
            name = f"{row.case} {row.who}" if len(operations) == 1 else f"{row.operation} {row.case}"
            series.setdefault(name.removesuffix(" zero").replace("_", " "), []).append((row.elements, row.ratio(twin), goal_of(row)))
    return {name: sorted(points) for name, points in series.items() if len(points) > 1}


def short(elements):
    return next((f"{elements / unit:.3g}{letter}" for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if elements >= unit), str(elements))


def panel(title, series, top_ratio):
    sizes = sorted({elements for points in series.values() for elements, _, _ in points})
    low, high = sizes[0], sizes[-1]
    from math import log
    x_of = lambda elements: LEFT + 10 + (WIDTH - 20) * log(elements / low) / log(high / low)
    y_of = lambda ratio: TOP + HEIGHT * (1 - min(ratio, top_ratio) / top_ratio)
    out = [f'<text class="title" x="{LEFT}" y="20">{title}</text>']
    for step in range(int(top_ratio / 0.25) + 1):
        ratio = step * 0.25
        out.append(f'<line class="{"twin" if ratio == 1 else "grid"}" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y_of(ratio):.1f}" y2="{y_of(ratio):.1f}"/>')
        if step % 2 == 0:
            out.append(f'<text class="small" text-anchor="end" x="{LEFT - 5}" y="{y_of(ratio) + 4:.1f}">{ratio:.1f}</text>')
    for elements in sizes:
        out.append(f'<line class="frame" x1="{x_of(elements):.1f}" x2="{x_of(elements):.1f}" y1="{TOP + HEIGHT}" y2="{TOP + HEIGHT + 4}"/>')
        out.append(f'<text class="small" text-anchor="middle" x="{x_of(elements):.1f}" y="{TOP + HEIGHT + 17}">{short(elements)}</text>')
    out.append(f'<text class="small" text-anchor="middle" x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 33}">elements</text>')
    out.append(f'<text class="small" text-anchor="middle" transform="translate(12 {TOP + HEIGHT / 2}) rotate(-90)">speed / speed of the twin</text>')
    for goal in sorted({goal for points in series.values() for _, _, goal in points if goal is not None}):
        out.append(f'<line class="goal" x1="{LEFT + WIDTH / 2}" x2="{LEFT + WIDTH}" y1="{y_of(goal):.1f}" y2="{y_of(goal):.1f}"/>')
    out.append(f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"/>')
    for index, (name, points) in enumerate(series.items()):
        colour, dash = f"c{index % 6}", DASHES[index // 6 % 3]
        path = " ".join(f"{x_of(elements):.1f},{y_of(ratio):.1f}" for elements, ratio, _ in points)
        out.append(f'<polyline class="line {colour}" stroke-dasharray="{dash}" points="{path}"/>')
        for elements, ratio, _ in points:
            x, y = x_of(elements), y_of(ratio)
            if ratio > top_ratio:  # above the frame
                out.append(f'<path class="{colour}" d="M{x - 4:.1f} {y + 7:.1f} L{x + 4:.1f} {y + 7:.1f} L{x:.1f} {y:.1f} Z"/>')
                out.append(f'<text class="small" text-anchor="middle" x="{x:.1f}" y="{y + 19:.1f}">{ratio:.1f}</text>')
            else:
                out.append(f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        y = TOP + HEIGHT + 50 + LEGEND_LINE * index
        out.append(f'<line class="line {colour}" stroke-dasharray="{dash}" x1="{LEFT}" x2="{LEFT + 24}" y1="{y}" y2="{y}"/>')
        out.append(f'<text class="small" x="{LEFT + 30}" y="{y + 4}">{name}</text>')
    return "\n".join(out)


def plot(pairs):
    panels = [(title, series_of(pairs, operations)) for title, operations in PANELS]
    panels = [(title, series) for title, series in panels if series]
    if not panels:
        raise ValueError("nothing to draw: no operation was measured at more than one size")
    lines = max(len(series) for _, series in panels)
    panel_height = TOP + HEIGHT + 60 + LEGEND_LINE * lines
    columns = min(3, len(panels))
    rows = (len(panels) + columns - 1) // columns
    width, height = columns * PANEL_WIDTH + 10, rows * panel_height + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
           "<title>Speed of the host backend against twins that move the same bytes</title>", f"<style>{STYLE}</style>",
           f'<rect class="back" width="{width}" height="{height}"/>']
    for index, (title, series) in enumerate(panels):
        out.append(f'<g transform="translate({10 + index % columns * PANEL_WIDTH} {index // columns * panel_height + 6})">')
        out.append(panel(title, series, 1.5))
        out.append("</g>")
    out.append(f'<text class="small" x="{LEFT + 10}" y="{height - 12}">Solid grey: the twin. Dashed grey: the goal at 124M elements. '
               f'Triangles: above the frame. One thread; collectives and steps one thread per rank.</text>')
    return "\n".join(out) + "\n</svg>\n"


def replace_table(page, text):
    begin, end = page.find(MARKS[0]), page.find(MARKS[1])
    if begin < 0 or end < begin:
        raise ValueError(f"the page lacks the lines {MARKS[0]} and {MARKS[1]}")
    return page[:begin + len(MARKS[0])] + "\n" + text + page[end:]


def write(file, text):
    with open(file, "w", encoding="utf-8") as stream:
        stream.write(text)


def main(arguments):
    files, options = [], {}
    rest = iter(arguments)
    for argument in rest:
        if argument in ("--svg", "--page"):
            options[argument] = next(rest, None)
        elif argument.startswith("-"):
            options[argument] = None
        else:
            files.append(argument)
    if not files or None in options.values():
        print(__doc__, file=sys.stderr)
        return 2
    rows, contexts = read(files)
    pairs = compare(rows)
    if "--svg" in options:
        write(options["--svg"], plot(pairs))
    text = machine(contexts) + "\n" + table(pairs)
    if "--page" in options:
        with open(options["--page"], encoding="utf-8") as stream:
            page = stream.read()
        write(options["--page"], replace_table(page, text))
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ValueError, KeyError, OSError) as error:
        print(f"bench_table.py: {error}", file=sys.stderr)
        sys.exit(1)
