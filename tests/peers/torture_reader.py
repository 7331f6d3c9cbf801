"""One of the readers of test_torture: reads a mount in every way while another process deletes, appends and compacts.

    torture_reader.py MOUNTPOINT SEED PROTECTED

Each record tells its number in its first bytes, and all others follow from it. Records below PROTECTED are never deleted. It
ends when its standard input ends, and prints JSON: what it has done, what was wrong, and the numbers of the records that were
gone from under an open file.
"""

import errno
import json
import mmap
import os
import random
import select
import sys

from torture_records import HEADER, body, name

GONE = (errno.ENOENT, errno.ESTALE)


class Reader:
    def __init__(self, mountpoint, seed, protected):
        self.mnt, self.protected = mountpoint, protected
        self.random = random.Random(seed)
        self.wrong, self.gone, self.counts = [], [], {}
        self.held = []  # (number, descriptor)
        self.maps = []  # (number, mapping) of protected records

    def note(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def check(self, data, size, number=None, where=""):
        """The bytes are those of one whole record, of `number` where that is known."""
        self.note("reads")
        said = HEADER.unpack_from(data)[0] if len(data) >= HEADER.size else None
        if said is None or data != body(said) or len(data) != size or number not in (None, said):
            self.wrong.append(f"{where}: {len(data)} bytes of {size}, record {said} where {number} is expected: {data[:32]!r}")

    def read_path(self, path, number=None):
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError as e:
            if e.errno == errno.ENOENT and (number is None or number >= self.protected):
                return self.note("vanished")
            self.wrong.append(f"open {path}: {e}")
            return None
        try:
            size = os.fstat(file).st_size
            self.check(os.pread(file, size + 1, 0), size, number, path)
        except OSError as e:
            if e.errno != errno.ESTALE:
                self.wrong.append(f"read {path}: {e}")
            elif number is not None:
                self.gone.append(number)
        finally:
            os.close(file)
        return None

    def by_index(self):
        entries = os.listdir(f"{self.mnt}/records")
        for entry in self.random.sample(entries, min(20, len(entries))):
            self.read_path(f"{self.mnt}/records/{entry}")

    def by_name(self):
        folder = self.random.choice(os.listdir(f"{self.mnt}/tree"))
        for entry in self.random.sample(entries := os.listdir(f"{self.mnt}/tree/{folder}"), min(20, len(entries))):
            self.read_path(f"{self.mnt}/tree/{folder}/{entry}", int(entry.split(".")[0]))

    def of_the_protected(self):
        number = self.random.randrange(self.protected)
        path = f"{self.mnt}/tree/{name(number)}"
        try:
            size = os.stat(path).st_size
        except OSError as e:
            self.wrong.append(f"stat {path}: {e}")
            return
        if size != len(body(number)):
            self.wrong.append(f"stat {path}: size {size}")
        self.read_path(path, number)

    def hold(self):
        """Opens records and keeps them open, half of them with their pages in memory."""
        if len(self.held) > 40:
            for _, file in self.held[:20]:
                os.close(file)
            del self.held[:20]
        folder = self.random.choice(os.listdir(f"{self.mnt}/tree"))
        for entry in self.random.sample(entries := os.listdir(f"{self.mnt}/tree/{folder}"), min(5, len(entries))):
            number = int(entry.split(".")[0])
            try:
                file = os.open(f"{self.mnt}/tree/{folder}/{entry}", os.O_RDONLY)
            except OSError as e:
                if e.errno not in GONE:
                    self.wrong.append(f"open {entry}: {e}")
                continue
            self.held.append((number, file))
            if self.random.random() < 0.5:
                self.read_held(number, file)

    def read_held(self, number, file):
        try:
            size = len(body(number))
            self.check(os.pread(file, size + 1, 0), size, number, "an open file")
        except OSError as e:
            if e.errno == errno.ESTALE and number >= self.protected:
                self.gone.append(number)
            else:
                self.wrong.append(f"an open file of record {number}: {e}")

    def read_all_held(self):
        for number, file in self.held:
            self.read_held(number, file)

    def map(self):
        """Maps protected records, which move, and looks at what was mapped before."""
        if len(self.maps) > 30:
            del self.maps[:10]
        number = self.random.randrange(self.protected)
        with open(f"{self.mnt}/tree/{name(number)}", "rb") as file:
            self.maps.append((number, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)))
        for number, mapping in self.maps:
            self.check(bytes(mapping), len(body(number)), number, "a mapping")

    def run(self):
        actions = [self.by_index, self.by_name, self.of_the_protected, self.hold, self.read_all_held, self.map]
        while not select.select([sys.stdin], [], [], 0)[0]:
            action = self.random.choice(actions)
            try:
                action()
            except OSError as e:
                # A listing may be cut short by nothing.
                self.wrong.append(f"{action.__name__}: {e}")
            self.note(action.__name__)
            if len(self.wrong) > 20:
                break
        print(json.dumps({"counts": self.counts, "wrong": self.wrong[:20], "gone": sorted(set(self.gone))}))


if __name__ == "__main__":
    Reader(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).run()
