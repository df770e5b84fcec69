#!/usr/bin/env python3
"""Draws the trace of a timeline as SVG: docs/timeline.svg. Python's standard library only.

usage: scripts/timeline_plot.py TRACE.json OUT.svg [--from MS] [--to MS]
Without limits it draws from the last decision but one to the end: one step and what surrounds it.
"""

import argparse
import json
from xml.sax.saxutils import escape

from bench_plot import STYLE

COLOURS = {"work": "c0", "reduce": "c1", "update": "c2", "gather": "c3", "publish": "c3", "inspect": "c4", "decide": "c5", "wait": "wait", "copy": "copy"}
EXTRA = ".wait { fill: #d0d7de; stroke: none } .copy { fill: #8c959f; stroke: none } @media (prefers-color-scheme: dark) { .wait { fill: #30363d } .copy { fill: #6e7681 } }"
LEFT, TOP, WIDTH, ROW, GAP = 190, 60, 900, 22, 6


def rows_of(events):
    """The tracks that have spans, in the order of rank and track, with their names."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    return [(row, f"rank {row[0]}, {names[row]}") for row in sorted(used)]


def step_of(events):
    """Begin and end of the last whole step, in microseconds."""
    decisions = sorted(e["ts"] + e["dur"] for e in events if e["ph"] == "X" and e["cat"] == "decide" and e["name"].startswith("gradient norm") and e["pid"] == 0)
    end = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X")
    return (decisions[-3] if len(decisions) > 2 else 0), end


def draw(events, begin, end):
    rows = rows_of(events)
    height = TOP + len(rows) * (ROW + GAP) + 34
    scale = WIDTH / (end - begin)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}"><style>{STYLE}{EXTRA}</style>']
    out.append(f'<rect class="back" width="100%" height="100%"/><text class="title" x="10" y="20">One training step, by rank and queue</text>')
    x = 10
    shown = {e["cat"] for e in events if e["ph"] == "X" and e["ts"] < end and e["ts"] + e["dur"] > begin}
    for phase, colour in COLOURS.items():
        if phase in shown:
            out.append(f'<rect class="{colour}" x="{x}" y="32" width="12" height="12"/><text class="small" x="{x + 17}" y="42">{phase}</text>')
            x += 40 + 7 * len(phase)
    for index, (row, name) in enumerate(rows):
        y = TOP + index * (ROW + GAP)
        out.append(f'<text class="small" x="10" y="{y + 15}">{escape(name)}</text><line class="grid" x1="{LEFT}" y1="{y + ROW + GAP / 2}" x2="{LEFT + WIDTH}" y2="{y + ROW + GAP / 2}"/>')
        for e in events:
            if e["ph"] != "X" or (e["pid"], e["tid"]) != row:
                continue
            first, last = max(e["ts"], begin), min(e["ts"] + e["dur"], end)
            if (last - first) * scale >= 0.15:
                out.append(
                    f'<rect class="{COLOURS[e["cat"]]}" x="{LEFT + (first - begin) * scale:.1f}" y="{y}" width="{max((last - first) * scale, 0.4):.1f}" height="{ROW}">'
                    f'<title>{escape(e["name"])}: {e["dur"] / 1e3:.3f} ms</title></rect>')
    y = TOP + len(rows) * (ROW + GAP) + 14
    for tick in range(6):
        at = LEFT + WIDTH * tick / 5
        out.append(f'<text class="small" x="{at:.0f}" y="{y}" text-anchor="middle">{(end - begin) * tick / 5 / 1e3:.1f}</text>')
    out.append(f'<text class="small" x="{LEFT + WIDTH / 2}" y="{y + 15}" text-anchor="middle">milliseconds</text></svg>')
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace")
    parser.add_argument("out")
    parser.add_argument("--from", dest="begin", type=float, help="milliseconds")
    parser.add_argument("--to", dest="end", type=float, help="milliseconds")
    options = parser.parse_args()
    with open(options.trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    begin, end = step_of(events)
    begin = begin if options.begin is None else options.begin * 1e3
    end = end if options.end is None else options.end * 1e3
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(draw(events, begin, end))


if __name__ == "__main__":
    main()
