"""torchvision over two folders that should be one and the same, in a Python that has torch: prints what it saw as JSON.

    python3 imagefolder_peer.py listing ROOT...             classes, samples and targets of each
    python3 imagefolder_peer.py pixels ROOT ROOT EVERY      decodes each EVERY-th sample of both; how many differ
    python3 imagefolder_peer.py loader ROOT METHOD WORKERS...
        one shuffled pass for each number of workers: a checksum of each batch, images a second
"""

import hashlib
import json
import os
import sys
import time

import torch
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder


def listing(*roots):
    out = []
    for root in roots:
        data = ImageFolder(root)
        samples = [[os.path.relpath(path, root), target] for path, target in data.samples]
        out.append({"classes": data.classes, "class_to_idx": data.class_to_idx, "samples": samples})
    return out


def pixels(a, b, every):
    a, b = ImageFolder(a), ImageFolder(b)
    indices = range(0, len(a), int(every))
    differ = [i for i in indices if a[i][0].tobytes() != b[i][0].tobytes() or a[i][1] != b[i][1]]
    return {"looked": len(indices), "differ": differ}


def loader(root, method, *counts):
    return [shuffled_pass(root, method, int(workers)) for workers in counts]


def shuffled_pass(root, method, workers):
    torch.manual_seed(3)
    transform = transforms.Compose([transforms.Resize((48, 48)), transforms.ToTensor()])
    data = ImageFolder(root, transform=transform)
    batches = DataLoader(data, batch_size=32, shuffle=True, num_workers=workers,
                         multiprocessing_context=method if workers else None,
                         generator=torch.Generator().manual_seed(11))
    sums, images, begin = [], 0, None
    for pictures, labels in batches:
        # The first batch waits for the workers to start.
        begin = begin or time.perf_counter()
        images += len(labels)
        sums.append(hashlib.sha256(pictures.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()[:16])
    return {"sums": sums, "rate": images / (time.perf_counter() - begin)}


if __name__ == "__main__":
    what, *args = sys.argv[1:]
    json.dump({"listing": listing, "pixels": pixels, "loader": loader}[what](*args), sys.stdout)
