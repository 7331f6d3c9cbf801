"""The C interface: libzrfs.so and include/zrfs.h, from C."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from support import ROOT, Case, run, say, zrfs

LIBRARY = pathlib.Path(os.environ.get("ZRFS_LIBRARY", ROOT / "target/release/libzrfs.so"))
INCLUDE = ROOT / "include"
HEADER = INCLUDE / "zrfs.h"
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
OURS = ["-L", LIBRARY.parent, "-lzrfs"]
# What loaderx does not have.
OWN = {"zr_last_error"}


def cdefs():
    """The declarations that loaderx's bindings load, from the installed package, as one text for each module."""
    package = pathlib.Path(importlib.util.find_spec("loaderx").origin).parent
    texts = []
    for module in ("_zrecord.py", "_sampler.py"):
        found = re.search(r'ffi\.cdef\("""(.*?)"""\)', (package / module).read_text(), re.DOTALL)
        texts.append(found[1])
    return texts


def functions(declarations):
    return set(re.findall(r"\b(\w+)\s*\([^()]*\)\s*;", declarations))


def without_comments(source):
    return re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)


class Header(Case):
    def cc(self, source, *options, libraries=(), check=0, compiler="cc"):
        file = self.dir / "source.c"
        file.write_text(source)
        return run(compiler, *STRICT, "-I", INCLUDE, *options, file, *libraries, check=check)

    def test_c_and_cxx(self):
        for standard in ("c99", "c11", "c17"):
            self.cc("#include <zrfs.h>\n", f"-std={standard}", "-fsyntax-only")
        source = "#include <zrfs.h>\nint main() { Zrecord *zr = zr_open(\"\", 0, 0); zr_close(zr); return ZR_EIO + 2; }\n"
        for standard in ("c++11", "c++17", "c++20"):
            self.cc(source, f"-std={standard}", "-x", "c++", "-fsyntax-only", compiler="g++")
        # The library is found by its name, with a C linkage.
        self.cc(source, "-x", "c++", "-o", self.dir / "program", compiler="g++", check=1)
        self.cc(source, "-x", "c++", "-o", self.dir / "program", libraries=OURS, compiler="g++")
        run(self.dir / "program", env={"LD_LIBRARY_PATH": str(LIBRARY.parent)}, check=0)

    def test_declarations_are_loaderxs(self):
        declarations = "\n".join(cdefs())
        source = f"#include <zrfs.h>\n{declarations}\n"
        self.cc(source, "-std=c11", "-fsyntax-only")
        # The compiler sees a difference where there is one.
        for ours, other in [
            ("uint32_t zr_len", "uint64_t zr_len"), ("size_t stride", "int stride"), ("uint8_t mode", "uint16_t mode"),
            ("typedef struct Zrecord Zrecord", "typedef struct Other Zrecord"),
        ]:
            self.assertIn(ours, declarations)
            done = self.cc(source.replace(ours, other), "-std=c11", "-fsyntax-only", check=1)
            self.assertIn(b"conflicting types", done.stderr)
        ours = functions(without_comments(HEADER.read_text()))
        self.assertEqual(ours, functions(without_comments(declarations)) | OWN)
        self.assertEqual(len(ours), 17)

    def test_numbers_are_loaderxs(self):
        numbers = {name: int(value) for name, value in re.findall(r"^\s*(ZR_\w+) = (-?\d+)", HEADER.read_text(), re.M)}
        # Its bindings load its library, which is not asked here.
        package = pathlib.Path(importlib.util.find_spec("loaderx").origin).parent
        binding = (package / "_zrecord.py").read_text()
        codes = {int(code) for code in re.findall(r"^    (-\d+):", binding, re.M)}
        self.assertEqual({value for name, value in numbers.items() if name.startswith("ZR_E")}, codes)
        self.assertEqual(len(codes), 8)
        codecs = dict(re.findall(r'"(\w+)": (\d)', re.search(r"CODECS = (.*)", binding)[1]))
        self.assertEqual(codecs, {"raw": str(numbers["ZR_CODEC_RAW"]), "flate": str(numbers["ZR_CODEC_FLATE"])})
        modes = dict(re.findall(r"(SEQUENTIAL|IID) = (\d)", (package / "_sampler.py").read_text()))
        self.assertEqual(modes, {"SEQUENTIAL": str(numbers["ZR_MODE_SEQUENTIAL"]), "IID": str(numbers["ZR_MODE_IID"])})

    def test_the_example_runs(self):
        comment = re.search(r"^ \*     #include <stdio.h>\n.*?^ \*     }\n", HEADER.read_text(), re.M | re.DOTALL)[0]
        source = "\n".join(line[7:] for line in comment.splitlines())
        self.cc(source, "-std=c99", "-o", self.dir / "example", libraries=OURS)
        env = {"LD_LIBRARY_PATH": str(LIBRARY.parent)}
        for n in (1000, 2000):
            run(self.dir / "example", env=env, cwd=self.dir, check=0)
            self.assertEqual(len(zrfs("ls", self.dir / "train.zr").stdout.splitlines()), n)
        # It says what is wrong.
        shutil.rmtree(self.dir / "train.zr")
        (self.dir / "train.zr").write_bytes(b"a file")
        done = run(self.dir / "example", env=env, cwd=self.dir, check=1)
        self.assertIn(b"is not a store", done.stderr)


class Library(Case):
    def test_exported_names(self):
        said = run("nm", "-D", "--defined-only", LIBRARY, check=0).stdout.decode()
        names = {line.split()[-1] for line in said.splitlines()}
        self.assertEqual(names, functions(without_comments("\n".join(cdefs()))) | OWN)

    def test_it_stays_loaded_and_is_found_by_its_name(self):
        said = run("readelf", "-d", LIBRARY, check=0).stdout.decode()
        self.assertIn("NODELETE", said)
        self.assertIn("Library soname: [libzrfs.so]", said)

    def test_every_function_from_c(self):
        program, folder, copy = self.dir / "capi", self.dir / "stores", self.dir / "copy.so"
        run("cc", *STRICT[:-1], "-std=c11", "-pthread", "-O1", "-I", INCLUDE, ROOT / "tests/capi.c",
            *OURS, "-o", program, check=0)
        folder.mkdir()
        shutil.copyfile(LIBRARY, copy)
        try:
            done = run(program, folder, copy, env={"LD_LIBRARY_PATH": str(LIBRARY.parent)}, timeout=300)
        except subprocess.TimeoutExpired as error:
            self.fail(f"it hangs: {error.stderr}")
        self.assertEqual((done.returncode, done.stdout), (0, b"ok\n"), done.stderr)
        # Its stores are sound.
        for store in ("fixed.zr", "ragged.zr", "deleted.zr", "forked.zr", "of_a_child.zr", "deep/er/none.zr"):
            zrfs("verify", folder / store)
        say(f"{LIBRARY.stat().st_size >> 20} MiB of library")


if __name__ == "__main__":
    unittest.main()
