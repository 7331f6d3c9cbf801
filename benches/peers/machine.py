"""What a run ran on."""

import datetime
import os
import platform
from importlib.metadata import version

import numpy as np

from data import MIB


def machine(folder):
    model = "unknown"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "date": datetime.date.today().isoformat(),
        "cores": len(os.sched_getaffinity(0)), "cpu": model, "kernel": platform.release(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        "file_system": file_system(folder), "python": platform.python_version(), "numpy": np.__version__,
        "loaderx": version("loaderx"), "load_before": round(os.getloadavg()[0], 2),
    }


def file_system(folder):
    """The type of the file system that holds a folder."""
    device = os.stat(folder).st_dev
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            if line.split(" ")[2] == f"{os.major(device)}:{os.minor(device)}":
                return line.split(" - ", 1)[1].split(" ")[0]
    return "unknown"
