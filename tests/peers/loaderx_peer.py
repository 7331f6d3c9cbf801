"""One turn of loaderx on a store, as a program: it can crash, and must not take the tests along.

loaderx_peer.py write-dense STORE ARRAY.npy CODEC       Dataset.write, which also appends
loaderx_peer.py read-dense STORE OUT.npy                every sample, through Dataset
loaderx_peer.py append-ragged STORE RECORDS.npz CODEC   Zrecord.append_var
loaderx_peer.py read-ragged STORE OUT.npz               every record, through Zrecord.gather_var
loaderx_peer.py serve                                   turn after turn, for loaderx_client.py

RECORDS.npz holds `bytes`, one after another, and their `lens`. A ZrecordError ends with status 3 and prints its code.

`serve` reads commands from standard input, one JSON object a line, and answers each with one: `do` (ready, append,
delete, compact, read, digest, open, close), `store`, and what the command needs. Records travel in base64. A store is
opened for a command and closed after it, unless `open` keeps it. A ZrecordError is answered with `error` and `text`.
"""

import base64
import hashlib
import json
import sys

import numpy as np
from loaderx import Dataset, Zrecord
from loaderx._zrecord import ZrecordError


def starts(lens):
    return np.concatenate([[0], np.cumsum(lens, dtype=np.uint64)[:-1]]).astype(np.uint64)


def all_records(z):
    """(bytes of every record, one after another; their lengths)"""
    index = np.arange(len(z), dtype=np.uint64)
    lens = z.lengths(index)
    out = np.empty(int(lens.sum(dtype=np.uint64)), dtype=np.uint8)
    if len(index):
        z.gather_var(index, out, starts(lens))
    return out, lens


def take(z, ask):
    """One command on an open store; gives back the answer."""
    do = ask["do"]
    if do == "append":
        records = [base64.b64decode(r) for r in ask["records"]]
        lens = np.array([len(r) for r in records], dtype=np.uint32)
        z.append_var(np.frombuffer(b"".join(records), dtype=np.uint8), starts(lens), lens, codec=ask["codec"])
        z.sync()
    elif do == "delete":
        z.delete(ask["indices"])
        z.sync()
    elif do == "compact":
        z.compact()
    elif do == "read":
        out, lens = all_records(z)
        parts = np.split(out, np.cumsum(lens)[:-1]) if len(lens) else []
        return {"records": [base64.b64encode(part.tobytes()).decode() for part in parts]}
    elif do == "digest":
        out, lens = all_records(z)
        return {"length": len(lens), "sha256": hashlib.sha256(out.tobytes()).hexdigest()}
    else:
        sys.exit(f"unknown command {do}")
    return {}


def answer(ask, held):
    do, store = ask["do"], ask["store"]
    if do == "ready":
        return {}
    if do == "open":
        held[store] = Zrecord(store)
        return {"length": len(held[store])}
    if do == "close":
        held.pop(store).close()
        return {}
    if store in held:
        return take(held[store], ask)
    with Zrecord(store) as z:
        return take(z, ask)


def serve():
    held = {}
    for line in sys.stdin:
        try:
            said = answer(json.loads(line), held)
        except ZrecordError as error:
            said = {"error": error.code, "text": str(error)}
        print(json.dumps(said), flush=True)


def main(turn, store=None, file=None, codec="flate"):
    if turn == "serve":
        serve()
    elif turn == "write-dense":
        Dataset.write(store, np.load(file), codec=codec).close()
    elif turn == "read-dense":
        with Dataset(store) as dataset:
            np.save(file, dataset[np.arange(len(dataset))])
    elif turn == "append-ragged":
        with np.load(file) as records, Zrecord(store, codec=codec) as z:
            lens = records["lens"]
            z.append_var(records["bytes"], starts(lens), lens)
            z.sync()
    elif turn == "read-ragged":
        with Zrecord(store) as z:
            out, lens = all_records(z)
            np.savez(file, bytes=out, lens=lens)
    else:
        sys.exit(f"unknown turn {turn}")


try:
    main(*sys.argv[1:])
except ZrecordError as error:
    print(f"ZrecordError {error.code}: {error}", file=sys.stderr)
    sys.exit(3)
