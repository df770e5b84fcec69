#!/usr/bin/env python3
"""Makes one table and a plot from JSON results of Google Benchmark. scripts/bench.sh calls it. Python's standard library only.

usage: bench_table.py RESULT.json... [--svg PLOT.svg] [--page PAGE] [--goals PAGE]
       bench_table.py PAGE.txt [--svg PLOT.svg] [--goals PAGE]

A benchmark is called operation/case/who/elements. It is compared with the "twin" of the same operation, case, number of elements and threads; the ratio is
that of the median throughputs. Without a twin of its own, a case of a device is compared with that device's copy. The time of the host and the memory of a step on a
device stand below the table. A result that has no place in the table is listed below it, with the reason. --svg draws the ratios over the number of elements. With --page the table replaces the text of the page between the lines
<!-- table --> and <!-- end of table -->. Without both the table is printed. --goals writes the rows that have a goal, and the machine, into a page in the same way,
between <!-- goals --> and <!-- end of goals -->. The second form takes the numbers from a page that --page has written, so that they stay the same.
"""

import json
import re
import statistics
import sys

from bench_plot import Axis, Panel, page, short

GPT2 = 124_439_808
OPERATIONS = ["copy", "flatten", "unflatten", "sum", "norm", "update", "encode", "decode", "decode_sum", "sum_ranks", "reduce_scatter", "all_gather", "reduce_scatter_of_1_KB", "step", "processes",
              "offload_step", "offload_checksums", "offload_depth", "offload_ratio", "tensor_update", "matrix_product"]
DEVICE_GOALS = {"flatten": 0.95, "unflatten": 0.95, "sum": 0.95, "norm": 0.95, "update": 0.95, "encode": 0.85, "decode": 0.85, "step": 0.9}
HOST_GOALS = {"host_us": (100, "us of the host in a step"), "collective_us": (10, "us of the host for each collective")}
OFFLOAD_GOALS = {"offload_step": 0.9, "offload_checksums": 0.95, "offload_depth": 1.15, "offload_ratio": 1.54}  # the last: 0.65 of the time
MARKS = ("<!-- table -->", "<!-- end of table -->")
GOAL_MARKS = ("<!-- goals -->", "<!-- end of goals -->")


def goal_of(row):
    """The goal: the least ratio at the size of GPT-2 124M, and of the smallest collective; None: no goal. Of a device: the fraction of its copy, and for a step of the
    sum of its passes."""
    if row.operation == "reduce_scatter_of_1_KB":
        return 1.0
    if row.elements != GPT2:
        return None
    if row.is_of_device():
        return DEVICE_GOALS.get(row.operation) if row.who in ("zero", "adamw") and "odd" not in row.case else None
    if row.operation == "update":
        return 0.9 if row.who == "adamw" else None
    if row.operation in ("encode", "decode_sum"):
        return None if row.case.endswith("errors") else 0.65 if row.operation == "decode_sum" and "int4" in row.case else 0.85
    if row.operation == "step":
        return None if "int8" in row.who else 0.85 if "clipped" in row.case else 0.95
    return {"flatten": 0.9, "unflatten": 0.9, "norm": 0.8, "reduce_scatter": 0.85, "all_gather": 0.85, "processes": 0.9, **OFFLOAD_GOALS}.get(row.operation)


def words(name):
    return re.sub(r"\bW(\d+)", r"W = \1", name.replace("_", " "))


