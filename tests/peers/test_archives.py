"""Import from tar archives and .npz files, beside GNU tar, Python's tarfile and NumPy: what goes in, what is refused."""

import gzip
import io
import json
import os
import pathlib
import random
import signal
import subprocess
import tarfile
import unittest

import numpy as np
from support import MIB, ZRFS, Case, make_tree, noise, run, text, wait_until, zrfs

# Any bytes that a Linux name may hold.
NAMES = [
    b"plain.txt", b"with space", b"new\nline", b"quote'\"", b"-rf", b"trailing.", b"...", b"\xff\xfe", b"\xc3\xa9",
    b"A", b"a", b"back\\slash", b"x" * 255, b"deep/" + b"d" * 200 + b"/" + b"e" * 200,
]


def listed(store):
    """Path, time and executable bit of each record, by index."""
    lines = [json.loads(line) for line in zrfs("ls", store, "--json").stdout.splitlines()]
    return [(os.fsencode(line["name"]), line["modified"], line["executable"]) for line in lines]


def records(store, count):
    return [zrfs("cat", store, str(i)).stdout for i in range(count)]


def tree_of(root):
    """Everything below a folder: kind, time and contents by path."""
    seen = {}
    for where, folders, files in os.walk(os.fsencode(root)):
        for name in [b".", *folders, *files]:
            path = os.path.join(where, name)
            st = os.lstat(path)
            kind = "folder"
            if os.path.islink(path):
                kind = os.readlink(path)
            elif not os.path.isdir(path):
                kind = (pathlib.Path(os.fsdecode(path)).read_bytes(), st.st_mode & 0o111 != 0)
            seen[os.path.relpath(path, os.fsencode(root))] = (kind, st.st_mtime_ns)
    return seen


