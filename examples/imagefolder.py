"""A training loop over torchvision's ImageFolder: the same script for a plain folder and for tree/ of a mount.

    zrfs import photos/ photos.zr --only '*.jpg' --only '*.png'
    zrfs mount photos.zr mnt
    python3 examples/imagefolder.py mnt/tree

Needs torch and torchvision. Nothing in it knows of zrfs.
"""

import itertools
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder


def main(root, workers=2, batches=20):
    torch.manual_seed(7)
    to_tensor = transforms.Compose([transforms.Resize((32, 32)), transforms.ToTensor()])
    data = ImageFolder(root, transform=to_tensor)
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=workers,
                        generator=torch.Generator().manual_seed(7))
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, len(data.classes)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin, images, steps = time.perf_counter(), 0, 0
    for pictures, labels in itertools.islice(loader, batches):
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        images += len(labels)
        steps += 1
    rate = images / (time.perf_counter() - begin)
    print(f"{len(data)} images in {len(data.classes)} classes; {steps} steps, loss {loss.item():.4f}, {rate:.0f} images/s")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