class Row:
    """The repetitions of one benchmark."""

    def __init__(self, name):
        self.name = name
        parts = name.split("/")
        threads = [part for part in parts if part.startswith("threads:")]
        parts = [part for part in parts if part not in threads and not re.fullmatch(r"(real|manual|process)_time|(min_time|min_warmup_time|iterations|repeats):.*", part)]
        self.is_named_well = len(parts) == 4 and parts[3].isdigit()
        self.operation, self.case, self.who = parts[:3] if self.is_named_well else (name, "", "")
        self.elements = int(parts[3]) if self.is_named_well else 0
        self.threads = int(threads[0].split(":")[1]) if threads else 1
        self.seconds = []
        self.bytes = []
        self.items = []
        self.counters = {}
        self.runs = []

    def add(self, run):
        unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[run["time_unit"]]
        self.seconds.append(run["real_time"] * unit * self.threads)  # Google Benchmark divides it by the number of threads
        for values, key in ((self.bytes, "bytes_per_second"), (self.items, "items_per_second")):
            if key in run:
                values.append(run[key])
        self.counters = run
        self.runs.append(run)

    def counter(self, name):
        """The median over all repetitions; None if the benchmark has no such counter."""
        values = [run[name] for run in self.runs if name in run]
        return statistics.median(values) if values else None

    def is_of_device(self):
        return self.case.startswith("cuda")

    def pair(self):
        return self.operation, self.case, self.elements, self.threads

    def order(self):
        known = OPERATIONS.index(self.operation) if self.operation in OPERATIONS else len(OPERATIONS)
        return known, self.operation, self.case, self.who, self.threads, self.elements

    def title(self):
        who = "" if self.who == "zero" else " " + self.who
        threads = "" if self.threads == 1 else f", {self.threads} threads"
        return words(f"{self.operation} {self.case}{who}{threads}")

    def ratio(self, twin):
        """Speed relative to the twin: by bytes, since these may differ; by items or by time where no bytes are counted."""
        for own, other in ((self.bytes, twin.bytes), (self.items, twin.items)):
            if own and other:
                return statistics.median(own) / statistics.median(other)
        return statistics.median(twin.seconds) / statistics.median(self.seconds)

    def spread(self):
        """The range of the middle half of the repetitions, relative to their median."""
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
    """The rows, each from its latest run, and the contexts, which describe the machine."""
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
    """(row, its twin) in the order of the table, and (row, reason) of those that have no place in it."""
    twins = {row.pair(): row for row in rows if row.who == "twin"}
    pairs, others = [], []
    for row in sorted(rows, key=Row.order):
        if not row.is_named_well:
            others.append((row, "its name is not operation/case/who/elements"))
            continue
        copy = twins.get(("copy", "cuda", row.elements, row.threads)) if row.is_of_device() else None
        twin = twins.get(row.pair(), copy)
        if row.operation == "scaling" or (row.who == "twin" and row is not copy):  # bench_scaling.py shows the first
            continue
        if twin is None:
            others.append((row, "no result of its twin"))
        else:
            pairs.append((row, twin))
    return pairs, others


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


def beside_the_device(row):
    """One line for a step on a device: the time of the host, and its memory plan beside what the memory pool of the device handed out and holds."""
    parts = []
    for name, (goal, what) in HOST_GOALS.items():
        value = row.counter(name)
        if value is not None:
            met = f" (goal: below {goal}, {'met' if value < goal else 'missed'})" if row.elements == GPT2 else ""
            parts.append(f"{value:.3g} {what}{met}")
    planned, used, reserved = (row.counter(name) for name in ("planned_bytes", "pool_used_bytes", "pool_reserved_bytes"))
    if used is not None:
        parts.append(f"{planned * 1e-6:.1f} MB planned, {used * 1e-6:.1f} MB taken from the pool, which holds {reserved * 1e-6:.1f} MB")
    return f"- {row.title()}, {row.elements} elements: {'; '.join(parts)}" if parts else None


def table(pairs, others=()):
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
    beside = [line for row, _ in pairs if (line := beside_the_device(row))]
    below = [f"- {row.name}, {time_text(statistics.median(row.seconds))}: {reason}" for row, reason in others]
    if below:
        below = ["", "Not in the table:", ""] + below
    if beside:
        below = ["", "Host and memory:", ""] + beside + below
    return "\n".join([text(head), rule] + [text(line) for line in lines[1:]] + below) + "\n"


class Line:
    """What the plot and the tables of goals show of a row of the table: the numbers that stand there."""

    def __init__(self, title, elements, ratio, goal):
        self.title, self.elements, self.ratio = title, int(elements), float(ratio)
        self.goal, _, met = goal.partition(", ")
        self.is_met = met == "met"
        self.operation = max((one for one in OPERATIONS if title.startswith(words(one) + " ")), key=len, default=None)


