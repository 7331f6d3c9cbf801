"""Samples as WebDataset gives them: prints one JSON list each, of worker, key, class, index, the record's text and the members.

    python3 webdataset_peer.py URL SAMPLES            one process, the first so many
    python3 webdataset_peer.py URL --workers WORKERS  a DataLoader, all there are; needs torch
"""

import itertools
import json
import sys

import webdataset as wds


def worker():
    info = sys.modules["torch"].utils.data.get_worker_info() if "torch" in sys.modules else None
    return info.id if info else 0


def main(url, *how):
    samples = wds.WebDataset(url, shardshuffle=False).decode()
    # What a class or an index is decoded to is the reader's business; here it is told as it comes.
    samples = samples.map(lambda s: (worker(), s["__key__"], s["cls"], s["idx"].decode(), s["txt"],
                                     sorted(name for name in s if not name.startswith("__"))))
    if how[0] == "--workers":
        found = wds.WebLoader(samples, batch_size=None, num_workers=int(how[1]))
    else:
        found = itertools.islice(samples, int(how[0]))
    for sample in found:
        print(json.dumps(sample))


if __name__ == "__main__":
    main(*sys.argv[1:])
