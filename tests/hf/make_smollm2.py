"""SmolLM2 of a GGUF file as Hugging Face folders in f32, and what transformers computes with it.
usage: make_smollm2.py GGUF FOLDER      FOLDER gets whole/, sharded/ (an index and files of 150 MB) and expected.safetensors (ids, logits)"""
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

IDS = 24  # divides by 3 ranks


def model_of(gguf):
    folder, name = os.path.split(gguf)
    read = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config._name_or_path = ""
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    model.load_state_dict(read.state_dict())
    return model.eval()


def ids_of(vocabulary):
    return torch.tensor([[(i * i * 7919 + 104729 * i + 17) % vocabulary for i in range(IDS)]])


def logits_of(model):
    with torch.no_grad():
        return model(ids_of(model.config.vocab_size)).logits.contiguous()


def main(gguf, folder):
    model = model_of(gguf)
    model.save_pretrained(os.path.join(folder, "whole"))
    model.save_pretrained(os.path.join(folder, "sharded"), max_shard_size="150MB")
    save_file({"ids": ids_of(model.config.vocab_size), "logits": logits_of(model)}, os.path.join(folder, "expected.safetensors"))


if __name__ == "__main__":
    main(*sys.argv[1:])
