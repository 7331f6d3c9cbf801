"""The rows of a run and their tables."""

import statistics
import sys
from itertools import groupby

HEAD = ["measure", "unit", "side", "its", "peer", "its", "ratio", "min-max", "rounds", "target", "met"]
RIGHT = {3, 5, 6, 8}


def say(text):
    print(text, file=sys.stderr, flush=True)


class Results:
    def __init__(self, quiet):
        self.quiet = quiet
        self.subject = None
        self.rows = []
        self.left_out = []
        # That each subject took.
        self.seconds = {}

    def add(self, measure, unit, side, samples, peer=None, peer_samples=(), target=None, at_most=False, rate=True,
            limit=None):
        """Adds a row; without a peer it has no ratio.

        Samples are one a round. `rate` tells whether more is faster. `target` is one of the ratio, at least or `at_most`;
        `limit` is what the value itself may be at most.
        """
        row = {"subject": self.subject, "measure": measure, "unit": unit, "side": side, "samples": list(samples),
               "value": statistics.median(samples), "peer": peer}
        if peer is not None:
            pairs = [a / b if rate or at_most else b / a for a, b in zip(samples, peer_samples, strict=True)]
            ratio = statistics.median(pairs)
            row |= {"peer_samples": list(peer_samples), "peer_value": statistics.median(peer_samples),
                    "ratio": ratio, "ratio_min": min(pairs), "ratio_max": max(pairs)}
            if target is not None:
                row["target"] = f"{'<=' if at_most else '>='} {target}"
                row["met"] = ratio <= target if at_most else ratio >= target
        if limit is not None:
            row["target"] = f"<= {limit} {unit}"
            row["met"] = row["value"] <= limit
        self.rows.append(row)
        if not self.quiet:
            say(f"  {measure}, {side}" + (f" beside {peer}: {row['ratio']:.3g}" if peer else "")
                + f", rounds: {len(row['samples'])}")

    def tables(self):
        """One table a subject."""
        return "\n".join(f"\n{subject}\n\n{table(list(rows))}"
                         for subject, rows in groupby(self.rows, key=lambda row: row["subject"]))


def table(rows):
    lines = [HEAD]
    for row in rows:
        line = [row["measure"], row["unit"], row["side"], number(row["value"])]
        if row["peer"] is None:
            line += [""] * 4
        else:
            line += [row["peer"], number(row["peer_value"]), f"{row['ratio']:.3g}",
                     f"{row['ratio_min']:.3g}-{row['ratio_max']:.3g}"]
        line += [str(len(row["samples"])), row.get("target", ""), {None: "", True: "yes", False: "no"}[row.get("met")]]
        lines.append(line)
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.rjust(w) if i in RIGHT else cell.ljust(w)
                          for i, (cell, w) in enumerate(zip(line, widths, strict=True))) + " |"
        for line in lines)


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
