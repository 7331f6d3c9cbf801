#!/usr/bin/env python3
"""Makes JPEGs of about 110 kB, as ImageNet has them: parts of photographs, scaled and encoded anew.

    pictures.py FOLDER COUNT

The photographs are those that scikit-image ships. FOLDER gets COUNT files 00000000.jpg and so on, always the same ones for
the same releases of scikit-image and Pillow.
"""

import importlib.util
import multiprocessing
import os
import random
import sys

from PIL import Image

PHOTOGRAPHS = ["astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg", "ihc.png", "motorcycle_left.png",
               "motorcycle_right.png", "retina.jpg", "rocket.jpg"]
SIZE = (660, 495)
QUALITY = 95


def load():
    # Only its data is wanted: no need to import it, nor for what it depends on.
    data = os.path.join(importlib.util.find_spec("skimage").submodule_search_locations[0], "data")
    return [Image.open(os.path.join(data, name)).convert("RGB") for name in PHOTOGRAPHS]


def make(folder, numbers):
    photographs = load()
    for number in numbers:
        chosen = random.Random(number)
        picture = photographs[number % len(photographs)]
        width = chosen.uniform(0.5, 0.9) * min(picture.width, picture.height * SIZE[0] / SIZE[1])
        height = width * SIZE[1] / SIZE[0]
        left, top = chosen.uniform(0, picture.width - width), chosen.uniform(0, picture.height - height)
        part = picture.resize(SIZE, Image.Resampling.BICUBIC, (left, top, left + width, top + height))
        path = os.path.join(folder, f"{number:08}.jpg")
        # Under its name when it is whole.
        part.save(f"{path}.part", "JPEG", quality=QUALITY)
        os.rename(f"{path}.part", path)


def main(folder, count):
    os.makedirs(folder, exist_ok=True)
    missing = [n for n in range(int(count)) if not os.path.exists(os.path.join(folder, f"{n:08}.jpg"))]
    cores = len(os.sched_getaffinity(0))
    with multiprocessing.Pool(cores) as pool:
        pool.starmap(make, [(folder, missing[core::cores]) for core in range(cores)])


if __name__ == "__main__":
    main(*sys.argv[1:])
