"""The packages that packaging/build.sh makes: the .deb on this machine, from dpkg -i to dpkg --purge, and the tarball in a
fresh home, in an empty chroot, and by its contents."""

import contextlib
import os
import pathlib
import shutil
import tarfile
import unittest

from support import (
    NOBODY, ROOT, Case, as_nobody, clear_mount, daemons, import_folder, is_mounted, make_tree, mounts, open_dev_fuse, run, text,
    wait_until,
)

PACKAGES = pathlib.Path(os.environ.get("ZRFS_PACKAGES", ROOT / "target/packages"))
COMMANDS = [
    "cat", "compact", "delete", "demo", "export", "import", "ls", "mount", "repair", "sample", "seal", "stats", "umount", "verify",
]
PAGES = ["man1/zrfs.1", *(f"man1/zrfs-{command}.1" for command in COMMANDS), "man8/mount.zrfs.8"]
UNITS = ["fstab", "srv-photos.mount", "srv-photos.automount", "zrfs-photos.service", "user/zrfs@.service"]
EXAMPLES = sorted(path.name for suffix in ("py", "sh") for path in (ROOT / "examples").glob(f"*.{suffix}"))
DOCUMENTS = [
    "README.md", "docs/FORMAT.md", "docs/PERFORMANCE.md", "docs/SEMANTICS.md", "docs/speed.svg",
    *(f"examples/{name}" for name in [*UNITS, *EXAMPLES]),
]
CONTENTS = [b"zero", b"one", text(100_000)]


def the_package(pattern):
    found = list(PACKAGES.glob(pattern))
    if len(found) != 1:
        raise AssertionError(f"one {pattern} expected in {PACKAGES}, found {found}; packaging/build.sh makes it")
    return found[0]


def files_below(folder):
    folder = pathlib.Path(folder)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


