"""Records by the paths of their files: ls, cat and delete with --names."""

import json
import os
import random
import signal
import unittest

from changing import MARK, Changing, Saved, Watch, records_of, start, swap_last
from support import make_folder, make_tree, noise, read_header, say, zrfs
from trees import ODD_NAMES, odd_tree


def names_of(store):
    """[(name, modified, executable)] of the records, None for one without a name."""
    found = []
    for line in zrfs("ls", store, "--json").stdout.splitlines():
        row = json.loads(line)
        found.append((os.fsencode(row["name"]), row["modified"], row["executable"]) if "name" in row else None)
    return found


def listed(names, end=b"\n"):
    return b"".join(name + end for name in names)


class Named(Changing):
    """A store of a tree of odd names."""

    def setUp(self):
        super().setUp()
        self.tree = self.dir / "tree"
        self.files = odd_tree(self.tree)
        zrfs("import", self.tree, self.store, "--links", "keep")

    def assert_none_found(self, command, names, *words):
        done = self.assert_refused_unchanged([command, self.store, "--names", "-"], *words, input=listed(names))
        return done.stderr

    def test_ls_has_the_path_of_each_file(self):
        rows = names_of(self.store)
        self.assertEqual({name for name, _, _ in rows}, set(self.files))
        self.assertEqual(len(rows), len(self.files))
        for name, modified, executable in rows:
            st = os.stat(os.path.join(os.fsencode(self.tree), name))
            self.assertEqual((modified, executable), (st.st_mtime_ns, bool(st.st_mode & 0o100)), name)
        # As text: a line a record, four columns, and bytes as they are but for what would break that.
        lines = zrfs("ls", self.store).stdout.split(b"\n")
        self.assertEqual(lines.pop(), b"")
        self.assertEqual(len(lines), len(rows))
        for i, (line, (name, _, _)) in enumerate(zip(lines, rows)):
            index, length, _, column = line.split(b"\t")
            self.assertEqual((int(index), int(length)), (i, len(self.files[name])))
            shown = name.replace(b"\\", b"\\\\")
            for byte, escaped in ((b"\n", b"\\n"), (b"\t", b"\\t"), (b"\r", b"\\r"), (b"\x1b", b"\\x1b")):
                shown = shown.replace(byte, escaped)
            self.assertEqual(column, shown)
        some = zrfs("ls", self.store, "3 5-7 3").stdout.split(b"\n")[:-1]
        self.assertEqual(some, [lines[3], *lines[5:8], lines[3]])
        by_name = zrfs("ls", self.store, "--names", "-", "-0", input=listed([rows[9][0], rows[2][0]], b"\0")).stdout
        self.assertEqual(by_name, lines[9] + b"\n" + lines[2] + b"\n")

    def test_cat_takes_any_name(self):
        order = [name for name, _, _ in names_of(self.store)]
        random.Random(1).shuffle(order)
        wanted = b"".join(self.files[name] for name in order)
        done = zrfs("cat", self.store, "--names", "-", "--null", input=listed(order, b"\0"))
        self.assertTrue(done.stdout == wanted)
        # One a line, from a file, where no name has a newline. A carriage return is a byte as any other.
        order = [name for name in order if b"\n" not in name]
        self.assertTrue(any(b"\r" in name for name in order))
        (self.dir / "list").write_bytes(listed(order))
        done = zrfs("cat", self.store, "--names", self.dir / "list")
        self.assertTrue(done.stdout == b"".join(self.files[name] for name in order))
        # The spellings that are allowed: ./ before, no newline behind, empty lines at the end, and twice is twice.
        plain, other = b"plain.png", b"a/b/c/d/e/Case"
        for text, names in (
            (b"./plain.png\na/b/c/d/e/Case", [plain, other]), (b"plain.png\n\n\n", [plain]), (b"plain.png", [plain]),
            (b"plain.png\na/b/c/d/e/Case\nplain.png\n", [plain, other, plain]), (b"", []), (b"\n", []),
        ):
            with self.subTest(text=text):
                done = zrfs("cat", self.store, "--names", "-", input=text)
                self.assertEqual(done.stdout, b"".join(self.files[name] for name in names))

    def test_what_is_no_record_is_refused_and_nothing_is_done(self):
        for command in ("ls", "cat", "delete"):
            with self.subTest(command=command):
                said = self.assert_none_found(command, [b"plain.png", b"not here"], "1 of 2", '"not here" (not there)')
                self.assertNotIn(b"plain.png", said)
                self.assert_none_found(command, [b"a/b"], '"a/b" (a folder)')
                self.assert_none_found(command, [b"a/link to folder"], "(a link)")
                self.assert_none_found(command, [b"plain.png", b"", b"Case"], "an empty line")
                self.assert_none_found(command, [b"\xff\n"[:1] + b"?", b"x\ty"], r"\xff?", r"x\ty")
                for name in (
                    b"plain.png/", b"/plain.png", b"a//b", b"a/../plain.png", b"..", b".", b"tree/plain.png", b"PLAIN.PNG",
                    b"plain.png\r", b" plain.png", b"link/x", b"a/link to folder/d/e/Case", b"././plain.png", b"x" * 5000,
                ):
                    self.assert_none_found(command, [name], "1 name")
                self.assert_none_found(command, [b"no %d" % i for i in range(1000)], "1000 of 1000", '"no 0"', "…")
                self.assert_refused_unchanged(
                    [command, self.store, "--names", self.dir / "no list"], "no list", "no such file",
                )
                self.assert_refused_unchanged(
                    [command, self.store, "--names", "-"], "longer", input=b"x" * (3 << 20),
                )

    def test_usage(self):
        for args in (
            ["cat", self.store], ["delete", self.store], ["ls", self.store, "-0"], ["ls", self.store, "--names"],
            ["cat", self.store, "7", "--names", "-"], ["delete", self.store, "--names", "-", "-"],
            ["export", self.store, self.dir / "x", "7", "--names", "-"],
        ):
            with self.subTest(args=args[:1] + args[2:]):
                self.assertNotIn(b"panicked", zrfs(*args, check=2, input=b"plain.png\n").stderr)

    def test_a_store_without_names_says_so(self):
        (self.dir / "a").mkdir()
        np_file = self.dir / "a" / "x.npy"
        header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (5, 4), }"
        header = header.ljust(117) + b"\n"
        np_file.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(range(20)))
        zrfs("import", np_file, self.dir / "plain.zr")
        for command in ("ls", "cat", "delete"):
            done = zrfs(command, self.dir / "plain.zr", "--names", "-", input=b"x\n", check=None)
            self.assert_clear(done, "plain.zr has no names")
        self.assertEqual(zrfs("ls", self.dir / "plain.zr", "4").stdout.split(b"\t")[3], b"\n")
        self.assertEqual(names_of(self.dir / "plain.zr"), [None] * 5)

    def test_delete_takes_any_name(self):
        before = dict(zip((row[0] for row in names_of(self.store)), records_of(self.store)))
        gone = [name for name in ODD_NAMES if b"\n" not in name] + [b"a/b/c/d/e/new\nline"]
        done = zrfs("delete", self.store, "--names", "-", "-0", input=listed(gone + gone[:3], b"\0"))
        self.assertIn(b"deleted %d records" % len(gone), done.stdout)
        after = dict(zip((row[0] for row in names_of(self.store)), records_of(self.store)))
        self.assertEqual(after, {name: data for name, data in before.items() if name not in gone})
        self.assert_verified()
        # They are gone by name, too, and nothing else is.
        self.assert_none_found("cat", [gone[0], b"folders/Case/inside"], "1 of 2", "plain.png")


