#!/usr/bin/env python3
"""Measures zrfs beside loaderx 0.5.0, record stores, file systems and archives, in pairs, in one run.

Run it with `bash benches/peers/run.sh`; see benches/README.md.

Every library is measured in a side program of its own, which this script drives by commands on a pipe (main.rs lists
them); other record stores and np.take run here. Each side times itself. A round takes the sides one after another and
each round begins with another one; a ratio is the median of the rounds' own ratios, so that a slow spell of the machine
hits all sides. What is read is checked against its source before or after the clock runs. Nothing is asserted about times.
"""

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
import time

import append
import files
import gather
import importing
import listing
import loader
import mounting
import mounts
import records
import sampler
import scaling
import streaming
from budget import Budget
from machine import machine
from results import Results, say
from sides import LOADERX, ZRFS, ZRFS_C, Programs, Wrong

SUBJECTS = {"gather": gather, "append": append, "loader": loader, "sampler": sampler, "files": files,
            "streaming": streaming, "importing": importing, "listing": listing, "mounting": mounting,
            "records": records, "scaling": scaling}

# Seconds of a subject, in full and with --quick: 28 minutes and 2.5. What a subject begins it ends, so a run may take
# somewhat longer.
SECONDS = {"gather": (130, 20), "append": (100, 15), "loader": (60, 13), "sampler": (15, 4), "files": (540, 35),
           "streaming": (60, 12), "importing": (130, 14), "listing": (330, 14), "mounting": (70, 12),
           "records": (100, 11), "scaling": (160, 5)}

# Rounds of a subject at most, in full; --quick does 3 at most, --smoke 1.
ROUNDS = {"gather": 15, "append": 5, "loader": 5, "sampler": 15, "files": 7, "streaming": 7, "importing": 5,
          "listing": 3, "mounting": 5, "records": 5, "scaling": 3}

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Run:
    """What every subject gets: the options, a folder of its own, the programs, its time, and where its rows go."""

    def __init__(self, args, folder, programs, results):
        self.args = args
        self.folder = folder
        self.programs = programs
        self.results = results
        self.smoke = args.smoke
        self.quick = args.quick
        # Of the subject, and of its case.
        self.budget = self.part = Budget(None)
        self.said = set()

    def path(self, name):
        return os.path.join(self.folder, name)

    def records(self, count, share=5):
        """So many records; one in `share` of them with --quick, and few where it is only about correctness."""
        return min(count, 100) if self.smoke else count // share if self.quick else count

    def times(self, count):
        """So many batches in a timing, or few."""
        return min(count, 2) if self.smoke else count

    def cases(self, cases, weight=lambda case: 1):
        """The cases one after another, each with its share of the subject's time by its weight."""
        for case, part in self.budget.shares(cases, weight):
            if part is None:
                self.leave_out(f"{self.results.subject}, {getattr(case, 'name', case)}", "no time is left")
                continue
            self.part = part
            yield case

    def rounds(self, kind=lambda number: None):
        """The rounds that fit into the case's time; those of a kind take about as long as each other."""
        most = ROUNDS[self.results.subject]
        yield from self.part.rounds(1 if self.smoke else min(3, most) if self.quick else most, kind)

    def leave_out(self, what, why):
        """Says once that something is not measured."""
        if what not in self.said:
            self.said.add(what)
            self.results.left_out.append({"what": what, "why": why})
            say(f"{what} is left out: {why}")

    def start(self, *names):
        """The side programs of these names, in a context that ends them."""
        return self.programs.start(*names)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], prog="cargo bench --bench peers --",
        usage="%(prog)s [--quick | --smoke] [--only SUBJECT...] [--json FILE] [--chart FILE.svg] [--dir DIR]\n"
              "       [--writer SIDE] [--mount-options OPTS]...",
        epilog="Paths are relative to the repository. `cargo bench` gives the programs and folders that are measured.")
    for given in ("--side", "--library", "--zrfs", "--pictures"):
        parser.add_argument(given, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--dir", default=".", help="where the temp folder goes; it wants 6 GB (target/tmp)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="less data, few rounds: 3 minutes")
    length.add_argument("--smoke", action="store_true", help="checks everything on little data, measures nothing")
    parser.add_argument("--json", metavar="FILE", help="write all samples to FILE, too")
    parser.add_argument("--chart", metavar="FILE", help="draw a chart into FILE (.svg), too")
    parser.add_argument("--only", nargs="+", metavar="SUBJECT", choices=list(SUBJECTS), default=list(SUBJECTS),
                        help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--writer", metavar="SIDE", choices=[LOADERX, ZRFS, ZRFS_C], default=LOADERX,
                        help="who writes the store that all gather from: loaderx, zrfs or 'zrfs through C' (loaderx)")
    parser.add_argument("--mount-options", action="append", metavar="OPTS",
                        help="in files, measure a mount with -o OPTS ('' is the default mount); may be given again"
                             " ('' and dataonly)")
    args = parser.parse_args()
    # Before anything is measured, not after half an hour.
    if args.chart and not args.chart.endswith(".svg"):
        parser.error(f"--chart {args.chart}: only .svg is drawn")
    for option, path in (("--json", args.json), ("--chart", args.chart)):
        if path and args.smoke:
            parser.error(f"{option} {path}: --smoke measures nothing")
        if path and not os.access(os.path.dirname(path) or ".", os.W_OK):
            parser.error(f"{option} {path}: its folder is not there, or may not be written")
    if not os.access(args.dir, os.W_OK | os.X_OK):
        parser.error(f"--dir {args.dir}: it is not there, or may not be written")
    return args


