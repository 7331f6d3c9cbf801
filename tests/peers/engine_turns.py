"""What loaderx's Python layer does on our library, as a program: it forks, and might hang or crash.

engine_turns.py TURN STORE [ARGUMENTS]    the functions below are the turns; an answer is one line of JSON

Runs in target/engine-venv, which tests/peers/engine_venv.sh makes. A turn that goes wrong ends with a traceback.
"""

import json
import multiprocessing
import os
import signal
import sys
import threading

import numpy as np
from loaderx import DataLoader, Dataset, Zrecord
from loaderx import _sampler, _zrecord
from loaderx._zrecord import ZrecordError

# Seconds after which a process of a turn counts as hanging.
PATIENCE = 60


def assert_ours():
    """loaderx's own libraries lack this function, so a turn on them ends here."""
    for module in (_sampler, _zrecord):
        module.ffi.cdef("const char* zr_last_error(void);")
        module.lib.zr_last_error()


def last_error():
    text = _zrecord.lib.zr_last_error()
    return _zrecord.ffi.string(text).decode() if text else None


def samples(n, start=0):
    """Records that say which one they are; every other one compresses."""
    rows = np.random.default_rng(7).integers(0, 1 << 32, (n, 300), dtype=np.uint64).astype("<u4")
    rows[::2] = 3
    rows[:, 0] = np.arange(start, start + n)
    return rows


def refusal(call):
    """The code and text with which it is refused, or None."""
    try:
        call()
    except ZrecordError as error:
        return [error.code, last_error()]
    return None


def record(z, index):
    """A record's bytes in hexadecimal, or the code of the refusal."""
    try:
        length = z.lengths([index])
        out = np.empty(int(length[0]), np.uint8)
        z.gather_var([index], out, [0])
    except ZrecordError as error:
        return error.code
    return out.tobytes().hex()


# Forks

def wait_for(child):
    _, status = os.waitpid(child, 0)
    if status:
        raise AssertionError(f"a child ended with status {status:#x}; SIGALRM means that it hung")


def fork(work):
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(PATIENCE)
            work()
            os._exit(0)
        except BaseException as error:
            print(f"in the child: {error!r}; {last_error()}", file=sys.stderr, flush=True)
            os._exit(1)
    return child


def fork_loop(store, rounds):
    """Children of a process whose other threads gather gather as well."""
    right = samples(500)
    dataset = Dataset.write(store, right)
    stop = threading.Event()

    def check(seed):
        chosen = np.random.default_rng(seed).integers(0, len(right), 300)
        assert np.array_equal(dataset[chosen], right[chosen]), "other bytes"

    def gather_on(seed):
        while not stop.is_set():
            seed += 10
            check(seed)

    def open_on():
        while not stop.is_set():
            with Dataset(store) as other:
                assert np.array_equal(other[7], right[7])

    def in_child():
        check(1)
        for seed in range(5):
            check(seed)
        with Dataset(store) as other:
            assert np.array_equal(other[:], right)
        assert refusal(lambda: dataset.delete([1]))[0] == -2
        dataset.close()

    threads = [threading.Thread(target=gather_on, args=(seed,)) for seed in range(3)]
    threads.append(threading.Thread(target=open_on))
    for thread in threads:
        thread.start()
    for _ in range(int(rounds)):
        wait_for(fork(in_child))
    stop.set()
    for thread in threads:
        thread.join()
    check(2)


def inherited(chosen):
    return inherited.dataset[chosen]


def fork_pool(store):
    """multiprocessing's pool, by fork, under a loader that is running."""
    right = samples(500)
    inherited.dataset = dataset = Dataset.write(store, right)
    loader = DataLoader(dataset, dataset, num_workers=2, batch_size=64)
    next(loader)
    with multiprocessing.get_context("fork").Pool(3, initializer=signal.alarm, initargs=(PATIENCE,)) as pool:
        chosen = [list(range(i, 500, 20)) for i in range(20)]
        for which, got in zip(chosen, pool.map(inherited, chosen)):
            assert np.array_equal(got, right[which]), "other bytes"
    for _ in range(20):
        batch = next(loader)
        assert np.array_equal(batch["data"], right[batch["data"][:, 0]])
    # loaderx's loader can't be closed without a hang: that is its Python's fault, not the library's.
    os._exit(0)


def torch_loader(store):
    """PyTorch's DataLoader with forked workers over loaderx's Dataset."""
    # The distribution's, which is of this Python's version. Its NumPy is not ours: batches stay arrays.
    sys.path.append("/usr/lib/python3/dist-packages")
    from torch.utils import data as torch_data

    right = samples(500)
    dataset = Dataset.write(store, right)
    assert np.array_equal(dataset[:], right)
    for _ in range(3):
        seen = []
        loader = torch_data.DataLoader(
            dataset, batch_size=32, shuffle=True, num_workers=2, multiprocessing_context="fork",
            collate_fn=np.asarray, timeout=PATIENCE,
        )
        for batch in loader:
            assert np.array_equal(batch, right[batch[:, 0]]), "other bytes"
            seen += batch[:, 0].tolist()
        assert sorted(seen) == list(range(500)), "not every record came once"


# Damage

def read_each(store):
    """Every record by itself, as far as the store says that there are any."""
    code = refusal(lambda: Zrecord(store).close())
    if code:
        return {"open": code}
    with Zrecord(store) as z:
        return {"records": [record(z, i) for i in range(len(z))], "stats": z.stats()}


def flips(store, index):
    """The record, and the one after it, with each single bit of its entry flipped."""
    index = int(index)
    found = []
    with open(os.path.join(store, "meta.zr"), "r+b", buffering=0) as meta:
        for bit in range(128):
            at = 16 + 16 * index + bit // 8
            byte = os.pread(meta.fileno(), 1, at)
            os.pwrite(meta.fileno(), bytes([byte[0] ^ 1 << bit % 8]), at)
            with Zrecord(store) as z:
                found.append([record(z, index), record(z, index + 1)])
            os.pwrite(meta.fileno(), byte, at)
    return found


