#!/usr/bin/env python3
"""Writes pytorch.json: what PyTorch's DTensor moves for every case of transformer.json.

Four processes with gloo on the CPU, counted by CommDebugMode; bytes are those that the busiest rank
receives when each collective moves the least: (n-1)/n of the larger buffer, twice that for an
all_reduce. On the CPU PyTorch has an all_gather stand for an all_to_all; it is counted as what it
stands for.

    python3 pytorch_moves.py        # needs torch
"""
import json
import os
import pathlib
import re
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
import torch.distributed.tensor.placement_types as placement_types

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 4


class Moves(CommDebugMode):
    """CommDebugMode with bytes."""

    def __init__(self):
        super().__init__()
        self.kinds, self.bytes, self.hidden = {}, 0, False

    def add(self, kind, ranks, size):
        if ranks == 1:
            return
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.bytes += (2 if kind == "all_reduce" else 1) * size * (ranks - 1) // ranks

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(func, types, args, kwargs or {})
        if out is NotImplemented or self.hidden or func.namespace != "_c10d_functional":
            return out
        kind = func._opname.removesuffix("_")
        kind = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter",
                "all_to_all_single": "all_to_all"}.get(kind, kind)
        if kind not in ("all_gather", "reduce_scatter", "all_to_all", "all_reduce"):
            return out  # waits and wraps
        group = [a for a in args if isinstance(a, str)][-1]
        ranks = dist.get_world_size(torch.distributed.distributed_c10d._resolve_process_group(group))
        sizes = [t.numel() * t.element_size() for t in (args[0], out)]
        self.add(kind, ranks, max(sizes))
        return out


def all_to_alls_by_name(moves):
    """Counts shard_dim_alltoall as itself, whatever stands for it here."""
    real = placement_types.shard_dim_alltoall

    def counted(tensor, gather_dim, shard_dim, mesh, mesh_dim):
        mode = moves[0]
        if mode is None:
            return real(tensor, gather_dim, shard_dim, mesh, mesh_dim)
        mode.add("all_to_all", mesh.size(mesh_dim), tensor.numel() * tensor.element_size())
        mode.hidden = True
        try:
            return real(tensor, gather_dim, shard_dim, mesh, mesh_dim)
        finally:
            mode.hidden = False

    placement_types.shard_dim_alltoall = counted


def placements_of(text):
    found = []
    for one in re.findall(r"[RSP](?:\((?:\w+)\))?", text):
        if one == "R":
            found.append(Replicate())
        elif one[0] == "S":
            found.append(Shard(int(one[2:-1])))
        else:
            found.append(Partial(one[2:-1]))
    return found


def made(mesh, text, generator):
    shape, layout, *kind = text.split(" ")
    shape = [int(n) for n in shape.split(",")]
    if kind:
        full = torch.randint(int(kind[1]), shape, generator=generator)
    else:
        full = torch.randn(shape, generator=generator)
    placements = placements_of(layout)
    if any(p.is_partial() for p in placements):
        local = distribute_tensor(full, mesh, [Replicate() if p.is_partial() else p
                                               for p in placements]).to_local()
        return DTensor.from_local(local / RANKS, mesh, placements, run_check=False)
    return distribute_tensor(full, mesh, placements)


def call(op, x, dims):
    if op == "linear_gelu":
        return F.gelu(F.linear(*x))
    if op == "attention":
        return F.scaled_dot_product_attention(*x)
    if op == "layer_norm":
        return F.layer_norm(x[0], (x[0].shape[-1],), *x[1:])
    if op == "rms_norm":
        return F.rms_norm(x[0], (x[0].shape[-1],), x[1])
    if op == "gather":
        return torch.gather(x[0], dims[0], x[1])
    if op == "view":
        return x[0].view(dims)
    if op == "topk":
        return torch.topk(x[0], *dims)[0]
    if op in ("transpose", "cumsum", "argmax", "logsumexp"):
        return getattr(torch, op)(x[0], *dims)
    if op in ("softmax", "log_softmax"):
        return getattr(torch, op)(x[0], dims[0])
    if op in ("linear", "gelu", "embedding", "cross_entropy"):
        return getattr(F, op)(*x)
    return getattr(torch, op)(*x)


def measure(case, mesh, moves):
    generator = torch.Generator().manual_seed(0)
    tensors = [made(mesh, text, generator) for text in case["in"]]
    if case.get("backward"):
        tensors = [t.detach().requires_grad_() if t.is_floating_point() else t for t in tensors]
    moves[0] = mode = Moves()
    try:
        with mode:
            y = call(case["op"], tensors, case.get("dims"))
            if "to" in case:
                y = y.redistribute(placements=placements_of(case["to"]))
            if case.get("backward"):
                placements = [Replicate() if p.is_partial() else p for p in y.placements]
                local = torch.ones_like(y.to_local().detach())
                y.backward(DTensor.from_local(local, mesh, placements, run_check=False,
                                              shape=y.shape, stride=y.stride()))
    except Exception as error:  # an operator or a layout that PyTorch does not have
        return {"refused": str(error).splitlines()[0][:160]}
    finally:
        moves[0] = None
    return {"collectives": sum(mode.kinds.values()), "bytes": mode.bytes,
            "by": ", ".join(f"{kind} {n}" for kind, n in sorted(mode.kinds.items())),
            "out": "".join(str(p) for p in y.placements)}


def run(rank, cases):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571", RANK=str(rank),
                      WORLD_SIZE=str(RANKS))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    meshes = {1: init_device_mesh("cpu", (4,), mesh_dim_names=("tp",)),
              2: init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))}
    moves = [None]
    all_to_alls_by_name(moves)
    found = {case["name"]: measure(case, meshes[case.get("mesh", 1)], moves) for case in cases}
    gathered = [None] * RANKS
    dist.all_gather_object(gathered, found)
    if rank == 0:
        for name in found:  # the busiest rank
            found[name] = max((g[name] for g in gathered), key=lambda g: g.get("bytes", 0))
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(it)}" for name, it in found.items())
        text = f'{{\n  "version": {json.dumps(torch.__version__)},\n{lines}\n}}\n'
        (HERE / "pytorch.json").write_text(text)
        sys.stdout.write(text)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(run, args=(json.loads((HERE / "transformer.json").read_text()),), nprocs=RANKS)
