#!/usr/bin/env python3
"""Starts processes of one host as torchrun does, with its variables, and ends them when one fails.

usage: like_torchrun.py -n N PROGRAM [ARGUMENTS...] [: -n N PROGRAM [ARGUMENTS...]]...
"""
import contextlib
import os
import random
import socket
import subprocess
import sys
import time


def free_port():
    """Such that the next one is free as well, and none that Linux gives to connections, of which other tests make many."""
    while True:
        port = random.randrange(20_000, 32_000, 2)
        with socket.socket() as one, socket.socket() as next_one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            next_one.bind(("127.0.0.1", port + 1))
            return port


def commands(arguments):
    """One per process."""
    all_of_them, part = [], []
    for argument in [*arguments, ":"]:
        if argument != ":":
            part.append(argument)
            continue
        all_of_them += [part[2:]] * int(part[1])
        part = []
    return all_of_them


def variables(rank, size, port, local_size=None):
    here = str(local_size or size)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": here,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def main():
    todo = commands(sys.argv[1:])
    port = free_port()
    running = [subprocess.Popen(one, env={**os.environ, **variables(rank, len(todo), port)}) for rank, one in enumerate(todo)]
    code = 0
    ends_at = None
    while any(one.poll() is None for one in running):
        codes = [one.returncode for one in running if one.returncode is not None]
        if any(codes) and ends_at is None:
            ends_at = time.monotonic() + 5
        if ends_at is not None and time.monotonic() > ends_at:
            for one in running:
                one.kill()
        time.sleep(0.01)
    for one in running:
        code = code or (one.returncode if one.returncode >= 0 else 128 - one.returncode)
    sys.exit(code)


if __name__ == "__main__":
    main()
