#!/usr/bin/env python3
"""Draws a training step of two hosts, which are network namespaces joined by a link of 800 Mbit/s, without and with overlap.

usage: step_picture.py TRAIN COSHARD OUT [MPI]      build/examples/train build/tools/coshard step.svg; as root; MPI: openmpi or mpich
"""
import subprocess
import sys
import tempfile

from namespaces import Hosts, Job, skip_unless_possible

STEP = "--plan dp --batch 8 --threads 1 --steps 12 --sample 0 --eval-blocks 1".split()


def main():
    train, coshard, out, mpi = *sys.argv[1:4], (sys.argv[4:] or ["openmpi"])[0]
    skip_unless_possible(mpi)
    with tempfile.TemporaryDirectory() as folder, Hosts(2, "800mbit") as hosts:
        with open(f"{folder}/text", "w", encoding="ascii") as file:
            file.writelines(f"{n} times {n} is {n * n}\n" for n in range(50000))
        for trace, overlap in ("serial", ["--overlap", "off"]), ("overlapped", ["--measure-links"]):
            command = [train, "--text", f"{folder}/text", *STEP, *overlap, "--trace", f"{folder}/{trace}.json"]
            with Job(hosts, hosts.mpirun(mpi, *command)) as job:
                if job.end(300) != 0:
                    sys.exit(job.shown())
        subprocess.run([coshard, "trace", "report", f"{folder}/overlapped.json", "--baseline", f"{folder}/serial.json", "-o", out], check=True)


main()
