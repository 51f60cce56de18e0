"""Makes optimizers/: states of torch's optimizers after three steps, as torch.distributed.checkpoint keeps them, under the names that
coshard reads, and what a fourth step makes of the parameters. tests/styles/optimizer_oracles_test.cpp reads them without Python.
usage: make_optimizers.py      with torch and safetensors"""
import os
import shutil
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = {"net1.weight": (16, 10), "net1.bias": (16,), "net2.weight": (5, 16), "net2.bias": (5,)}
NAMES = {"momentum_buffer": "momentum"}  # of torch, where coshard's is another
CASES = {
    "adamw": (lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1), "f32"),
    "adamw_amsgrad": (lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.01, amsgrad=True), "f32"),
    "adamw_f64": (lambda p: torch.optim.AdamW(p, lr=0.01), "f64"),
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0, weight_decay=0.05, nesterov=True), "f32"),
    "sgd_plain_momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "f64"),
}


def export(state):
    """The tensors of a state that get_optimizer_state_dict made, as coshard names them: of SGD, which counts no steps, one."""
    tensors = {"lr": torch.tensor(state["param_groups"][0]["lr"], dtype=torch.float64)}
    for name, values in state["state"].items():
        tensors[f"{name}.step"] = torch.tensor(1)
        for key, value in values.items():
            is_count = key == "step"
            tensors[f"{name}.{NAMES.get(key, key)}"] = value.to(torch.int64).reshape(()) if is_count else value.contiguous()
    return tensors


def main():
    out = os.path.join(HERE, "optimizers")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    for name, (make, kind) in CASES.items():
        torch.manual_seed(7)
        dtype = {"f32": torch.float32, "f64": torch.float64}[kind]
        model = torch.nn.Module()
        for part in ("net1", "net2"):
            model.add_module(part, torch.nn.Module())
        for parameter, shape in SHAPES.items():
            part, leaf = parameter.split(".")
            getattr(model, part).register_parameter(leaf, torch.nn.Parameter(torch.randn(shape, dtype=dtype)))
        optimizer = make(model.parameters())

        def step():
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()

        for _ in range(3):
            step()
        with tempfile.TemporaryDirectory() as folder:  # what DCP keeps, not what the optimizer holds
            state = get_optimizer_state_dict(model, optimizer)
            dcp.save(state, checkpoint_id=folder, no_dist=True)
            for values in state["state"].values():
                for value in values.values():
                    value.zero_()
            dcp.load(state, checkpoint_id=folder, no_dist=True)
        tensors = {f"optimizer.{key}": value.clone() for key, value in export(state).items()}
        tensors |= {f"before.{key}": value.detach().clone() for key, value in model.named_parameters()}
        step()
        tensors |= {f"gradient.{key}": value.grad.clone() for key, value in model.named_parameters()}
        tensors |= {f"after.{key}": value.detach().clone() for key, value in model.named_parameters()}
        save_file(tensors, os.path.join(out, f"{name}.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    main()
