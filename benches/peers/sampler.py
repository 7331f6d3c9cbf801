"""Samplers: endless batches of indices."""

import numpy as np

from data import BATCH
from results import say
from sides import LOADERX, ZRFS, ZRFS_C, Wrong, expect, in_turn

LENGTH = 1_000_000
STEPS = 20_000
SEEK = 1_000_000
MODES = {"sequential": 0, "iid": 1, "shuffle": 2}
# loaderx does not know it.
OURS_ALONE = "shuffle"
# In Python: Sampler.next, which makes an array each time, and the C function on memory that is kept.
WAYS = {ZRFS: ["next"], ZRFS_C: ["cnext", "next"], LOADERX: ["cnext", "next"]}
# Each way of ours and the way of loaderx beside it.
PAIRS = [((ZRFS, "next"), (LOADERX, "cnext")), ((ZRFS_C, "cnext"), (LOADERX, "cnext")),
         ((ZRFS_C, "next"), (LOADERX, "next"))]


def measure(run):
    with run.start(ZRFS, ZRFS_C, LOADERX) as sides:
        check(sides)
        for case in run.cases([*MODES, "seek"]):
            if case == "seek":
                measure_seek(run, sides)
            else:
                measure_mode(run, sides, case)


def label(side, way):
    return side if side == ZRFS else f"{side}, {'Sampler.next' if way == 'next' else way}"


def check(sides):
    """All sides draw the same numbers, and the right ones."""
    say("sampler: the numbers")
    steps = 25
    for length in (1, 10, 640, LENGTH, (1 << 32) + 1):
        for seed in (0, 42, (1 << 64) - 1):
            drawn = {(name, mode): side.ask("indices", number, length, seed, steps)
                     for name, side in sides.items()
                     for mode, number in MODES.items() if name != LOADERX or mode != OURS_ALONE}
            what = f"sampler, length {length}, seed {seed}"
            for name in sides:
                expect(f"{what}, sequential by {name}", drawn[name, "sequential"],
                       np.arange(steps * BATCH) % length)
            for name in (ZRFS, ZRFS_C):
                expect(f"{what}, iid by {name}", drawn[name, "iid"], drawn[LOADERX, "iid"])
            expect(f"{what}, shuffle by {ZRFS_C}", drawn[ZRFS_C, "shuffle"], drawn[ZRFS, "shuffle"])
            for at in range(0, steps * BATCH - length + 1, length):
                expect(f"{what}, shuffle, a pass", sorted(drawn[ZRFS, "shuffle"][at:at + length]), range(length))


def measure_mode(run, sides, mode):
    steps = run.times(STEPS)
    say(f"sampler {mode}: {steps} batches")
    ways = [(name, way) for name in sides for way in WAYS[name] if name != LOADERX or mode != OURS_ALONE]
    samples = {way: [] for way in ways}
    for i in run.rounds():
        seen = set()
        for name, how in in_turn(ways, i):
            nanoseconds, last = sides[name].ask("draw", MODES[mode], LENGTH, 100 + i, steps, how)
            samples[name, how].append(nanoseconds / (steps * BATCH))
            seen.add(last)
        if len(seen) != 1:
            raise Wrong(f"sampler {mode}: the sides draw different numbers")
    for ours, peer in PAIRS:
        if peer in samples:
            run.results.add(mode, "ns/index", label(*ours), samples[ours], label(*peer), samples[peer], rate=False)
        else:
            run.results.add(mode, "ns/index", label(*ours), samples[ours])


def measure_seek(run, sides):
    """A jump far ahead where nobody has been, and again."""
    step = 1000 if run.smoke else SEEK
    say(f"sampler iid: seek to step {step}")
    iid = MODES["iid"]
    _, wanted = sides[LOADERX].ask("draw", iid, LENGTH, 42, step, "cnext")
    samples = {"first time": [], "again": []}
    for _ in run.rounds():
        first, first_sum, again, again_sum = sides[ZRFS].ask("seek", iid, LENGTH, 42, step)
        expect("sampler iid, seek", [first_sum, again_sum], [wanted, wanted])
        samples["first time"].append(first / 1e6)
        samples["again"].append(again / 1e6)
    for when, milliseconds in samples.items():
        run.results.add(f"iid, seek to step {step}, {when}", "ms", ZRFS, milliseconds)
