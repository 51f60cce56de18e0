#!/usr/bin/env python3
"""torch.distributed.checkpoint on the work of `coshard bench checkpoint`: two processes, tensors sharded along their rows.

Prints one JSON object: rates of save and of cold load in MB/s, and CPU seconds per GB saved; medians.
"""
import argparse
import json
import os
import resource
import shutil
import statistics
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

TENSORS, COLUMNS, WORLD = 16, 2048, 2


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def drop_from_cache(folder):
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def work(rank, o, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(o.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    mesh = init_device_mesh("cpu", (WORLD,))
    rows = o.megabytes * 1_000_000 // TENSORS // COLUMNS // 4
    state = {f"layers.{i}.weight": distribute_tensor(torch.full((rows, COLUMNS), i + 1.0), mesh, [Shard(0)]) for i in range(TENSORS)}
    times = {"save": [], "load": [], "save_cpu": []}
    for number in range(o.rounds + 1):
        folder = os.path.join(o.folder, "saved")
        if rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
        dist.barrier()
        cpu, begin = cpu_seconds(), time.perf_counter()
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))  # which syncs files
        took, cpu = time.perf_counter() - begin, cpu_seconds() - cpu
        dist.barrier()
        if rank == 0:
            drop_from_cache(folder)
        dist.barrier()
        begin = time.perf_counter()
        dcp.load(state, storage_reader=dcp.FileSystemReader(folder))
        if number > 0:
            times["load"].append(time.perf_counter() - begin)
            times["save"].append(took)
            times["save_cpu"].append(cpu)
    results[rank] = {name: statistics.median(values) for name, values in times.items()}
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", default="dcp")
    parser.add_argument("--port", type=int, default=29731)
    o = parser.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    results = mp.Manager().dict()
    mp.spawn(work, (o, results), nprocs=WORLD)
    shutil.rmtree(o.folder)
    slowest = {name: max(results[rank][name] for rank in range(WORLD)) for name in ("save", "load")}
    cpu = sum(results[rank]["save_cpu"] for rank in range(WORLD))
    print(json.dumps({"save": o.megabytes / slowest["save"], "load": o.megabytes / slowest["load"], "save_cpu": cpu / (o.megabytes / 1000)}))


if __name__ == "__main__":
    main()
