"""Remove what only Linux has, in every process whose PYTHONPATH has this directory.

Calls are deleted before any module can use them. Code of syncline that opens a file of `/proc` or
`/dev/shm` gets FileNotFoundError, as on another system; libraries such as psutil may read them,
because they have code of their own for each system.
"""

import errno
import os
import select
import sys


def remove(module, *names):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


# Before `socket` is imported, which defines selectors of what it finds.
remove(select, "epoll", "EPOLLIN", "EPOLLOUT", "EPOLLERR", "EPOLLHUP")

import signal  # noqa: E402
import socket  # noqa: E402

remove(os, "eventfd", "memfd_create", "pidfd_open", "pipe2", "posix_fallocate", "O_PATH")
remove(os, "sched_getaffinity")
remove(signal, "SIGRTMAX", "SIGRTMIN")
remove(socket, "SOCK_SEQPACKET", "SO_PEERCRED")

OWN = f"{os.sep}src{os.sep}syncline{os.sep}"


def check(event, arguments):
    if event != "open" or not str(arguments[0]).startswith(("/proc/", "/dev/shm")):
        return
    frame = sys._getframe(1)
    while frame is not None and "pathlib" in frame.f_code.co_filename:
        frame = frame.f_back
    if frame is not None and OWN in frame.f_code.co_filename:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])


sys.addaudithook(check)
