#!/usr/bin/env python3
"""Draws the figures of a run, which `--json` has written:

    chart.py FIGURES.json CHART.svg
"""

import json
import statistics
import sys
from typing import NamedTuple

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 the backend comes first
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

OURS, TARGET, OTHERS = "#0b6e4f", "#b45f06", "#9aa5b1"
INK, FAINT = "#22272e", "#d0d7de"

def draw(figures, path):
    """A panel for each question whose subject was measured."""
    panels = [(panel, panel.bars(figures["rows"])) for panel in PANELS]
    panels = [(panel, bars) for panel, bars in panels if bars]
    if not panels:
        print("chart: nothing of what it shows was measured", file=sys.stderr)
        return
    plt.rcParams.update({"font.family": "sans-serif", "font.size": 9, "svg.hashsalt": "zrfs", "svg.fonttype": "path",
                         "axes.edgecolor": FAINT, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK,
                         "ytick.color": INK})
    # Two panels a row; the long one has a row of its own.
    short_ones = [each for each in panels if isinstance(each[0], Values)]
    rows = [short_ones[at:at + 2] for at in range(0, len(short_ones), 2)]
    rows += [[each] for each in panels if each not in short_ones]
    heights = [max(len(bars) for _, bars in row) + 3 for row in rows]
    figure = plt.figure(figsize=(11, 0.24 * sum(heights) + 1.1), layout="constrained")
    grid = figure.add_gridspec(len(rows), 2, height_ratios=heights)
    for at, row in enumerate(rows):
        for place, (panel, bars) in enumerate(row):
            column = place if len(row) == 2 else slice(None)
            draw_panel(figure.add_subplot(grid[at, column]), panel, bars)
    about = figures["machine"]
    figure.suptitle(f"zrfs beside what people use today\n{about['cpu']}, {about['cores']} cores, Linux {about['kernel']},"
                    f" {about['file_system']}, {about['date']}{', little data (--quick)' if figures.get('quick') else ''}",
                    fontsize=10)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


class Bar(NamedTuple):
    name: str
    value: float
    # zrfs, or a figure of it.
    ours: bool
    target: float | None = None


class Values(NamedTuple):
    """The value of each side in one measure, the best first."""

    title: str
    subject: str
    # The measure's name, or its last words.
    measure: str
    unit: str
    better: str = "longer"

    def bars(self, rows):
        seen = {}
        for row in rows:
            if row["subject"] != self.subject or not f", {row['measure']}".endswith(f", {self.measure}"):
                continue
            if row["peer"] is not None:
                seen[row["peer"]] = row["peer_samples"]
            # A side stands beside several peers, and not in as many rounds with each.
            seen[row["side"]] = max(row["samples"], seen.get(row["side"], []), key=len)
        values = {side: statistics.median(samples) for side, samples in seen.items()}
        ordered = sorted(values, key=values.get, reverse=self.better == "longer")
        return [Bar(side, values[side], side.startswith("zrfs")) for side in ordered]


class Ratios(NamedTuple):
    """How many times as fast as a peer, with the targets that are set."""

    title: str
    peer: str
    # Subjects, and the side of each.
    sides: dict[str, str]
    unit: str
    better: str = "longer"

    def bars(self, rows):
        return [Bar(f"{subject}, {row['measure']}", row["ratio"], True, float(row["target"].removeprefix(">= ")))
                for subject, side in self.sides.items() for row in rows
                if (row["subject"], row["side"], row["peer"]) == (subject, side, self.peer)
                and row.get("target", "").startswith(">= ")]


PANELS = [
    Values("12 KiB files, random, cold, 2 clients", "files", "12 KiB, cold, random, 2 clients", "files/s"),
    Values("12 KiB files, random, warm, 2 clients", "files", "12 KiB, warm, random, 2 clients", "files/s"),
    Values("110 kB JPEGs, random, cold, 2 clients", "files", "110 kB JPEG, cold, random, 2 clients", "files/s"),
    Values("110 kB JPEGs, random, warm, 2 clients", "files", "110 kB JPEG, warm, random, 2 clients", "files/s"),
    Values("Batches of 12 KiB records from memory, raw", "records", "12 KiB raw, batches of 256", "records/s"),
    Values("Batches of 12 KiB records from memory, compressed", "records", "12 KiB compressed, batches of 256",
           "records/s"),
    Values("Listing one folder, names, first time", "listing", "one folder, names, first", "µs a name", "shorter"),
    Values("Listing one folder, with attributes, first time", "listing", "one folder, attributes, first", "µs a name",
           "shorter"),
    Values("Mounting a folder of 1 KiB files, to the first byte", "mounting", "mount", "ms", "shorter"),
    Ratios("Library and batch streams beside loaderx 0.5.0, by the record", "loaderx",
           {"gather": "zrfs", "append": "zrfs", "loader": "zrfs", "streaming": "mount"}, "times as fast as loaderx"),
]


def draw_panel(axes, panel, bars):
    places = range(len(bars))
    values = [bar.value for bar in bars]
    targets = [(place, bar.target) for place, bar in enumerate(bars) if bar.target is not None]
    colours = [OURS if bar.ours else OTHERS for bar in bars]
    # A value is a position on a scale of powers of ten: a dot says that, a bar from nowhere would not.
    low = min(values + [target for _, target in targets]) / 2
    axes.hlines(places, low, values, color=colours, linewidth=2)
    axes.scatter(values, places, color=colours, s=26, zorder=3)
    axes.set_xscale("log")
    axes.set_xlim(low, max(values) * 4)
    axes.set_yticks(list(places), [bar.name for bar in bars])
    axes.invert_yaxis()
    axes.set_ylim(len(bars) - 0.4, -0.6)
    for place, bar in enumerate(bars):
        # Not on a target that stands close by.
        close = bar.target is not None and bar.value < bar.target < 1.3 * bar.value
        axes.annotate(number(bar.value), (bar.target if close else bar.value, place), (6, 0), textcoords="offset points",
                      va="center", fontsize=8)
    if targets:
        axes.vlines([target for _, target in targets], [place - 0.32 for place, _ in targets],
                    [place + 0.32 for place, _ in targets], color=TARGET, linewidth=1.6, zorder=4, label="target")
        axes.legend(loc="lower right", frameon=False, fontsize=8)
    axes.set_title(panel.title, fontsize=9.5, loc="left", fontweight="bold")
    axes.set_xlabel(f"{panel.unit} (log scale, {panel.better} is better)", fontsize=8)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    narrow = max(values) / low < 50
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def number(value):
    """As it is read: 2 digits, thousands with commas."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def short(value):
    """As a tick has it."""
    for factor, letter in ((1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        draw(json.load(file), sys.argv[2])
