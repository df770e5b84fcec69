"""Plots as SVG text, legible in light and dark, for bench_table.py and bench_scaling.py. Python's standard library only."""

from math import log

STYLE = """
text { font: 12px sans-serif; fill: #1f2328 } .small { font-size: 11px } .title { font-size: 14px; font-weight: bold }
.back { fill: #ffffff } .frame { fill: none; stroke: #8c959f } .grid { stroke: #d0d7de; stroke-width: 0.7 } .strong { stroke: #57606a; stroke-width: 1.2 }
.goal { stroke: #57606a; stroke-dasharray: 5 4 } .line { fill: none; stroke-width: 2 }
.c0 { stroke: #0969da; fill: #0969da } .c1 { stroke: #bc4c00; fill: #bc4c00 } .c2 { stroke: #1a7f37; fill: #1a7f37 }
.c3 { stroke: #8250df; fill: #8250df } .c4 { stroke: #bf3989; fill: #bf3989 } .c5 { stroke: #7d6a00; fill: #7d6a00 } .line { fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .back { fill: #0d1117 } .frame { stroke: #6e7681 } .grid { stroke: #30363d } .strong, .goal { stroke: #9198a1 }
.c0 { stroke: #58a6ff; fill: #58a6ff } .c1 { stroke: #f0883e; fill: #f0883e } .c2 { stroke: #3fb950; fill: #3fb950 }
.c3 { stroke: #bc8cff; fill: #bc8cff } .c4 { stroke: #f778ba; fill: #f778ba } .c5 { stroke: #d4b80c; fill: #d4b80c } .line { fill: none }
}
"""
LEFT, TOP, WIDTH, HEIGHT = 52, 34, 270, 190  # of the axes inside a panel
PANEL_WIDTH, LEGEND_LINE, MARGIN = 346, 15, 10
DASHES = ["", "7 3", "2 3"]


def short(number):
    """1.0M for 1048576; three digits from a hundred units on."""
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.{3 if number >= 100 * unit else 2}g}{letter}"
    return f"{number:.3g}"


class Axis:
    """Values from low to high, with these ticks; a tick with an empty text is only a line."""

    def __init__(self, label, low, high, ticks, is_log=False):
        self.label, self.low, self.high, self.ticks, self.is_log = label, low, high, ticks, is_log

    def part(self, value):
        """0 at the low end, 1 at the high end; clamped."""
        value = min(max(value, self.low), self.high)
        return log(value / self.low) / log(self.high / self.low) if self.is_log else (value - self.low) / (self.high - self.low)


class Panel:
    """One set of axes with lines and dots. Each name has a colour and a line in the legend."""

    def __init__(self, title, x, y):
        self.title, self.x, self.y = title, x, y
        self.names = []
        self.under = []
        self.over = []

    def x_of(self, value):
        return LEFT + 10 + (WIDTH - 20) * self.x.part(value)

    def y_of(self, value):
        return TOP + HEIGHT * (1 - self.y.part(value))

    def style_of(self, name):
        if name not in self.names:
            self.names.append(name)
        index = self.names.index(name)
        return f"c{index % 6}", DASHES[index // 6 % 3]

    def level(self, value, name, begin=0.0):
        """A horizontal line, from `begin` (a fraction of the width) to the right end."""
        self.under.append(f'<line class="{name}" x1="{LEFT + WIDTH * begin:.1f}" x2="{LEFT + WIDTH}" y1="{self.y_of(value):.1f}" y2="{self.y_of(value):.1f}"/>')

    def line(self, name, points):
        colour, dash = self.style_of(name)
        path = " ".join(f"{self.x_of(x):.1f},{self.y_of(y):.1f}" for x, y in points)
        self.over.append(f'<polyline class="line {colour}" stroke-dasharray="{dash}" points="{path}"/>')

    def dots(self, name, points):
        """A dot above the frame becomes a triangle at its top, with the number."""
        colour, _ = self.style_of(name)
        for value, height in points:
            x, y = self.x_of(value), self.y_of(height)
            if height > self.y.high:
                self.over.append(f'<path class="{colour}" d="M{x - 4:.1f} {y + 7:.1f} L{x + 4:.1f} {y + 7:.1f} L{x:.1f} {y:.1f} Z"/>')
                self.over.append(f'<text class="small" x="{x + 7:.1f}" y="{y + 11:.1f}">{height:.1f}</text>')
            else:
                self.over.append(f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')

    def svg(self):
        out = [f'<text class="title" x="{LEFT}" y="20">{self.title}</text>']
        for value, text in self.y.ticks:
            y = self.y_of(value)
            out.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
            out.append(f'<text class="small" text-anchor="end" x="{LEFT - 5}" y="{y + 4:.1f}">{text}</text>')
        foot = TOP + HEIGHT
        for value, text in self.x.ticks:
            x = self.x_of(value)
            out.append(f'<line class="frame" x1="{x:.1f}" x2="{x:.1f}" y1="{foot}" y2="{foot + 4}"/>')
            out.append(f'<text class="small" text-anchor="middle" x="{x:.1f}" y="{foot + 17}">{text}</text>')
        out.append(f'<text class="small" text-anchor="middle" x="{LEFT + WIDTH / 2}" y="{foot + 33}">{self.x.label}</text>')
        out.append(f'<text class="small" text-anchor="middle" transform="translate(12 {TOP + HEIGHT / 2}) rotate(-90)">{self.y.label}</text>')
        out += self.under
        out.append(f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"/>')
        out += self.over
        for index, name in enumerate(self.names):
            colour, dash = self.style_of(name)
            y = foot + 50 + LEGEND_LINE * index
            out.append(f'<line class="line {colour}" stroke-dasharray="{dash}" x1="{LEFT}" x2="{LEFT + 24}" y1="{y}" y2="{y}"/>')
            out.append(f'<text class="small" x="{LEFT + 30}" y="{y + 4}">{name}</text>')
        return "\n".join(out)


def page(title, panels, columns, note):
    """All panels, with a line of text below them."""
    columns = min(columns, len(panels))
    row_heights = [TOP + HEIGHT + 56 + LEGEND_LINE * max(len(panel.names) for panel in panels[first:first + columns]) for first in range(0, len(panels), columns)]
    width, height = columns * PANEL_WIDTH + MARGIN, sum(row_heights) + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
           f"<title>{title}</title>", f"<style>{STYLE}</style>", f'<rect class="back" width="{width}" height="{height}"/>']
    for index, panel in enumerate(panels):
        x, y = MARGIN + index % columns * PANEL_WIDTH, sum(row_heights[:index // columns]) + 6
        out.append(f'<g transform="translate({x} {y})">\n{panel.svg()}\n</g>')
    out.append(f'<text class="small" x="{LEFT + MARGIN}" y="{height - 12}">{note}</text>')
    return "\n".join(out) + "\n</svg>\n"
