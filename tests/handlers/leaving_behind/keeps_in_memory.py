"""Keeps as many bytes as it is asked for where no process is seen to hold them, then tells or waits."""

import ctypes
import mmap
import os
import time

KEPT = []
IPC_CREAT, IPC_PRIVATE = 0o1000, 0


def write(fd, size):
    piece = b"x" * (1 << 20)
    for _ in range(size >> 20):
        os.write(fd, piece)


def segment(size):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    number = libc.shmget(IPC_PRIVATE, ctypes.c_size_t(size), IPC_CREAT | 0o600)
    if number < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    address = libc.shmat(number, None, 0)
    ctypes.memset(address, 1, size)
    libc.shmdt(ctypes.c_void_p(address))
    return number


def handler(job):
    if job.input == "pid":
        return os.getpid()
    size = job.input["size"]
    name = f"stoker-{os.getpid()}"
    match job.input["where"]:
        case "memfd":
            KEPT.append(fd := os.memfd_create(name))
            write(fd, size)
        case "shm, open":
            KEPT.append(fd := os.open(f"/dev/shm/{name}", os.O_RDWR | os.O_CREAT))
            os.unlink(f"/dev/shm/{name}")
            write(fd, size)
        case "shm":
            fd = os.open(f"/dev/shm/{name}", os.O_RDWR | os.O_CREAT)
            write(fd, size)
            os.close(fd)
        case "map":
            KEPT.append(shared := mmap.mmap(-1, size))
            shared.write(b"x" * size)
        case "sysv":
            segment(size)
        case "everywhere":
            for folder in ("/dev/shm", "/var/tmp", "/tmp"):
                try:
                    os.makedirs(f"{folder}/{name}/deep")
                    open(f"{folder}/{name}/deep/file", "w").close()
                except OSError:
                    pass
            libc = ctypes.CDLL(None)
            libc.msgget(IPC_PRIVATE, IPC_CREAT | 0o600)
            libc.semget(IPC_PRIVATE, 1, IPC_CREAT | 0o600)
            return {"uid": os.getuid(), "segment": segment(size), "name": name}
    while job.input.get("wait"):
        time.sleep(0.1)
    return "kept"
