"""Models of each family that transformers writes, opened, loaded and saved by coshard on several ranks, and opened by transformers again.
usage: families_test.py MODEL_FILES      exit code 77: no torch, safetensors and transformers in this Python or $TORCH_PYTHON"""
import json
import os
import subprocess
import sys
import tempfile

import torch_python

torch_python.require("safetensors", "torch", "transformers")
import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.logging.disable_progress_bar()
SMALL = dict(vocab_size=96, hidden_size=36, intermediate_size=40, num_hidden_layers=2, max_position_embeddings=64)
GPT2 = dict(vocab_size=96, n_positions=64, n_embd=36, n_layer=2, n_head=9)
FAMILIES = {
    "llama": transformers.LlamaConfig(**SMALL, num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**SMALL, num_attention_heads=4, num_key_value_heads=2, head_dim=8, use_sliding_window=False),
    "gemma": transformers.GemmaConfig(**SMALL, num_attention_heads=6, num_key_value_heads=1, head_dim=16),
    "gpt2": transformers.GPT2Config(**GPT2, bos_token_id=1, eos_token_id=2),
    "gpt2_scales": transformers.GPT2Config(**GPT2, n_inner=40, scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False,
                                           bos_token_id=1, eos_token_id=2, tie_word_embeddings=False),
}


def drawn(config):
    """Also norms and biases have values of their own."""
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def logits_of(folder):
    model, told = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                                    output_loading_info=True)
    assert not any(told.values()), (folder, told)
    ids = torch.arange(48).view(2, 24) * 7 % 96
    with torch.no_grad():
        return model.eval()(input_ids=ids, use_cache=False).logits


def resave(model_files, source, target, ranks):
    subprocess.run([model_files, "resave", source, target, str(ranks)], check=True)


def check_family(model_files, config, folder):
    source = os.path.join(folder, "made")
    drawn(config).save_pretrained(source)
    want, theirs = logits_of(source), load_file(os.path.join(source, "model.safetensors"))
    files = set()
    for ranks in (1, 2, 4):
        target = os.path.join(folder, str(ranks))
        resave(model_files, source, target, ranks)
        assert torch.equal(logits_of(target), want), (folder, ranks)
        ours = load_file(os.path.join(target, "model.safetensors"))
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours), (folder, ranks)
        with open(os.path.join(target, "model.safetensors"), "rb") as file:
            files.add(file.read())
    assert len(files) == 1, folder
    return source, want


def check_older_gpt2(model_files, source, want, folder):
    """As the first files of GPT-2: names without "transformer.", masks, no lm_head, a config of few keys."""
    older, target = os.path.join(folder, "older"), os.path.join(folder, "newer")
    os.mkdir(older)
    tensors = {name.removeprefix("transformer."): value for name, value in load_file(os.path.join(source, "model.safetensors")).items()}
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(64, 64, dtype=torch.uint8).tril().view(1, 1, 64, 64)
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, os.path.join(older, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(older, "config.json"), "w", encoding="utf-8") as file:
        json.dump(GPT2 | dict(model_type="gpt2", n_ctx=64, architectures=["GPT2LMHeadModel"]), file)
    resave(model_files, older, target, 3)
    assert torch.equal(logits_of(target), want), "older names"


def main(model_files):
    with tempfile.TemporaryDirectory() as scratch:
        for name, config in FAMILIES.items():
            folder = os.path.join(scratch, name)
            source, want = check_family(model_files, config, folder)
            if name == "gpt2":
                check_older_gpt2(model_files, source, want, folder)
            print(f"{name}: loaded and saved on 1, 2 and 4 ranks, transformers computes the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