def lines_of(table_text):
    """The lines of a table that `table` has made."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table_text.splitlines() if line.startswith("| ")]
    return [Line(row[0], row[1], row[5], row[7]) for row in rows[1:]]


# What stands side by side in the tables of goals: the last words of a title.
VARIANTS = [r", (\d+ threads)$", r" (W = \d+)$", r"(?: gathered| replicated)? (stage \d)$"]


def goals(lines):
    """The rows that have a goal: one table for each kind of variant, with a column for each variant; a ratio that misses its goal is bold."""
    tables = {}
    for line in lines:
        if not line.goal:
            continue
        kind, what, variant = 0, line.title, "1 thread"
        for number, pattern in enumerate(VARIANTS):
            if found := re.search(pattern, what):
                kind, what, variant = number, what[:found.start()], found[1]
        emphasis = "" if line.is_met else "**"
        tables.setdefault(kind, {}).setdefault((what, line.goal), {})[variant] = f"{emphasis}{line.ratio:.2f}{emphasis}"
    texts = []
    for cells_of in tables.values():
        variants = sorted({variant for cells in cells_of.values() for variant in cells})
        text = [f"| ratio | goal | {' | '.join(variants)} |", "|---|" + "---:|" * (1 + len(variants))]
        for (what, goal), cells in cells_of.items():
            text.append(f"| {what} | {goal} | {' | '.join(cells.get(variant, '') for variant in variants)} |")
        texts.append("\n".join(text) + "\n")
    return "\n".join(texts)


def machine(contexts):
    """One line per machine, compiler and day."""
    lines = []
    for context in contexts:
        line = (f"{context.get('cpu', 'unknown processor')}, {context.get('num_cpus', '?')} cores, {context.get('compiler', 'unknown compiler')}, "
                f"{context.get('date', 'unknown date')[:10]}")
        if line not in lines:
            lines.append(line)
    return "Measured on " + "; ".join(lines) + ".\n"


# The plot: one panel per operation, one line per case.

PANELS = [("flatten and unflatten", ("flatten", "unflatten")), ("norm", ("norm",)), ("update", ("update",)), ("reduce-scatter", ("reduce_scatter",)),
          ("all-gather", ("all_gather",)), ("step, 2 ranks", ("step",))]


def series_of(lines, operations):
    """Name -> [(elements, ratio, goal)], of one thread; only benchmarks measured at more than one size."""
    series = {}
    for line in lines:
        if line.operation in operations and not re.search(VARIANTS[0], line.title):
            name = line.title[len(line.operation) + 1:] if len(operations) == 1 else line.title
            series.setdefault(name, []).append((line.elements, line.ratio, float(line.goal) if line.goal else None))
    return {name: sorted(points) for name, points in series.items() if len(points) > 1}


def panel_of(title, series):
    sizes = sorted({elements for points in series.values() for elements, _, _ in points})
    quarters = [(step * 0.25, f"{step * 0.25:.1f}" if step % 2 == 0 else "") for step in range(7)]
    panel = Panel(title, Axis("elements", sizes[0], sizes[-1], [(size, short(size)) for size in sizes], True), Axis("speed / speed of the twin", 0.0, 1.5, quarters))
    panel.level(1.0, "strong")
    for goal in sorted({goal for points in series.values() for _, _, goal in points if goal is not None}):
        panel.level(goal, "goal", 0.5)
    for name, points in series.items():
        panel.line(name, [(elements, ratio) for elements, ratio, _ in points])
        panel.dots(name, [(elements, ratio) for elements, ratio, _ in points])
    return panel


def plot(lines):
    panels = [(title, series_of(lines, operations)) for title, operations in PANELS]
    panels = [panel_of(title, series) for title, series in panels if series]
    if not panels:
        raise ValueError("nothing to draw: no operation was measured at more than one size")
    return page("Speed of the host backend against twins that move the same bytes", panels, 3,
                "Solid grey: the twin. Dashed grey: the goal at 124M elements. Triangles: above the frame. One thread; collectives and steps: one thread per rank.")


def place_of(marks, text_of_page):
    """Begin and end of the text between two marks."""
    begin, end = text_of_page.find(marks[0]), text_of_page.find(marks[1])
    if begin < 0 or end < begin:
        raise ValueError(f"the page lacks the lines {marks[0]} and {marks[1]}")
    return begin + len(marks[0]) + 1, end


def replace_between(marks, text_of_page, text):
    begin, end = place_of(marks, text_of_page)
    return text_of_page[:begin] + text + text_of_page[end:]


def write(file, text):
    with open(file, "w", encoding="utf-8") as stream:
        stream.write(text)


def replace_in(page_file, marks, text):
    with open(page_file, encoding="utf-8") as stream:
        old = stream.read()
    write(page_file, replace_between(marks, old, text))


def arguments_of(arguments):
    """Files, and options with their values. A value is None if it is missing, or if the option does not exist; that of --help is "help"."""
    files, options = [], {}
    rest = iter(arguments)
    for argument in rest:
        if argument in ("--svg", "--page", "--goals"):
            options[argument] = next(rest, None)
        elif argument == "--help":
            options[argument] = "help"
        elif argument.startswith("-"):
            options[argument] = None
        else:
            files.append(argument)
    return files, options


def publish(options, plot_text, marks, text):
    if "--svg" in options:
        write(options["--svg"], plot_text())
    if "--page" in options:
        replace_in(options["--page"], marks, text)
    elif "--svg" not in options:
        print(text, end="")


def main(arguments):
    files, options = arguments_of(arguments)
    if "--help" in options:
        print(__doc__)
        return 0
    if not files or None in options.values():
        print(__doc__, file=sys.stderr)
        return 2
    if files[0].endswith(".txt"):
        with open(files[0], encoding="utf-8") as stream:
            page_text = stream.read()
        begin, end = place_of(MARKS, page_text)
        text = page_text[begin:end]
    else:
        rows, contexts = read(files)
        text = machine(contexts) + "\n" + table(*compare(rows))
    lines = lines_of(text)
    publish(options, lambda: plot(lines), MARKS, text)
    if "--goals" in options:
        replace_in(options["--goals"], GOAL_MARKS, text.split("\n", 1)[0] + "\n\n" + goals(lines))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ValueError, KeyError, OSError) as error:
        print(f"bench_table.py: {error}", file=sys.stderr)
        sys.exit(1)
