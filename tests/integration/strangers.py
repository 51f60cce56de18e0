"""Connections of those who are not of a job, to the port where its processes meet: each has to be closed, for hosts_faults_test.py.

usage: strangers.py ADDRESS PORT
"""
import random
import resource
import socket
import struct
import sys
import time

ADDRESS = (sys.argv[1], int(sys.argv[2]))
MANY = 10_000
OPEN = 64  # that may stay so: of late comers it is not known yet who they are


def stranger(says=b""):
    connection = socket.create_connection(ADDRESS, 10)
    connection.settimeout(10)
    if says:
        connection.sendall(says)
    return connection


def is_closed(connection):
    try:
        while connection.recv(4096):
            pass
        return True
    except ConnectionResetError:
        return True
    except (TimeoutError, BlockingIOError):
        return False


def frame(process, secret, size=None):
    """As processes of a job answer what process 0 has drawn: bytes, process, kind, two of messages; a nonce and a proof."""
    return struct.pack("=Iiiii", len(secret) if size is None else size, process, 0, 0, 0) + secret


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    random.seed(1)
    wrong = [frame(1, b"0" * 96), frame(1, b""), frame(0, b"f" * 96), frame(-1, b"a" * 96), frame(1, b"a" * 32), frame(1, b"x" * 60_000),
             frame(1, b"", 0xFFFFFFFF), frame(1, b"", 0x7FFFFFFF) + b"y" * 1000]
    wrong += [random.randbytes(random.randint(64, 4096)) for _ in range(1000)]
    silent = [stranger() for _ in range(OPEN)]
    closed = sum(is_closed(one) for one in [stranger(says) for says in wrong])
    # Each has said less than it would have to.
    many = [*silent, *(stranger(random.randbytes(random.randint(0, 8))) for _ in range(MANY))]
    for one in many:
        one.settimeout(0.001)
    left, end = many, time.monotonic() + 30
    while len(left) > OPEN and time.monotonic() < end:
        left = [one for one in left if not is_closed(one)]
    print(f"{closed} of {len(wrong)} that said something wrong were closed, and {len(many) - len(left)} of {len(many)} that said nothing")
    return 0 if closed == len(wrong) and len(left) <= OPEN else 1


sys.exit(main())
