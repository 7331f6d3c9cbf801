#!/usr/bin/env python3
"""Measures zrfs beside loaderx 0.5.0, np.take and plain files, in pairs, in one run.

Run it with `cargo bench --bench beside_loaderx`; see benches/README.md.

Every library is measured in a side program of its own, which this script drives by commands on a pipe (main.rs lists
them); np.take runs here. Each side times itself. A round takes the sides one after another and each round begins with
another one; a ratio is the median of the rounds' own ratios, so that a slow spell of the machine hits all sides.
Everything read is checked against its source before it is timed. Nothing is asserted about times.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from importlib.metadata import version

import numpy as np

import append
import gather
import importing
import loader
import mounted
import sampler
import streaming
from data import MIB
from results import Results
from sides import LOADERX, ZRFS, ZRFS_C, Programs, Wrong

SUBJECTS = {"gather": gather, "append": append, "loader": loader, "sampler": sampler, "mounted": mounted,
            "streaming": streaming, "importing": importing}

# Rounds of a run: in full, --quick, --smoke.
ROUNDS = {"gather": (15, 3, 1), "append": (5, 3, 1), "loader": (7, 3, 1), "sampler": (15, 3, 1),
          "mounted": (7, 3, 1), "streaming": (7, 3, 1), "importing": (5, 3, 1)}


def machine(folder):
    model = "unknown"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    device = os.stat(folder).st_dev
    file_system = "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            if line.split(" ")[2] == f"{os.major(device)}:{os.minor(device)}":
                file_system = line.split(" - ", 1)[1].split(" ")[0]
    return {
        "cores": len(os.sched_getaffinity(0)), "cpu": model, "kernel": platform.release(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        "file_system": file_system, "python": platform.python_version(), "numpy": np.__version__,
        "loaderx": version("loaderx"), "load_before": round(os.getloadavg()[0], 2),
    }


class Run:
    """What every subject gets: the options, a folder of its own, the programs, and where its rows go."""

    def __init__(self, args, folder, programs, results):
        self.args = args
        self.folder = folder
        self.programs = programs
        self.results = results
        self.rounds = None
        self.smoke = args.smoke

    def path(self, name):
        return os.path.join(self.folder, name)

    def records(self, count):
        """So many records, or few where it is only about correctness."""
        return min(count, 100) if self.smoke else count

    def times(self, count):
        """So many batches in a timing, or few."""
        return min(count, 2) if self.smoke else count

    def start(self, *names):
        """The side programs of these names, in a context that ends them."""
        return self.programs.start(*names)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--side", required=True, help="the side program: the bench target beside_loaderx, built")
    parser.add_argument("--library", required=True, help="libzrfs.so")
    parser.add_argument("--zrfs", required=True, help="the program zrfs")
    parser.add_argument("--dir", default=".", help="where the temp folder goes; it wants 3 GB on a disk (default: .)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="3 rounds of each")
    length.add_argument("--smoke", action="store_true", help="checks everything on little data, measures nothing")
    parser.add_argument("--json", metavar="FILE", help="write all samples to FILE, too")
    parser.add_argument("--only", nargs="+", choices=list(SUBJECTS), default=list(SUBJECTS))
    parser.add_argument("--writer", choices=[LOADERX, ZRFS, ZRFS_C], default=LOADERX,
                        help="who writes the store that all gather from (default: loaderx)")
    parser.add_argument("--mount-options", action="append", metavar="OPTS",
                        help="measure a mount with -o OPTS ('' is the default mount); may be given again")
    return parser.parse_args()


def main():
    args = arguments()
    # As exceptions, so that mounts and files are cleaned up.
    for number_of_signal in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number_of_signal, lambda *_: sys.exit(1))
    results = Results(quiet=args.smoke)
    failure = None
    with tempfile.TemporaryDirectory(prefix="beside-loaderx-", dir=args.dir) as folder:
        folder = os.path.realpath(folder)
        about = machine(folder)
        print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
        try:
            run = Run(args, folder, Programs(args.side, args.library, folder), results)
            for name in (name for name in SUBJECTS if name in args.only):
                run.rounds = ROUNDS[name][2 if args.smoke else 1 if args.quick else 0]
                results.subject = name
                SUBJECTS[name].measure(run)
        except Wrong as wrong:
            failure = wrong
    if not args.smoke:
        print("\nMedians. Ratio: the side over its peer in speed (in size: in bytes), the median of the rounds' own"
              f" ratios.\n{results.tables()}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": about, "rows": results.rows}, file, indent=1)
    if failure:
        sys.exit(f"beside_loaderx: {failure}")
    print(f"\nEverything that was read is what was written: {', '.join(n for n in SUBJECTS if n in args.only)}.")


if __name__ == "__main__":
    main()
