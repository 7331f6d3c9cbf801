"""Names of a store that loaderx changes as well: those that can still be trusted stay, and none is ever wrong."""

import json
import os
import random
import shutil
import unittest

from changing import swap_last
from loaderx_client import Loaderx
from support import Case, make_tree, run, zrfs

ROUNDS = int(os.environ.get("ZRFS_TURNS", "60"))


class NamesBesideLoaderx(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.loaderx = cls.enterClassContext(Loaderx())

    def new(self, count, equal):
        """Contents that tell their own path."""
        made = []
        for _ in range(count):
            self.made += 1
            path = f"d{self.made % 7}/n{self.made}.bin"
            made.append(path.encode().ljust(64 if equal else 64 + self.made % 50, b"."))
        return made

    @staticmethod
    def path_of(content):
        return content.rstrip(b".").decode()

    def import_(self, contents, *options):
        source = self.dir / "source"
        make_tree(source, {self.path_of(content): content for content in contents})
        # In the order of the list, which an import of the folder would not keep.
        paths = self.dir / "paths"
        paths.write_text("".join(f"{self.path_of(content)}\n" for content in contents))
        zrfs("import", f"@{paths}", self.store, "--codec", "raw", *options, cwd=source)
        shutil.rmtree(source)

    def look(self):
        """(content, name) of every record, as zrfs has them."""
        lines = [json.loads(line) for line in zrfs("ls", "--json", self.store).stdout.splitlines()]
        bytes_ = zrfs("cat", self.store, f"0-{len(lines) - 1}").stdout if lines else b""
        seen, at = [], 0
        for line in lines:
            seen.append((bytes_[at:at + line["length"]], line.get("name")))
            at += line["length"]
        return seen

    def check(self, what):
        seen = self.look()
        self.assertEqual([content for content, _ in seen], self.records, what)
        names = [name for _, name in seen]
        expected = [self.path_of(c) if known else None for c, known in zip(self.records, self.named)]
        wrong = [(n, self.path_of(c)) for n, c in zip(names, self.records) if n not in (None, self.path_of(c))]
        self.assertEqual(wrong, [], what)
        self.assertEqual(names, expected, what)
        stats = json.loads(zrfs("stats", self.store, "--json").stdout)
        self.assertEqual(stats["named"], sum(self.named), what)

    def turns(self, seed, equal):
        rng = random.Random(seed)
        self.made, self.store = 0, self.dir / f"s{seed}.zr"
        self.records = self.new(20, equal)
        self.named = [True] * 20
        self.import_(self.records)
        for turn in range(ROUNDS):
            what = rng.choice(["zrfs append", "zrfs delete", "zrfs compact", "loaderx append", "loaderx delete",
                               "loaderx delete", "loaderx compact"])
            some = rng.sample(range(len(self.records)), min(len(self.records), rng.randint(1, 5)))
            if what == "zrfs append":
                more = self.new(rng.randint(1, 6), equal)
                self.import_(more, "--append")
                self.records, self.named = self.records + more, self.named + [True] * len(more)
            elif what == "loaderx append":
                more = self.new(rng.randint(1, 6), equal)
                self.loaderx.append(self.store, more, "raw")
                self.records, self.named = self.records + more, self.named + [False] * len(more)
            elif what.endswith("delete") and some:
                before = dict(zip(self.records, self.named))
                if what.startswith("zrfs"):
                    zrfs("delete", self.store, *map(str, some))
                else:
                    self.loaderx.delete(self.store, some)
                old = self.records
                self.records, _ = swap_last(self.records, some)
                # What loaderx moved to another index is another record to us.
                stayed = what.startswith("zrfs")
                self.named = [before[c] and (stayed or old[i] == c) for i, c in enumerate(self.records)]
            elif what == "zrfs compact":
                zrfs("compact", self.store, "--accept")
            elif what == "loaderx compact":
                self.loaderx.compact(self.store)
            self.check(f"seed {seed}, turn {turn}: {what}")

    def test_records_of_one_length(self):
        for seed in range(4):
            self.turns(seed, equal=True)

    def test_records_of_many_lengths(self):
        self.turns(100, equal=False)

    def test_a_record_that_slides_into_the_place_of_a_deleted_one(self):
        # loaderx moves the last record into the hole, and compacting slides it to the very bytes that the deleted one
        # had: the entry is then the one that was named, and the record another.
        self.made, self.store = 0, self.dir / "s.zr"
        contents = self.new(7, True)
        self.import_(contents)
        self.loaderx.delete(self.store, [5])
        self.loaderx.compact(self.store)
        self.records = contents[:5] + contents[6:]
        seen = self.look()
        self.assertEqual([content for content, _ in seen], self.records)
        self.assertEqual([name for _, name in seen], [self.path_of(c) for c in contents[:5]] + [None])
        with self.mount(self.store) as mount:
            found = run("find", mount.point / "tree", "-type", "f", "-printf", "%P\n", check=0).stdout.decode().split()
            self.assertEqual(sorted(found), sorted(self.path_of(c) for c in contents[:5]))


if __name__ == "__main__":
    unittest.main()