class Installed(Case):
    """The package, installed for all of these tests, and purged after them."""

    @classmethod
    def setUpClass(cls):
        cls.deb = the_package("zrfs_*.deb")
        known = run("dpkg-query", "-W", "-f", "${Status}", "zrfs").stdout
        there = [path for path in map(shutil.which, ["zrfs", "mount.zrfs", "mount.fuse.zrfs"]) if path]
        if b"installed" in known or there:
            raise AssertionError(
                f"this machine has a zrfs of its own, which these tests would replace and purge: {there or 'the package'}"
            )
        cls.addClassCleanup(cls.purge)

    def setUp(self):
        super().setUp()
        self.need_root()
        if not os.path.exists("/usr/bin/zrfs"):
            self.install()

    def install(self):
        # Machines that leave out documents, as some containers do, have them of this package.
        run("dpkg", "--path-include=/usr/share/*", "-i", self.deb, check=0)

    @staticmethod
    def purge():
        if os.path.exists("/usr/bin/zrfs"):
            run("dpkg", "--purge", "zrfs", check=0)

    def serves(self, point):
        records = pathlib.Path(point) / "records"
        self.assertEqual([path.read_bytes() for path in sorted(records.iterdir())], CONTENTS)

    def store(self, name="store.zr"):
        return import_folder(self.dir, name, CONTENTS)

    def files(self):
        return [
            "/usr/bin/zrfs", "/usr/sbin/mount.zrfs", "/usr/sbin/mount.fuse.zrfs",
            *(f"/usr/share/man/{page}.gz" for page in PAGES), "/usr/share/man/man8/mount.fuse.zrfs.8.gz",
            "/usr/share/bash-completion/completions/zrfs", "/usr/share/zsh/vendor-completions/_zrfs",
            "/usr/share/fish/vendor_completions.d/zrfs.fish", "/usr/share/doc/zrfs/copyright", "/usr/share/doc/zrfs/changelog.gz",
            *(f"/usr/share/doc/zrfs/{name}" for name in DOCUMENTS),
        ]

    def test_files_are_there(self):
        listed = run("dpkg", "-L", "zrfs", check=0).stdout.decode().split("\n")
        self.assertEqual(sorted(path for path in listed if path and not os.path.isdir(path)), sorted(self.files()))
        self.assertEqual(run("dpkg", "-V", "zrfs", check=0).stdout, b"")
        fields = run("dpkg-query", "-W", "-f", "${Depends}|${Recommends}", "zrfs", check=0).stdout
        self.assertEqual(fields, b"|fuse3", "static programs depend on nothing")
        self.assertRegex(run("/usr/bin/zrfs", "--version", check=0).stdout, rb"^zrfs \d")
        for page in PAGES:
            number, name = page.removeprefix("man")[0], page.split("/")[1][:-2]
            self.assertEqual(run("man", "-w", number, name, check=0).stdout.decode().strip(), f"/usr/share/man/{page}.gz")
        mount_page = run("man", "8", "mount.zrfs", check=0, env={**os.environ, "MANWIDTH": "200"}).stdout.decode()
        for words in ["SYNOPSIS", "allow_other", "EXIT STATUS", "EXAMPLES"]:
            self.assertIn(words, mount_page)

    def test_completions_load_and_complete(self):
        completions = {
            "bash": "/usr/share/bash-completion/completions/zrfs",
            "zsh": "/usr/share/zsh/vendor-completions/_zrfs",
            "fish": "/usr/share/fish/vendor_completions.d/zrfs.fish",
        }
        for shell, path in completions.items():
            run(shell, "-n", path, check=0)
        script = completions["bash"]
        ask = f'. {script}; COMP_WORDS=(zrfs mo); COMP_CWORD=1; _zrfs zrfs mo zrfs; echo "${{COMPREPLY[@]}}"'
        self.assertEqual(run("bash", "-c", ask, check=0).stdout, b"mount\n")
        found = run("fish", "-c", "complete -C 'zrfs um'", check=0, env={**os.environ, "HOME": str(self.dir)}).stdout
        self.assertTrue(found.startswith(b"umount\t"), found)

    def test_units_are_accepted(self):
        examples = pathlib.Path("/usr/share/doc/zrfs/examples")
        folder = self.dir / "units"
        shutil.copytree(examples, folder)
        # With the manual pages that they name, and with the programs.
        for unit in ["srv-photos.mount", "srv-photos.automount", "zrfs-photos.service"]:
            done = run("systemd-analyze", "verify", folder / unit, check=0)
            self.assertNotIn(b"photos", done.stdout + done.stderr)
        env = {**os.environ, "XDG_RUNTIME_DIR": str(self.dir)}
        done = run("systemd-analyze", "--user", "verify", folder / "user/zrfs@.service", check=0, env=env)
        self.assertNotIn(b"zrfs", done.stdout + done.stderr)
        # What systemd makes of the lines for fstab.
        out = self.dir / "generated"
        out.mkdir()
        generator = "/lib/systemd/system-generators/systemd-fstab-generator"
        run(generator, out, out, out, check=0, env={**os.environ, "SYSTEMD_FSTAB": str(examples / "fstab")})
        made = sorted(path.name for path in out.glob("*.*mount"))
        names = ["photos", "speech", "tokens", "mine"]
        self.assertEqual(made, sorted([*(f"srv-{name}.mount" for name in names), "srv-tokens.automount"]))
        done = run("systemd-analyze", "verify", *(out / name for name in made), check=0)
        self.assertNotIn(b"srv-", done.stdout + done.stderr)

    def test_mounts_from_fstab(self):
        store, other = self.store(), self.store("other.zr")
        second = self.dir / "second"
        fstab = self.dir / "fstab"
        fstab.write_text(f"{store} {self.mnt} zrfs ro,nofail 0 0\n{other} {second} fuse.zrfs defaults,noatime,_netdev 0 0\n")
        self.mnt.mkdir()
        second.mkdir()
        run("mount", "-T", fstab, "-a", check=0, env={})
        before = {point: daemons(point) for point in (self.mnt, second)}
        self.assertEqual([len(pids) for pids in before.values()], [1, 1])
        # Again: what is mounted stays as it is.
        run("mount", "-T", fstab, "-a", check=0, env={})
        self.assertEqual({point: daemons(point) for point in (self.mnt, second)}, before)
        self.assertEqual(len([where for where, _, _ in mounts() if where.startswith(os.fsencode(self.dir))]), 2)
        for point in (self.mnt, second):
            self.serves(point)
            run("umount", point, check=0)
            wait_until(lambda: not daemons(point), "the daemon ended")
        done = run("mount", "-T", fstab, "-o", "no_such_option", self.mnt)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"no_such_option", done.stderr)
        self.assertFalse(is_mounted(self.mnt))

    def test_upgrade_and_purge_leave_a_mount_and_nothing_else(self):
        self.mnt.mkdir()
        run("mount", "-t", "zrfs", self.store(), self.mnt, check=0)
        pids = daemons(self.mnt)
        self.install()
        self.serves(self.mnt)
        self.assertEqual(daemons(self.mnt), pids)
        self.purge()
        self.assertEqual([path for path in [*self.files(), "/usr/share/doc/zrfs"] if os.path.lexists(path)], [])
        self.assertEqual(run("dpkg-query", "-W", "zrfs").returncode, 1, "dpkg remembers nothing")
        self.serves(self.mnt)
        run("umount", self.mnt, check=0)
        wait_until(lambda: not daemons(self.mnt), "the daemon ended")


