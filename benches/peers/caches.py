"""Cold reads: what the kernel keeps in memory of files is dropped before them."""

import os


def droppable(run, what):
    """Whether cold reads are measured: --smoke measures nothing, and who is not root can't."""
    if not run.smoke and os.geteuid() != 0:
        run.leave_out(f"{what}, cold", "only root may drop the caches")
    return not run.smoke and os.geteuid() == 0


def drop():
    """Drops the caches. Pages that a process has mapped outlive it: close what should be cold before."""
    # Dirty pages are not dropped.
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")
