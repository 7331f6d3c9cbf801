"""WebDataset over a mount: each step of batches/ is a shard, shared out among workers; batch.tar is one endless shard.

    zrfs import photos/ photos.zr --only '*.png' --labels labels.zr
    zrfs mount photos.zr mnt -o labels=labels.zr,batch_size=32
    python3 examples/webdataset_tar.py mnt                       # 2 workers, steps 0 to 99
    python3 examples/webdataset_tar.py mnt '{000100..000199}'    # the next 100

Needs webdataset, torch and pillow. Nothing in it knows of zrfs. The records may be images or .npy, or any bytes.
"""

import itertools
import json
import sys

import numpy as np
import webdataset as wds


def sample(members):
    """What a sample is to the training: its record as an array, its class, its index. WebDataset has decoded the members."""
    record = next(members[ext] for ext in ("png", "jpg", "jpeg", "gif", "npy", "bin") if ext in members)
    if hasattr(record, "convert"):
        record = np.asarray(record.convert("RGB").resize((32, 32)))
    elif isinstance(record, bytes):
        record = len(record)
    return record, members.get("cls", -1), int(members["idx"])


def main(mount, steps="{000..099}", workers=2):
    with open(f"{mount}/stats") as f:
        size = json.load(f)["batch_size"]

    # The mount has drawn and shuffled already, so WebDataset does not; its workers take every second shard. A file is a step,
    # so `size` samples of it are that step's batch.
    shards = wds.WebDataset(f"{mount}/batches/{steps}.tar", shardshuffle=False).decode("pil").map(sample)
    batches, seen, classes = 0, 0, set()
    for records, labels, indices in wds.WebLoader(shards.batched(size), batch_size=None, num_workers=workers):
        batches, seen = batches + 1, seen + len(indices)
        classes.update(labels.tolist())
    print(f"{steps}, {workers} workers: {batches} batches, {seen} samples of {tuple(records.shape[1:])}, classes {sorted(classes)}")

    # A stream is for one reader: two would both begin at its first step. What ends it is that nobody reads on.
    stream = wds.WebDataset(f"file:{mount}/batch.tar", shardshuffle=False).decode("pil").map(sample)
    for record, label, index in itertools.islice(stream, 3):
        print(f"batch.tar: record {index}, class {label}")


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
