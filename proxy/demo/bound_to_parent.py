"""Become another program that is killed when its parent dies: `python bound_to_parent.py PARENT_PID PROGRAM ARG…`.

The kernel's parent-death signal (prctl(2), PR_SET_PDEATHSIG; Linux only) survives the exec. It is set here, in the
child, and not between fork and exec of the parent, where a parent with threads may run no Python.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the signal was asked for
        sys.exit("the parent is gone")
    os.execv(program[0], program)
