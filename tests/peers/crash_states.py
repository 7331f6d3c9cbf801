"""loaderx 0.5.0 opens the states that a crash may leave: it reads right records, or refuses.

crash_states.py FOLDER, which the unit tests have filled: ZRFS_CRASH_STATES=FOLDER cargo test --lib. Each state has the
store, the lists of records of which it may hold any, and what has happened to it.
"""

import os
import pathlib
import struct
import sys

import numpy as np
from loaderx import Zrecord
from loaderx._zrecord import ZrecordError


def allowed_lists(folder):
    for path in sorted(folder.glob("allowed-*")):
        data, records, at = path.read_bytes(), [], 0
        while at < len(data):
            (length,) = struct.unpack_from("<I", data, at)
            records.append(data[at + 4:at + 4 + length])
            at += 4 + length
        yield records


def read(store):
    """The records, or None where loaderx refuses the store."""
    try:
        z = Zrecord(store)
    except ZrecordError:
        return None
    with z:
        index = np.arange(len(z), dtype=np.uint64)
        lens = z.lengths(index).astype(np.uint64)
        ends = np.cumsum(lens, dtype=np.uint64)
        out = np.empty(int(ends[-1]) if len(lens) else 0, dtype=np.uint8)
        if len(lens):
            z.gather_var(index, out, ends - lens)
        data = out.tobytes()
    return [data[int(end - length):int(end)] for end, length in zip(ends, lens)]


def main(folder):
    states = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
    refused = 0
    for state in states:
        # A signal would end this process: what is left then says which state it was.
        (pathlib.Path(folder) / "current").write_text(state.name)
        found = read(os.fspath(state / "store.zr"))
        if found is None:
            refused += 1
        elif found not in list(allowed_lists(state)):
            sys.exit(f"crash_states.py: {state}: loaderx reads what never was: {(state / 'what').read_text()}")
    if len(states) - refused < 50 or refused < 10:
        sys.exit(f"crash_states.py: only {len(states)} states, {refused} of them refused: the test has lost its purpose")
    print(f"loaderx read right records in {len(states) - refused} states after a crash and refused {refused}")


main(sys.argv[1])