def cut_while_open(store, name, size):
    """Every record of a store whose file is cut while it is open and was read."""
    with Zrecord(store) as z:
        n = len(z)
        before = [record(z, i) for i in range(n)]
        os.truncate(os.path.join(store, name), int(size))
        after = [record(z, i) for i in range(n)]
        whole = np.empty(sum(len(r) // 2 for r in before), np.uint8)
        lens = np.array([len(r) // 2 for r in before], np.uint64)
        starts = np.cumsum(lens) - lens
        return {"before": before, "after": after, "all": refusal(lambda: z.gather_var(np.arange(n), whole, starts))}


# Openings

def look(store):
    """Opens and reads in every way that changes nothing."""
    with Zrecord(store) as z:
        n = len(z)
        figures = z.stats()
        records = [record(z, i) for i in range(n)]
        out_of_range = refusal(lambda: z.lengths([n]))
        z.sync()
    return {"length": n, "stats": figures, "records": records, "beyond": out_of_range}


def look_as_nobody(store):
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    found = look(store)
    with Zrecord(store) as z:
        found["refused"] = [
            refusal(lambda: z.append(np.zeros(5, np.uint8), 1, 5)), refusal(lambda: z.delete([0])), refusal(z.compact)
        ]
    return found


def look_at_dataset(store):
    with Dataset(store) as dataset:
        return dataset[:].tolist()


def hold_and_look(store):
    """Opens where nothing is yet; looks whenever it is told to."""
    with Zrecord(store) as z:
        for _ in sys.stdin:
            print(json.dumps([len(z), z.stats()["records"], [record(z, i) for i in range(len(z))]]), flush=True)


def wrong_indices(store):
    right = samples(10)
    dataset = Dataset.write(store, right)
    z = dataset._store
    out = np.zeros(right[0].nbytes, np.uint8)
    codes = {
        "gather": refusal(lambda: z.gather(np.array([-1]), out, out.size)),
        "gather_var": refusal(lambda: z.gather_var(np.array([3, -1]), out, [0, 0])),
        "lengths": refusal(lambda: z.lengths(np.array([-1]))),
        "delete": refusal(lambda: z.delete(np.array([2, -1]))),
        "dataset": refusal(lambda: dataset[np.array([-1])]),
        "behind the last": refusal(lambda: dataset[10]),
    }
    assert np.array_equal(dataset[:], right) and not out.any()
    return codes


# Writers

def append_own(store, writer, turns, way):
    """Appends group after group that says whose it is; answers which ones went in, and how others were refused."""
    done, refused = [], []

    def group(turn):
        return np.array([[int(writer), turn, i] for i in range(50)], "<u4")

    def append(z, turn):
        code = refusal(lambda: z.append(group(turn), 50, 12))
        if code is None and way == "sync":
            code = refusal(z.sync)
        (refused.append(code) if code else done.append(turn))

    if way == "sync":
        with Zrecord(store) as z:
            for turn in range(int(turns)):
                append(z, turn)
    else:
        for turn in range(int(turns)):
            with Zrecord(store) as z:
                append(z, turn)
    return {"done": done, "refused": refused}


def hold_an_append(store):
    """Appends a record and does not sync before it is told to."""
    with Zrecord(store) as z:
        z.append(np.zeros(12, np.uint8), 1, 12)
        print("appended", flush=True)
        sys.stdin.readline()
        z.sync()


def compact_on(store):
    """Deletes and compacts until it is killed."""
    with Zrecord(store) as z:
        print("begun", flush=True)
        while len(z) > 200:
            z.delete(np.arange(0, len(z), 17))
            z.compact()


def delete_and_compact(store):
    right = np.random.default_rng(1).integers(0, 256, (2000, 4096), dtype=np.uint8)
    right[:, :4] = np.arange(2000, dtype="<u4").view(np.uint8).reshape(2000, 4)
    dataset = Dataset.write(store, right)
    chunk = os.path.join(store, "0.zr")
    taken = [os.stat(chunk).st_blocks * 512]
    dataset.delete(np.arange(0, 2000, 2))
    dataset.compact()
    taken.append(os.stat(chunk).st_blocks * 512)
    left = dataset[:]
    assert np.array_equal(left, right[left[:, :4].copy().view("<u4").ravel()]), "other bytes"
    assert sorted(left[:, :4].copy().view("<u4").ravel().tolist()) == list(range(1, 2000, 2))
    return taken


def fill(filler):
    with open(filler, "wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError:
            pass


def sync_on_a_full_disk(store, filler):
    """Refusals of syncs, of an append after one, and of a sync by closing."""
    refused = []
    for close in (False, True):
        z = Zrecord(store)
        z.append(np.zeros(100, np.uint8), 100, 1)
        z.sync()
        # So many that what a later delete needs, which a sync sets aside, takes more blocks.
        z.append(np.zeros(200_000, np.uint8), 200_000, 1)
        fill(filler)
        if close:
            # It returns nothing, so only the text can tell.
            before = refusal(lambda: z.lengths([10**9]))
            z.close()
            refused.append([before[0], last_error()])
        else:
            refused += [refusal(z.sync), refusal(z.sync), refusal(lambda: z.append(np.zeros(1, np.uint8), 1, 1))]
            z.close()
        os.unlink(filler)
    return refused


if __name__ == "__main__":
    assert_ours()
    answer = globals()[sys.argv[1]](*sys.argv[2:])
    if answer is not None:
        print(json.dumps(answer))