def member(name, content=b"", kind=tarfile.REGTYPE, **fields):
    """A member for `write_tar`."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mtime = kind, len(content), 1_000_000_000
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def write_tar(path, members, **options):
    with tarfile.open(path, "w", **options) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))


class Archives(Case):
    def setUp(self):
        super().setUp()
        self.tar, self.store = self.dir / "x.tar", self.dir / "store.zr"

    def refused(self, *args, words=(), status=(1,), **kwargs):
        """The import fails in one clear line and leaves the folder as it was."""
        before = sorted(os.listdir(self.dir))
        done = zrfs("import", *args, check=None, **kwargs)
        self.assert_clear(done, *words, status=status)
        self.assertEqual(sorted(os.listdir(self.dir)), before)

    def packed(self, members, *args, **options):
        """Import an archive of these members: names and contents of its records."""
        write_tar(self.tar, members, **options)
        zrfs("import", self.tar, self.store, *args)
        names = [name for name, _, _ in listed(self.store)]
        return list(zip(names, records(self.store, len(names)), strict=True))


class RoundTrip(Archives):
    def make_source(self):
        root = self.dir / "tree"
        make_tree(root, {name: name * 3 for name in NAMES})
        for i, (where, folders, files) in enumerate(sorted(os.walk(os.fsencode(root)))):
            os.makedirs(os.path.join(where, b"empty"), exist_ok=True)
            for j, name in enumerate(sorted(files)):
                os.chmod(os.path.join(where, name), 0o755 if j % 2 else 0o644)
                os.utime(os.path.join(where, name), ns=(0, (1_500_000_000 + j) * 10**9 + 123_456_789 * i))
        os.symlink("plain.txt", root / "link")
        os.symlink("../plain.txt", root / "deep" / "link")
        os.symlink("nowhere", root / "dangling")
        os.symlink("deep", root / "class")
        os.link(root / "plain.txt", root / "zz-hard")
        for where, folders, _ in os.walk(os.fsencode(root), topdown=False):
            for name in folders + [b"."]:
                os.utime(os.path.join(where, name), ns=(0, 1_400_000_000 * 10**9 + len(where)), follow_symlinks=False)
        return root

    def test_what_gnu_tar_packs_comes_out_as_gnu_tar_unpacks_it(self):
        root = self.make_source()
        for form in ("gnu", "pax"):
            for place in (".", "./", None):
                with self.subTest(format=form, place=place):
                    packed, expected, out = self.dir / f"{form}.tar", self.dir / "expected", self.dir / "out"
                    what = [place] if place else sorted(os.listdir(os.fsencode(root)))
                    run("tar", f"--format={form}", "-cf", packed, "-C", root, "--", *what, check=0)
                    expected.mkdir()
                    run("tar", "-xf", packed, "-C", expected, check=0)
                    zrfs("import", packed, self.store, "--links", "keep")
                    zrfs("export", self.store, out)
                    expected, found = tree_of(expected), tree_of(out)
                    if place is None:
                        # The archive knows no time of the folder of all.
                        expected.pop(b"."), found.pop(b".")
                    self.assertEqual(found, expected)
                    run("rm", "-rf", self.store, out, self.dir / "expected", check=0)

    def test_packed_and_piped_archives_give_the_same_store(self):
        root = self.make_source()
        run("tar", "--format=pax", "-cf", self.tar, "-C", root, ".", check=0)
        plain = self.tar.read_bytes()
        run("gzip", "-k", self.tar, check=0)
        (self.dir / "y.tgz").write_bytes(gzip.compress(plain[:5000]) + gzip.compress(plain[5000:]))
        zrfs("import", self.tar, self.store, "--links", "keep")
        expected = listed(self.store)
        contents = records(self.store, len(expected))
        for i, (source, given) in enumerate([
            (self.dir / "x.tar.gz", None), (self.dir / "y.tgz", None), ("-", plain), ("-", gzip.compress(plain)),
        ]):
            with self.subTest(source=source):
                store, more = self.dir / f"{i}.zr", {"input": given} if given else {}
                zrfs("import", source, store, "--links", "keep", **more)
                self.assertEqual(listed(store), expected)
                self.assertEqual(records(store, len(expected)), contents)

    def test_every_format_of_tarfile(self):
        members = [member(f"{'n' * 90}/{i}", text(1000 * i, i), mtime=10**9 + i, mode=0o755 if i % 2 else 0o600) for i in range(9)]
        for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            with self.subTest(format=form):
                write_tar(self.tar, members, format=form)
                zrfs("import", self.tar, self.store)
                self.assertEqual(
                    listed(self.store),
                    [(os.fsencode(m.name), m.mtime * 10**9, bool(m.mode & 0o111)) for m, _ in members],
                )
                self.assertEqual(records(self.store, len(members)), [content for _, content in members])
                run("rm", "-rf", self.store, check=0)

    def test_sparse_files_of_every_kind(self):
        root = self.dir / "tree"
        root.mkdir()
        expected = {}
        for name, pieces, size in (
            ("hole", {}, 1 << 20), ("middle", {300_000: b"abc"}, 1 << 20), ("end", {0: b"x", (1 << 20) - 4096: noise(4096, 1)}, 1 << 20),
            ("many", {i << 14: noise(4096, i) for i in range(60)}, 1 << 20),
        ):
            with open(root / name, "wb") as f:
                for at, piece in pieces.items():
                    f.seek(at)
                    f.write(piece)
                f.truncate(size)
            expected[name.encode()] = (root / name).read_bytes()
        for options in (["--format=gnu"], *(["--format=pax", f"--sparse-version={v}"] for v in ("0.0", "0.1", "1.0"))):
            with self.subTest(options=options):
                run("tar", "--sparse", *options, "-cf", self.tar, "-C", root, *sorted(os.listdir(root)), check=0)
                self.assertLess(self.tar.stat().st_size, 1 << 20)
                zrfs("import", self.tar, self.store)
                names = [name for name, _, _ in listed(self.store)]
                self.assertEqual(dict(zip(names, records(self.store, len(names)), strict=True)), expected)
                run("rm", "-rf", self.store, check=0)

    def test_names_longer_than_a_header_and_with_any_bytes(self):
        members = [member(os.fsdecode(name), name) for name in NAMES]
        for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            with self.subTest(format=form):
                found = self.packed(members, format=form, errors="surrogateescape")
                self.assertEqual(found, [(name, name) for name in NAMES])
                run("rm", "-rf", self.store, check=0)

    def test_folders_that_are_no_members_have_the_time_of_the_newest_file_below(self):
        write_tar(self.tar, [member("a/b/c/x", mtime=5), member("a/y", mtime=7), member("z", mtime=3), member("t/u/v", mtime=9),
                             member("t", kind=tarfile.DIRTYPE, mtime=2)])
        for source, more in ((self.tar, {}), ("-", {"input": self.tar.read_bytes()})):
            out = self.dir / "out"
            zrfs("import", source, self.store, **more)
            zrfs("export", self.store, out)
            times = {path: when // 10**9 for path, (kind, when) in tree_of(out).items() if kind == "folder"}
            self.assertEqual(times, {b".": 9, b"a": 7, b"a/b": 5, b"a/b/c": 5, b"t": 2, b"t/u": 9})
            run("rm", "-rf", self.store, out, check=0)

    def test_the_label_of_a_volume_is_no_member(self):
        make_tree(self.dir / "labelled", {"a/1.txt": b"one", "a/2.txt": b"two"})
        run("tar", "-V", "backup of today", "-cf", self.tar, "-C", self.dir / "labelled", "a", check=0)
        zrfs("import", self.tar, self.dir / "s.zr")
        self.assertEqual(zrfs("cat", self.dir / "s.zr", "0-1").stdout, b"onetwo")

    def test_folders_and_archives_come_one_after_another(self):
        make_tree(self.dir / "first", {"f/1": b"1", "f/2": b"2"})
        make_tree(self.dir / "last", {"l/6": b"6"})
        write_tar(self.tar, [member("t/4", b"4"), member("t/3", b"3")])
        write_tar(self.dir / "y.tar.gz", [member("y/5", b"5"), member("y/l", kind=tarfile.SYMTYPE, linkname="5")])
        (self.dir / "y.tar.gz").write_bytes(gzip.compress((self.dir / "y.tar.gz").read_bytes()))
        zrfs("import", self.dir / "y.tar.gz", self.dir / "first", self.tar, "-", self.dir / "last", self.store,
             input=gzip.compress(self.a_tar([member("s/7", b"7"), member("s/h", kind=tarfile.LNKTYPE, linkname="s/7")])))
        expected = [b"y/5", b"y/l", b"f/1", b"f/2", b"t/4", b"t/3", b"s/7", b"s/h", b"l/6"]
        self.assertEqual([name for name, _, _ in listed(self.store)], expected)
        self.assertEqual(records(self.store, 9), [b"5", b"5", b"1", b"2", b"4", b"3", b"7", b"7", b"6"])
        zrfs("import", self.tar, self.store, "--append", check=1)
        write_tar(self.tar, [member("more", b"8"), member("link", kind=tarfile.LNKTYPE, linkname="more")])
        zrfs("import", self.tar, self.store, "--append")
        self.assertEqual(records(self.store, 11)[9:], [b"8", b"8"])

    def a_tar(self, members):
        path = self.dir / "in.tar"
        write_tar(path, members)
        content = path.read_bytes()
        path.unlink()
        return content

    def test_labels_are_those_of_the_folders_at_the_top(self):
        from loaderx import Dataset
        members = [member(f"{c}/{i}", b"x") for i, c in enumerate("cab")]
        members += [member("z", kind=tarfile.SYMTYPE, linkname="a"), member("d", kind=tarfile.DIRTYPE)]
        write_tar(self.tar, members)
        for source, more in ((self.tar, {}), ("-", {"input": self.tar.read_bytes()})):
            labels = self.dir / "labels.zr"
            zrfs("import", source, self.store, "--links", "keep", "--labels", labels, **more)
            self.assertEqual(json.loads((labels / "classes.json").read_bytes()), ["a", "b", "c", "d", "z"])
            self.assertEqual([int(Dataset(labels)[i]) for i in range(3)], [2, 0, 1])
            run("rm", "-rf", self.store, labels, check=0)

    def test_large_records(self):
        members = [member("a", noise(5 * MIB, 1)), member("b", b""), member("c", noise(40 * MIB, 2))]
        self.assertEqual([content for _, content in self.packed(members)], [content for _, content in members])
        store = self.dir / "v1.zr"
        for source, more in ((self.tar, {}), ("-", {"input": self.tar.read_bytes()})):
            done = zrfs("import", source, store, "--v1", check=1, **more)
            self.assertIn(b"a", done.stderr)
            self.assertIn(b"--v1", done.stderr)
            self.assertFalse(store.exists())
        write_tar(self.dir / "small.tar", [member("small", b"x")])
        zrfs("import", self.dir / "small.tar", store)
        for source, more in ((self.tar, {}), ("-", {"input": self.tar.read_bytes()})):
            done = zrfs("import", source, store, "--append", check=1, **more)
            self.assertIn(b"--large", done.stderr)
            self.assertEqual(len(listed(store)), 1)
        zrfs("import", "-", store, "--append", "--large", input=self.tar.read_bytes())
        self.assertEqual(records(store, 4), [b"x"] + [content for _, content in members])


class Links(Archives):
    def test_followed_links_and_hard_links_are_records_behind_all_others(self):
        found = self.packed([
            member("l", kind=tarfile.SYMTYPE, linkname="b/../b/chain"),
            member("b/chain", kind=tarfile.SYMTYPE, linkname="../a"),
            member("hard", kind=tarfile.LNKTYPE, linkname="./a"),
            member("a", b"contents"), member("z", b"last"),
        ])
        self.assertEqual(found, [
            (b"a", b"contents"), (b"z", b"last"), (b"l", b"contents"), (b"b/chain", b"contents"), (b"hard", b"contents"),
        ])

    def test_what_leads_to_no_file_is_refused_by_name(self):
        sym, hard = tarfile.SYMTYPE, tarfile.LNKTYPE
        for kind, target, words, options in (
            (sym, "/etc/passwd", ["leads out", "--only"], []), (sym, "../out", ["leads out"], []),
            (sym, "/etc/passwd", ["leads out"], ["--links", "keep"]), (sym, "d/../../out", ["leads out"], ["--links", "keep"]),
            (sym, "gone", ["--links keep"], []), (sym, "d", ["folder", "--links keep"], []), (sym, "odd link", ["circles"], []),
            (hard, "gone", ["hard link"], []), (hard, "/etc/passwd", ["hard link"], []), (hard, "../out", ["hard link"], []),
            (sym, "d/x", ["--only"], ["--only", "odd*"]), (hard, "d/x", ["--only"], ["--only", "odd*"]),
        ):
            write_tar(self.tar, [member("d/x", b"x"), member("odd link", kind=kind, linkname=target)])
            for source, more in ((self.tar, {}), ("-", {"input": self.tar.read_bytes()})):
                with self.subTest(target=target, source=source, options=options):
                    self.refused(source, self.store, *options, words=["odd link", *words], **more)

    def test_links_that_are_not_picked_are_no_concern(self):
        found = self.packed([member("x.png", b"x"), member("l", kind=tarfile.SYMTYPE, linkname="/gone")], "--only", "*.png")
        self.assertEqual(found, [(b"x.png", b"x")])

    def test_devices_and_pipes_are_left_out_and_counted(self):
        write_tar(self.tar, [member("x", b"x"), member("p", kind=tarfile.FIFOTYPE), member("c", kind=tarfile.CHRTYPE)])
        done = zrfs("import", self.tar, self.store)
        self.assertIn(b"2 (pipes, devices)", done.stdout)
        self.assertEqual(records(self.store, 1), [b"x"])


class Hostile(Archives):
    def refused_both_ways(self, words):
        self.refused(self.tar, self.store, words=["x.tar", *words])
        self.refused("-", self.store, words=["standard input", *words], input=self.tar.read_bytes())

    def test_names(self):
        for name, words in (
            ("/etc/zrfs-odd", ["/etc/zrfs-odd", "absolute"]), ("../zrfs-odd", ["../zrfs-odd"]), ("a/../../odd", ["a/../../odd"]),
            ("..", [".."]), (".", [".", "another folder"]), ("a/./odd", ["a/./odd"]), ("a//odd", ["a//odd", "empty"]),
            ("", ["without a name"]), ("x" * 256, ["x" * 256, "255"]), ("y" * 256 + "/a", ["255"]), ("d/" * 3000 + "x", ["4096"]),
            ("nul\0odd", ["NUL"]),
        ):
            for kind in (tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE):
                if kind == tarfile.DIRTYPE and name in (".", ""):
                    continue
                with self.subTest(name=name[:20], kind=kind):
                    odd = member(name, kind=kind, linkname="good" if kind in (tarfile.LNKTYPE, tarfile.SYMTYPE) else "")
                    if "\0" in name:
                        odd[0].name, odd[0].pax_headers = "n", {"path": name}
                    write_tar(self.tar, [member("good", b"x"), odd], format=tarfile.PAX_FORMAT)
                    self.refused_both_ways(words)

    def test_a_path_that_comes_twice(self):
        for second in (member("d/twice", b"2"), member("d/twice", kind=tarfile.LNKTYPE, linkname="x"), member("d/twice/x", b"2")):
            write_tar(self.tar, [member("x", b"x"), member("d/twice", b"1"), second])
            self.refused(self.tar, self.store, words=["d/twice"])
            self.refused("-", self.store, words=["d/twice"], input=self.tar.read_bytes())

    def test_sizes_that_are_not_there(self):
        for size in (10**6, 2 << 30, 1 << 60):
            info, _ = member("big")
            info.size = size
            self.tar.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
            # Memory for what a header says and nothing else would not be there.
            limited = ["prlimit", f"--as={1 << 30}", ZRFS]
            for source, more in ((self.tar, {}), ("-", {"input": self.tar.read_bytes()})):
                with self.subTest(size=size, source=source):
                    done = run(*limited, "import", source, self.store, **more)
                    self.assert_clear(done, "big" if size > 10**6 and more else "cut short")
                    self.assertFalse(self.store.exists())

    def test_files_over_1_gib(self):
        with open(self.tar, "wb") as f:
            info, _ = member("too big")
            info.size = (1 << 30) + 1
            f.write(info.tobuf(tarfile.GNU_FORMAT))
            f.seek(info.size + 511, os.SEEK_CUR)
            f.truncate((f.tell() // 512 + 4) * 512)
        done = zrfs("import", self.tar, self.store, check=1)
        self.assertIn(b"too big", done.stderr)
        self.assertIn(b"1 GiB", done.stderr)
        with open(self.tar, "rb") as f:
            done = run(ZRFS, "import", "-", self.store, stdin=f)
        self.assert_clear(done, "too big", "1 GiB")
        self.assertEqual(os.listdir(self.dir), ["x.tar"])

    def test_cut_archives(self):
        members = [member("a", text(700)), member("b" * 150, b"b"), member("c", noise(3000, 1))]
        write_tar(self.tar, members, format=tarfile.PAX_FORMAT)
        whole = self.tar.read_bytes()
        end = len(whole.rstrip(b"\0")) // 512 * 512 + 512
        for cut in [*range(0, end, 333), *range(512, end + 1, 512), end + 100]:
            self.tar.write_bytes(whole[:cut])
            (self.dir / "x.tar.gz").write_bytes(gzip.compress(whole[:cut]))
            with self.subTest(cut=cut):
                self.refused(self.tar, self.store, words=["x.tar"])
                self.refused(self.dir / "x.tar.gz", self.store, words=["x.tar.gz"])

    def test_cut_and_flipped_gzip_streams(self):
        write_tar(self.tar, [member(f"{i}", noise(2000, i)) for i in range(20)])
        packed = gzip.compress(self.tar.read_bytes())
        path = self.dir / "x.tar.gz"
        for cut in range(18, len(packed), len(packed) // 25):
            path.write_bytes(packed[:cut])
            with self.subTest(cut=cut):
                self.refused(path, self.store, words=["x.tar.gz"])
        draw = random.Random(7)
        for _ in range(40):
            # Behind the header, whose name, time and flags nothing checks.
            at = draw.randrange(18, len(packed))
            path.write_bytes(packed[:at] + bytes([packed[at] ^ 1 << draw.randrange(8)]) + packed[at + 1:])
            with self.subTest(at=at):
                self.refused(path, self.store, words=["x.tar.gz"])

    def test_flipped_bytes_of_a_plain_archive_never_end_badly(self):
        members = [member("a", b"1"), member("b" * 150, b"2"), member("l", kind=tarfile.LNKTYPE, linkname="a")]
        write_tar(self.tar, members, format=tarfile.GNU_FORMAT)
        whole, draw = self.tar.read_bytes(), random.Random(8)
        for _ in range(150):
            at = draw.randrange(512 * 8)
            self.tar.write_bytes(whole[:at] + bytes([draw.randrange(256)]) + whole[at + 1:])
            for source, more in ((self.tar, {}), ("-", {"input": self.tar.read_bytes()})):
                with self.subTest(at=at, source=source):
                    done = zrfs("import", source, self.store, check=None, timeout=30, **more)
                    if done.returncode:
                        self.assertEqual(done.returncode, 1)
                        self.assertNotIn(b"panicked", done.stderr)
                        self.assertEqual(sorted(os.listdir(self.dir)), ["x.tar"])
                    run("rm", "-rf", self.store, check=0)

    def test_what_is_no_archive(self):
        for content, words in (
            (b"", ["empty"]), (b"plain text\n" * 100, ["no tar archive"]), (run("xz", "-c", input=b"x" * 5000, check=0).stdout, ["xz -dc"]),
            (bytes(1024), ["no file"]),
        ):
            self.tar.write_bytes(content)
            self.refused(self.tar, self.store, words=words)
            self.refused("-", self.store, words=words, input=content)
        write_tar(self.tar, [member("a", b"x")])
        whole = self.tar.read_bytes()
        self.tar.write_bytes(whole + whole)
        self.refused_both_ways(["behind its end"])

    def test_wrong_usage(self):
        np.save(self.dir / "a.npy", np.zeros(3))
        write_tar(self.tar, [member("a", b"x")])
        for args, words in (
            ([self.tar, self.dir / "a.npy"], ["store"]), (["-", "-"], ["standard input"]), ([self.tar, "--stack"], ["--stack"]),
            ([self.tar, "--rows", "7"], ["--rows"]),
        ):
            self.refused(*args, self.store, words=words, status=(2,))
        self.refused(self.dir / "gone.tar", self.store, words=["gone.tar"])

    def test_an_interrupted_wait_for_standard_input_leaves_nothing(self):
        write_tar(self.tar, [member("a", b"x")])
        with subprocess.Popen([ZRFS, "import", "-", self.store], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                process.stdin.write(self.tar.read_bytes()[:700])
                process.stdin.flush()
                wait_until(lambda: (self.dir / "store.zr.partial").exists(), "the import has begun")
                process.send_signal(signal.SIGINT)
                _, err = process.stderr.read(), process.wait(timeout=20)
            finally:
                process.kill()
        self.assertEqual(process.returncode, 1)
        self.assertEqual(os.listdir(self.dir), ["x.tar"])


class WebDataset(Archives):
    SAMPLES = [("000", ("jpg", "cls")), ("001", ("jpg", "cls")), ("002", ("jpg", "cls"))]

    def members(self):
        return [member(f"s/{key}.{suffix}", f"{key}{suffix}".encode()) for key, suffixes in self.SAMPLES for suffix in suffixes]

    def test_samples_of_several_files_are_refused_and_picked(self):
        write_tar(self.tar, self.members())
        for source, more in ((self.tar, {}), ("-", {"input": self.tar.read_bytes()})):
            self.refused(source, self.store, words=["s/000", ".jpg", ".cls", "--only '*.jpg'"], **more)
        for suffix in ("jpg", "cls"):
            store = self.dir / f"{suffix}.zr"
            zrfs("import", self.tar, store, "--only", f"*.{suffix}")
            self.assertEqual([name for name, _, _ in listed(store)], [f"s/{key}.{suffix}".encode() for key, _ in self.SAMPLES])
            self.assertEqual(records(store, 3), [f"{key}{suffix}".encode() for key, _ in self.SAMPLES])

    def test_numbers_before_the_suffix_are_no_samples(self):
        found = self.packed([member(f"img.{i:03}.png", b"%d" % i) for i in range(5)])
        self.assertEqual(len(found), 5)

    def test_the_same_suffixes_of_two_keys_are_samples(self):
        write_tar(self.tar, [member(f"{key}.{side}.png", b"x") for key in "ab" for side in ("left", "right")])
        self.refused(self.tar, self.store, words=[".left.png", ".right.png", "--only"])


class Npz(Archives):
    def setUp(self):
        super().setUp()
        self.npz = self.dir / "a.npz"
        self.x = np.arange(5 * 700 * 3, dtype="<f4").reshape(5, 700, 3)
        self.y = np.arange(5, dtype=">i8")

    def test_arrays_are_picked_by_name(self):
        from loaderx import Dataset
        for save in (np.savez, np.savez_compressed):
            save(self.npz, x=self.x, y=self.y, **{"sub/z:1": self.y})
            zrfs("import", f"{self.npz}:x", self.store)
            self.assertEqual(records(self.store, 5), [row.tobytes() for row in self.x])
            np.testing.assert_array_equal(np.stack([Dataset(self.store)[i] for i in range(5)]), self.x)
            zrfs("import", f"{self.npz}:x", self.store, "--append")
            self.assertEqual(records(self.store, 10)[5:], [row.tobytes() for row in self.x])
            run("rm", "-rf", self.store, check=0)
            zrfs("import", f"{self.npz}:sub/z:1", self.store)
            self.assertEqual(records(self.store, 5), [self.y[i:i + 1].tobytes() for i in range(5)])
            run("rm", "-rf", self.store, check=0)

    def test_rows(self):
        np.savez(self.npz, tokens=np.arange(1000, dtype="<u2"))
        zrfs("import", f"{self.npz}:tokens", self.store, "--rows", "100")
        self.assertEqual(records(self.store, 10)[3], np.arange(300, 400, dtype="<u2").tobytes())

    def test_bare_and_wrong_names_list_what_is_there(self):
        np.savez(self.npz, x=self.x, y=self.y, f=np.asfortranarray(self.x), s=np.array(3), o=np.array(["a"]))
        self.refused(self.npz, self.store, words=["x (<f4 [5, 700, 3])", "y (>i8 [5])", "Fortran", "rank 0", "a.npz:x"])
        self.refused(f"{self.npz}:gone", self.store, words=["no array gone", "x (<f4 [5, 700, 3])"])
        for name, words in (("f", ["Fortran"]), ("s", ["rank 0"]), ("o", ["number"])):
            self.refused(f"{self.npz}:{name}", self.store, words=words)
        self.refused(f"{self.dir}/gone.npz:x", self.store, words=["gone.npz"])

    def test_a_file_of_that_very_name_wins(self):
        np.savez(self.npz, x=self.x)
        np.save(self.dir / "a.npz:x.npy", self.y)
        zrfs("import", self.dir / "a.npz:x.npy", self.store)
        self.assertEqual(records(self.store, 5), [self.y[i:i + 1].tobytes() for i in range(5)])

    def test_damage_is_an_error(self):
        for save in (np.savez, np.savez_compressed):
            save(self.npz, x=self.x)
            whole = self.npz.read_bytes()
            for cut in range(0, len(whole), len(whole) // 12):
                self.npz.write_bytes(whole[:cut])
                self.refused(f"{self.npz}:x", self.store, words=["a.npz"])
            draw = random.Random(9)
            for _ in range(25):
                # Within the array's data.
                at = draw.randrange(300, len(whole) - 300)
                self.npz.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1:])
                with self.subTest(at=at):
                    self.refused(f"{self.npz}:x", self.store, words=["a.npz"])


if __name__ == "__main__":
    unittest.main()
