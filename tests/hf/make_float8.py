"""Writes tests/hf/float8.safetensors: what torch casts to and from its 8-bit floats. Run by hand: $TORCH_PYTHON tests/hf/make_float8.py
(made by torch 2.15, safetensors 0.8). For each format, `all` are its 256 bytes, `all.f32` these as f32, `all.bf16` as bf16; `x` are the
numbers halfway between two neighbours and the floats beside them, the largest and smallest, infinity and NaN; `x.f8` is x cast."""
import os

import torch
from safetensors.torch import save_file

tensors = {}
for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
    every = torch.arange(256, dtype=torch.uint8).view(dtype)
    numbers = every.float()
    positive = numbers[:128][torch.isfinite(numbers[:128])].double()
    step = positive[-1] - positive[-2]
    above = torch.cat([positive[1:], (positive[-1] + step).reshape(1)])
    middle = ((positive + above) / 2).float()
    up, down = torch.tensor(float("inf")), torch.tensor(0.0)
    sizes = torch.cat([middle, torch.nextafter(middle, up), torch.nextafter(middle, down), above.float(), positive.float(),
                       torch.tensor([1e-45, 1e-30, 464.0, 480.0, 61440.0, 65536.0, 1e30, float("inf"), float("nan")])])
    x = torch.cat([sizes, -sizes])
    tensors |= {f"{name}.all": every.clone(), f"{name}.all.f32": numbers, f"{name}.all.bf16": every.bfloat16(),
                f"{name}.x": x, f"{name}.x.f8": x.to(dtype), f"{name}.x.f64_f8": x.double().to(dtype),
                f"{name}.x.f16_f8": x.half().to(dtype)}
save_file(tensors, os.path.join(os.path.dirname(os.path.abspath(__file__)), "float8.safetensors"))