class Tarball(Case):
    def setUp(self):
        super().setUp()
        self.archive = the_package("zrfs-*-linux.tar.gz")
        self.name = self.archive.name.removesuffix(".tar.gz")

    def unpack(self):
        run("tar", "-xzf", self.archive, "-C", self.dir, check=0)
        return self.dir / self.name

    def test_contents(self):
        with tarfile.open(self.archive) as archive:
            members = archive.getmembers()
        share = [
            *(f"man/{page}" for page in PAGES), "bash-completion/completions/zrfs", "zsh/site-functions/_zrfs",
            "fish/vendor_completions.d/zrfs.fish", *(f"doc/zrfs/{name}" for name in [*DOCUMENTS, "CHANGELOG.md", "LICENSE"]),
        ]
        expected = ["bin/zrfs", "bin/mount.zrfs", "install.sh", *(f"share/{path}" for path in share)]
        self.assertEqual([m.name for m in members if not m.isdir()], sorted(f"{self.name}/{path}" for path in expected))
        self.assertEqual({(m.uid, m.gid) for m in members}, {(0, 0)})
        self.assertEqual(len({m.mtime for m in members}), 1, "the same commit makes the same bytes")
        programs = {f"{self.name}/{path}" for path in ["bin/zrfs", "bin/mount.zrfs", "install.sh"]}
        for member in members:
            self.assertEqual(oct(member.mode), oct(0o755 if member.isdir() or member.name in programs else 0o644), member.name)

    def test_programs_are_static(self):
        tree = self.unpack()
        for program in ["zrfs", "mount.zrfs"]:
            headers = run("readelf", "--wide", "--program-headers", "--dynamic", tree / "bin" / program, check=0).stdout
            for word in [b"INTERP", b"NEEDED"]:
                self.assertNotIn(word, headers, program)

    def test_programs_need_nothing_of_the_machine_but_dev_fuse_and_proc(self):
        self.need_root()
        root = self.dir / "root"
        for folder in ["bin", "dev", "proc", "mnt"]:
            (root / folder).mkdir(parents=True)
        tree = self.unpack()
        for program in ["zrfs", "mount.zrfs"]:
            shutil.copy(tree / "bin" / program, root / "bin")
        make_tree(root / "photos", {"a/0.bin": CONTENTS[0], "a/1.bin": CONTENTS[1], "b/2.bin": CONTENTS[2]})
        # In a mount namespace of its own, so that the device and /proc go with it.
        script = f"""set -e
            for file in fuse null; do : >{root}/dev/$file; mount --bind /dev/$file {root}/dev/$file; done
            mount -t proc proc {root}/proc
            chroot {root} /bin/zrfs import /photos /photos.zr
            chroot {root} /bin/mount.zrfs /photos.zr /mnt -o ro
            cat {root}/mnt/tree/b/2.bin
            chroot {root} /bin/zrfs umount /mnt"""
        done = run("unshare", "--mount", "sh", "-c", script, check=0, env={"PATH": "/usr/sbin:/usr/bin"})
        self.assertTrue(done.stdout.endswith(CONTENTS[2]), done.stdout[:200])
        wait_until(lambda: not [pid for pid in daemons("/mnt") if self.runs_in(pid, root)], "the daemon ended")

    @staticmethod
    def runs_in(pid, root):
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{pid}/root") == str(root)

    def test_a_user_unpacks_it_at_home_and_mounts(self):
        self.need_root()
        open_dev_fuse()
        self.dir.chmod(0o755)
        home = self.dir / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        make_tree(home / "photos", {f"{i}.bin": content for i, content in enumerate(CONTENTS)})
        point = home / "mnt"
        env = {"HOME": str(home), "PATH": f"{home}/.local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}

        def user(*args):
            return run(*as_nobody(*args), check=0, env=env, cwd=home)

        user("tar", "-xzf", self.archive)
        # Twice: an upgrade, over programs that are running.
        said = user(f"{self.name}/install.sh").stdout.decode()
        self.assertEqual(said, f"zrfs is in {home}/.local/bin\n")
        self.assertEqual(files_below(home / ".local/bin"), ["mount.zrfs", "zrfs"])
        try:
            user("zrfs", "import", "photos", "photos.zr")
            user("mkdir", "mnt")
            user("zrfs", "mount", "photos.zr", "mnt")
            for i, content in enumerate(CONTENTS):
                self.assertEqual(user("cat", f"mnt/tree/{i}.bin").stdout, content)
            user(f"{self.name}/install.sh")
            self.assertEqual(user("cat", "mnt/tree/0.bin").stdout, CONTENTS[0])
            user("zrfs", "umount", "mnt")
            wait_until(lambda: not daemons(point), "the daemon ended")
            self.assertFalse(is_mounted(point))
        finally:
            clear_mount(point)
        # man finds the pages of a prefix whose bin/ is in PATH.
        self.assertEqual(user("man", "-w", "zrfs-mount").stdout.decode().strip(), f"{home}/.local/share/man/man1/zrfs-mount.1")
        (home / ".local/bin/other").write_bytes(b"")
        user(f"{self.name}/install.sh", "--remove")
        self.assertEqual(files_below(home / ".local"), ["bin/other"])


if __name__ == "__main__":
    unittest.main()
