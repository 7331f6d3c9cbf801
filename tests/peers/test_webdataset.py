"""WebDataset on the archives of a mount, beside `zrfs sample`: streams with equal neighbours, shards among workers."""

import collections
import json
import pathlib

from frameworks import FrameworksCase
from support import make_tree, zrfs

PEER = pathlib.Path(__file__).with_name("webdataset_peer.py")
MEMBERS = ["cls", "idx", "txt"]


class WebDataset(FrameworksCase):
    def setUp(self):
        super().setUp()
        # Three classes; record i holds a text that no other has.
        self.classes = [i * 3 // 10 for i in range(10)]
        files = {f"class{self.classes[i]}/{i:02}.txt": b"text of record %d\n" % i * (i + 1) for i in range(10)}
        self.texts = [content.decode() for content in files.values()]
        make_tree(self.dir / "source", files)
        self.store, self.labels = self.dir / "ten.zr", self.dir / "labels.zr"
        zrfs("import", self.dir / "source", self.store, "--labels", self.labels)

    def expected(self, steps, *sampler):
        """[key, class, index, text, members] of each sample of these steps, by `zrfs sample`."""
        lines = zrfs("sample", self.store, *sampler, "--start", str(steps.start), "--steps", str(len(steps))).stdout
        samples = []
        for step, line in zip(steps, lines.decode().splitlines(), strict=True):
            for place, index in enumerate(map(int, line.replace(",", " ").split())):
                key = f"{step:012}-{place:04}"
                samples.append([key, self.classes[index], str(index), self.texts[index], MEMBERS])
        return samples

    def test_a_stream_of_10000_samples_with_equal_neighbours(self):
        sampler = ["--mode", "iid", "--seed", "5", "--batch-size", "64"]
        with self.mount(self.store, "-o", f"labels={self.labels},mode=iid,seed=5,batch_size=64") as mount:
            seen = self.peer(PEER, f"file:{mount.point}/batch.tar", "10000")
        seen = [json.loads(line)[1:] for line in seen.splitlines()]
        expected = self.expected(range(10000 // 64 + 1), *sampler)[:10000]
        # What the key is for: of ten records, every tenth sample or so is its neighbour once more.
        self.assertGreater(sum(a[2] == b[2] for a, b in zip(expected, expected[1:])), 500)
        self.assertEqual(len(seen), 10000)
        for got, wanted in zip(seen, expected):
            self.assertEqual(got, wanted)

    def test_a_stream_begins_where_the_mount_says(self):
        sampler = ["--mode", "shuffle", "--seed", "5", "--batch-size", "64"]
        with self.mount(self.store, "-o", f"labels={self.labels},mode=shuffle,seed=5,batch_size=64,start=1000") as mount:
            seen = self.peer(PEER, f"{mount.point}/batch.tar", "200")
        self.assertEqual([json.loads(line)[1:] for line in seen.splitlines()],
                         self.expected(range(1000, 1004), *sampler)[:200])

    def test_two_workers_share_the_steps_out(self):
        sampler = ["--mode", "iid", "--seed", "6", "--batch-size", "32"]
        with self.mount(self.store, "-o", f"labels={self.labels},mode=iid,seed=6,batch_size=32") as mount:
            seen = self.torch_peer(PEER, f"{mount.point}/batches/{{000..099}}.tar", "--workers", "2")
        seen = [json.loads(line) for line in seen.splitlines()]
        expected = self.expected(range(100), *sampler)
        # Each sample of each step once, whoever read it; every worker has every second step, in order.
        self.assertEqual(sorted(s[1:] for s in seen), expected)
        self.assertEqual(collections.Counter(s[0] for s in seen), {0: 1600, 1: 1600})
        for worker in range(2):
            keys = [s[1] for s in seen if s[0] == worker]
            self.assertEqual(keys, [s[0] for s in expected if int(s[0][:12]) % 2 == worker])
