"""Pythons that have more than NumPy: target/frameworks-venv with datasets, JAX and WebDataset, and Debian's own with torch."""

import os

from support import ROOT, Case, run
from test_openclipart import TORCH_PYTHON

PYTHON = os.environ.get("ZRFS_FRAMEWORKS_PYTHON", os.fspath(ROOT / "target/frameworks-venv/bin/python"))
# Debian's torch wants Debian's NumPy and Pillow, so what the other Python has comes behind its own.
BEHIND = """
import runpy, site, sys
site.addsitedir(sys.argv[1])
del sys.argv[:2]
sys.path[0] = ""
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class FrameworksCase(Case):
    def peer(self, *args):
        """What a script in target/frameworks-venv prints."""
        if not os.path.exists(PYTHON):
            if os.environ.get("ZRFS_ALLOW_NO_FRAMEWORKS") == "1":
                self.skipTest(f"there is no {PYTHON}, and ZRFS_ALLOW_NO_FRAMEWORKS=1 allows it")
            self.fail(f"{PYTHON} is missing: bash tests/all.sh makes it; ZRFS_ALLOW_NO_FRAMEWORKS=1 goes without")
        return self._printed(run(PYTHON, *args, timeout=300, env={**os.environ, "HOME": os.fspath(self.dir)}))

    def torch_peer(self, *args):
        """What a script prints that needs torch, too."""
        packages = self.peer("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        if run(TORCH_PYTHON, "-c", "import torch").returncode:
            if os.environ.get("ZRFS_ALLOW_NO_TORCHVISION") == "1":
                self.skipTest("torch is missing, and ZRFS_ALLOW_NO_TORCHVISION=1 allows it")
            self.fail(f"torch is missing in {TORCH_PYTHON}: apt-get install python3-torchvision; "
                      "ZRFS_ALLOW_NO_TORCHVISION=1 goes without")
        return self._printed(run(TORCH_PYTHON, "-c", BEHIND, packages, *args, timeout=300))

    def _printed(self, done):
        self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:])
        return done.stdout.decode()
