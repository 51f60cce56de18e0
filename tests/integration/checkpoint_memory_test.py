#!/usr/bin/env python3
"""What saving and loading cost in memory, and that it stays so however often.

usage: checkpoint_memory_test.py CHECKPOINT_MEMORY_JOB Saves
       checkpoint_memory_test.py CHECKPOINT_MEMORY_JOB Loads MPI      MPI: openmpi, mpich; exit code 77: its launcher is not there

COSHARD_SAVES=500: how many saves; COSHARD_MEGABYTES=2000: the size of the model that is loaded.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

JOB = sys.argv[1]
SAVES = int(os.environ.get("COSHARD_SAVES", 50))
MEGABYTES = int(os.environ.get("COSHARD_MEGABYTES", 400))
MPIRUN = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"], "mpich": ["mpirun.mpich"]}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
DIM = 2048  # of a layer of `load`


class Memory:
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="coshard-memory-")
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name

    def run_job(self, *words, start=(), **environment):
        done = subprocess.run([*start, JOB, *map(str, words)], capture_output=True, text=True, timeout=600, env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout


class Saves(Memory, unittest.TestCase):
    def saves(self, megabytes, count, **environment):
        """For each save, and at first for none: MiB in memory, the most so far, and how many files are open."""
        folder = os.path.join(self.scratch, str(len(os.listdir(self.scratch))))
        out = self.run_job("saves", folder, 2, megabytes, count, **environment)
        found = re.findall(r"^save (\d+) rss (\d+) peak (\d+) files (\d+)$", out, re.MULTILINE)
        self.assertEqual([int(step) for step, *_ in found], list(range(count + 1)))
        return [(int(rss) / 1024, int(peak) / 1024, int(files)) for _, rss, peak, files in found]

    def test_S42_at_most_the_own_part_and_64_MiB(self):
        """Of each rank, above what the program has without saving."""
        for environment in ({}, {"BACKGROUND": "1"}):
            megabytes = 256
            without, *rest = self.saves(megabytes, 3, **environment)
            more = max(peak for _, peak, _ in rest) - without[0]
            print(f"{megabytes} MB, 2 ranks, {'in the background' if environment else 'awaited'}: {more:.0f} MiB more than without")
            self.assertLess(more, megabytes / 1.048576 + 2 * 64)

    def test_S42_stays_so(self):
        for environment in ({}, {"BACKGROUND": "1"}):
            rounds = self.saves(8, SAVES, **environment)[::10]  # when none is on its way
            first, last = rounds[1], rounds[-1]
            print(f"{SAVES} saves, {'in the background' if environment else 'awaited'}: {last[0] - first[0]:+.1f} MiB, {last[2]} files")
            self.assertLess(last[0] - first[0], 4)
            self.assertEqual(last[2], rounds[0][2])


class Loads(Memory, unittest.TestCase):
    def model(self, folder, layers):
        """Zeros that take no room on the disk, but for the first and last number of each layer."""
        bytes_of_layer, header = DIM * DIM * 4, {}
        for layer in range(layers):
            header[f"layers.{layer}.weight"] = {"dtype": "F32", "shape": [DIM, DIM],
                                                "data_offsets": [layer * bytes_of_layer, (layer + 1) * bytes_of_layer]}
        text = json.dumps(header).encode()
        os.mkdir(folder)
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            start = file.tell()
            file.truncate(start + layers * bytes_of_layer)
            for layer in range(layers):
                for number, at in ((layer + 1, layer * bytes_of_layer), (-layer - 1, (layer + 1) * bytes_of_layer - 4)):
                    file.seek(start + at)
                    file.write(struct.pack("<f", number))

    def marks(self, folder):
        """Those numbers, by layer."""
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(size))
            found = {}
            for name, tensor in header.items():
                if name != "__metadata__":
                    begin, end = tensor["data_offsets"]
                    for at in (begin, end - 4):
                        file.seek(8 + size + at)
                        found.setdefault(name, []).append(struct.unpack("<f", file.read(4))[0])
        return found

    def test_S27_four_processes_load_a_deferred_model_that_none_could_hold(self):
        layers = MEGABYTES * 1_000_000 // (DIM * DIM * 4)
        bound = layers * DIM * DIM * 4 / 4 / 2**20 + (400 if MEGABYTES >= 2000 else 150)
        source, target = (os.path.join(self.scratch, name) for name in ("from", "to"))
        self.model(source, layers)
        out = self.run_job("load", source, target, layers, start=[*MPIRUN[sys.argv[3]], "-n", "4"], **AS_ROOT)
        found = re.findall(r"rank \d base (\d+) loaded (\d+) peak (\d+) read (\d+)", out)
        self.assertEqual(len(found), 4, out)
        base, loaded, peak = (max(int(one[i]) for one in found) / 1024 for i in range(3))
        print(f"{MEGABYTES} MB on 4 processes: {base:.0f} MiB at first, {loaded:.0f} loaded, {peak:.0f} saved, of {bound:.0f}")
        self.assertLess(peak, bound)
        self.assertEqual(self.marks(target), {f"layers.{layer}.weight": [layer + 1, -layer - 1] for layer in range(layers)})


if __name__ == "__main__":
    if len(sys.argv) > 3 and shutil.which(MPIRUN[sys.argv[3]][0]) is None:
        print(f"skipped: there is no {MPIRUN[sys.argv[3]][0]}")
        sys.exit(77)
    unittest.main(argv=sys.argv[1:3], verbosity=2)