def end_with_the_caller():
    """Cargo does not pass a signal on. Where it is ended, so is this, and cleans up."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def stay():
    """From now on nothing ends the cleaning up half way."""
    for each in SIGNALS:
        # Not SIG_IGN: Python complains about a signal that came just before.
        signal.signal(each, lambda *_: None)


def on_signal(number, _):
    stay()
    say("peers: interrupted; removing its mounts and files")
    sys.exit(128 + number)


@contextlib.contextmanager
def private_folder(parent):
    """A new folder, of which nothing is left: no mount, no daemon, no file."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix="zrfs-peers-", dir=parent))
    try:
        yield folder
    finally:
        stay()
        try:
            mounts.clear(folder)
        finally:
            # Begins again where something is gone meanwhile: the rest has to go, too.
            while os.path.lexists(folder):
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(folder)


def measure(args, folder, results):
    """Gives back what went wrong, if anything did."""
    try:
        run = Run(args, folder, Programs(args.side, args.library, folder), results)
        seconds = {name: SECONDS[name][args.quick] for name in SUBJECTS if name in args.only}
        whole = Budget(None if args.smoke else sum(seconds.values()))
        for name, budget in whole.shares(seconds, seconds.get):
            if budget is None:
                run.leave_out(name, "no time is left")
                continue
            results.subject, run.budget, run.part = name, budget, budget
            begin = time.monotonic()
            SUBJECTS[name].measure(run)
            results.seconds[name] = round(time.monotonic() - begin, 1)
            say(f"{name}: {results.seconds[name]:.0f} s")
    except (Wrong, mounts.Unavailable, OSError) as wrong:
        return wrong
    return None


def main():
    args = arguments()
    for number in SIGNALS:
        signal.signal(number, on_signal)
    end_with_the_caller()
    results = Results(quiet=args.smoke)
    with private_folder(args.dir) as folder:
        about = machine(folder)
        print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
        if not args.smoke and about["load_before"] > about["cores"] / 2:
            say(f"peers: the machine is busy (load {about['load_before']} on {about['cores']} cores): the figures are not its own")
        failure = measure(args, folder, results)
    if not args.smoke:
        print("\nMedians. Ratio: the side over its peer in speed (in size, memory and growth: itself), the median of the"
              f" rounds' own ratios.\n{results.tables()}")
    figures = {"machine": about, "quick": args.quick, "seconds": results.seconds, "rows": results.rows, "left_out": results.left_out}
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
        say(f"peers: all samples are in {args.json}")
    if failure:
        sys.exit(f"peers: {failure}")
    if args.chart:
        # It needs matplotlib, and nothing else here does.
        from chart import draw  # noqa: PLC0415
        draw(figures, args.chart)
        say(f"peers: the chart is {args.chart}")
    ran = dict.fromkeys(row["subject"] for row in results.rows)
    print(f"\nAll that was checked is what was written: {', '.join(ran)}.")


if __name__ == "__main__":
    main()