class ManyNamed(Changing):
    COUNT = 5000

    def setUp(self):
        super().setUp()
        self.rng = random.Random(7)
        tree = {f"c{i % 17}/sub {i % 3}/{i:05}.bin": noise(20 + i % 50, i) for i in range(self.COUNT)}
        make_tree(self.dir / "tree", tree)
        zrfs("import", self.dir / "tree", self.store)
        self.files = {os.fsencode(name): data for name, data in tree.items()}
        self.before = names_of(self.store)
        self.gone = self.rng.sample([name for name, _, _ in self.before], 1000)

    def assert_holds_all_but(self, gone, before=None):
        """Of the rows of `before` those that are not in `gone`, where a delete leaves them; gives them back."""
        gone, before = set(gone), before or self.before
        rows = names_of(self.store)
        left, _ = swap_last(before, [i for i, row in enumerate(before) if row[0] in gone])
        self.assert_same(rows, left)
        self.assert_same(records_of(self.store), [self.files[name] for name, _, _ in rows])
        self.assertEqual(read_header(self.store)[4], len(before) - len(gone))
        return rows

    def test_a_thousand_names_are_deleted_exactly(self):
        done = zrfs("delete", self.store, "--names", "-", input=listed(self.gone))
        self.assertIn(b"deleted 1000 records", done.stdout)
        self.assert_holds_all_but(self.gone)
        zrfs("compact", self.store)
        rows = self.assert_holds_all_but(self.gone)
        self.assert_verified()
        # One name too many, and none is deleted.
        more = [name for name, _, _ in rows[:10]]
        self.assert_refused_unchanged(
            ["delete", self.store, "--names", "-"], "1 of 11", input=listed([*more, self.gone[0]]),
        )
        zrfs("delete", self.store, "--names", "-", input=listed(more))
        self.assert_holds_all_but(more, rows)

    def labels(self):
        """A store of one record each for those of the first, in their order."""
        make_folder(self.dir / "labels", [name for name, _, _ in self.before])
        zrfs("import", self.dir / "labels", self.dir / "labels.zr")
        return self.dir / "labels.zr"

    def test_aligned_stores_lose_the_same_records(self):
        labels = self.labels()
        zrfs("delete", self.store, "--names", "-", "--with", labels, input=listed(self.gone))
        self.assert_holds_all_but(self.gone)
        self.assertEqual(records_of(labels), [name for name, _, _ in names_of(self.store)])

    def test_killed_under_way_and_finished_by_the_next_command(self):
        labels = self.labels()
        saved = Saved(self.store), Saved(labels)
        (self.dir / "list").write_bytes(listed(self.gone))
        cut_off = 0
        for attempt in range(60):
            with Watch(self.store / "meta.zr") as watch:
                process = start("delete", self.store, "--names", self.dir / "list", "--with", labels)
                writes = 1 + attempt % 3
                while writes and process.poll() is None:
                    writes -= watch.wait(0.01)
                process.send_signal(signal.SIGKILL)
                process.wait()
            under_way = bool(read_header(self.store)[1] & MARK)
            if under_way:
                # Reading sees the change as it will be.
                self.assertEqual(len(names_of(self.store)), self.COUNT - 1000)
            zrfs("delete", self.store, "")
            zrfs("delete", labels, "")
            length = read_header(self.store)[4]
            self.assertIn(length, (self.COUNT, self.COUNT - 1000) if not under_way else (self.COUNT - 1000,))
            self.assert_holds_all_but(self.gone if length < self.COUNT else [])
            self.assertEqual(records_of(labels), [name for name, _, _ in names_of(self.store)])
            cut_off += under_way
            if cut_off == 3:
                say(f"killed under way 3 times in {attempt + 1} attempts")
                return
            saved[0].restore()
            saved[1].restore()
        self.fail(f"60 kills, and the header said only {cut_off} times that a change is under way")


if __name__ == "__main__":
    unittest.main()
