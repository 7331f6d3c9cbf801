"""Frameworks that know folders and arrays only: Hugging Face datasets' imagefolder, JAX, and a Keras-like listing."""

import json
import os
import pathlib
import shutil

import numpy as np

from frameworks import FrameworksCase
from support import ROOT, zrfs
from test_openclipart import clipart_root

PEER = pathlib.Path(__file__).with_name("frameworks_peer.py")


def keras_listing(root):
    """What keras.utils.image_dataset_from_directory(root) lists: classes are the sorted sub-folders, files the sorted
    walk of each, links followed."""
    classes = sorted(name for name in os.listdir(root) if os.path.isdir(os.path.join(root, name)))
    files = []
    for label, name in enumerate(classes):
        for where, _, names in sorted(os.walk(os.path.join(root, name), followlinks=True), key=lambda x: x[0]):
            files += [(os.path.relpath(os.path.join(where, file), root), label) for file in sorted(names)
                      if file.lower().endswith((".bmp", ".gif", ".jpeg", ".jpg", ".png"))]
    return classes, files


class Frameworks(FrameworksCase):
    def some_classes(self):
        source, root = self.dir / "some", clipart_root()
        for folder in sorted(os.listdir(root))[:3]:
            shutil.copytree(os.path.join(root, folder), source / folder)
        store = self.dir / "some.zr"
        zrfs("import", source, store, "--only", "*.png")
        return source, store

    def test_hugging_face_s_imagefolder(self):
        source, store = self.some_classes()
        plain = json.loads(self.peer(PEER, source, self.dir / "cache1"))
        with self.mount(store) as mount:
            mounted = json.loads(self.peer(PEER, mount.point / "tree", self.dir / "cache2"))
        self.assertGreater(len(plain["labels"]), 300)
        # Its order is its own: what counts is that it is the same.
        self.assertEqual(plain, mounted)

    def test_a_listing_as_keras_makes_it(self):
        source, store = self.some_classes()
        with self.mount(store) as mount:
            self.assertEqual(keras_listing(source), keras_listing(mount.point / "tree"))

    def test_jax_takes_what_is_exported_and_what_is_mounted(self):
        array = np.arange(1000 * 12, dtype="<f4").reshape(1000, 3, 4)
        np.save(self.dir / "features.npy", array)
        store, out = self.dir / "features.zr", self.dir / "out.npy"
        zrfs("import", self.dir / "features.npy", store)
        zrfs("export", store, out)
        with self.mount(store) as mount:
            said = self.peer(ROOT / "examples/jax_array.py", out, mount.records)
        self.assertIn("exported: (1000, 3, 4) float32", said)
        self.assertIn(f"mean of the first batch {float(array[:256].mean())}", said)
        self.assertIn("mounted: (3, 3, 4) float32", said)
