#!/usr/bin/env python3
"""Writes the models beside this file and what transformers computes with them, by hand:

    python tests/styles/nn/models/make.py        # torch, transformers, safetensors

NAME.safetensors holds weights (bf16, which transformers computes with in f32); CASE/config.json and
CASE/expected.safetensors a config over one of them, the ids, the logits and some gradients of
sum(logits * cos(i / 10)); rope.safetensors rotary positions alone. `--check`
compares instead of writing; transformers 4.57, run with it, writes CASE/config_of_4.json."""
import argparse
import json
import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
SMALL = dict(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=8,
    num_key_value_heads=4, head_dim=4, max_position_embeddings=64, rms_norm_eps=1e-6)
# Without head_dim, which follows.
WIDE = dict(
    vocab_size=32, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64, rms_norm_eps=1e-5)
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = dict(factor=4.0, original_max_position_embeddings=16)

# case: weights, class, hyperparameters, rope_theta, rope_scaling
CASES = {
    "llama": ("llama", "Llama", WIDE, 10000.0, None),
    "llama_linear": ("llama", "Llama", WIDE, 10000.0, dict(rope_type="linear", factor=2.5)),
    "llama_dynamic": ("llama", "Llama", WIDE | dict(max_position_embeddings=16), 10000.0,
                      dict(rope_type="dynamic", factor=2.0)),
    "llama_llama3": ("llama", "Llama", WIDE, 500000.0, dict(rope_type="llama3") | LLAMA3),
    "llama_yarn": ("llama", "Llama", WIDE, 10000.0, dict(rope_type="yarn") | YARN),
    "llama_gelu": ("llama", "Llama", WIDE | dict(hidden_act="gelu_pytorch_tanh", pad_token_id=3), 10000.0, None),
    "llama_biases": ("llama_biases", "Llama", SMALL | dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
                     10000.0, None),
    "mistral": ("mistral", "Mistral", SMALL | dict(sliding_window=8), 1000000.0, None),
    "qwen2": ("qwen2", "Qwen2", SMALL | dict(tie_word_embeddings=True, bos_token_id=1, eos_token_id=[2, 3]), 1000000.0, None),
    "qwen2_window": ("qwen2", "Qwen2", SMALL | dict(tie_word_embeddings=True, use_sliding_window=True, sliding_window=5, max_window_layers=1),
                     1000000.0, None),
    "qwen3": ("qwen3", "Qwen3", SMALL, 1000000.0, None),
}
GRADIENTS = ("layers.0.self_attn.q_", "layers.1.self_attn.k_", "layers.0.self_attn.o_proj.bias", "layers.0.mlp.gate_proj.bias",
             "layers.1.self_attn.q_norm", "input_layernorm", "embed_tokens", "model.norm")


def model_of(kind, keys, theta, scaling):
    config = getattr(transformers, kind + "Config")
    if transformers.__version__.startswith("4."):
        # Mistral's takes rope_scaling as any unknown key.
        config = config(**keys, rope_theta=theta, rope_scaling=scaling and dict(scaling))
    else:
        config = config(**keys, rope_parameters=dict(rope_theta=theta, **(scaling or {"rope_type": "default"})))
    torch.manual_seed(0)
    return getattr(transformers, kind + "ForCausalLM")._from_config(config, attn_implementation="eager").eval()


def drawn(model):
    """Weights that make attention uneven and positions matter."""
    generator = torch.Generator().manual_seed(5)
    weights = {}
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        value = 1 + 0.2 * noise if name.endswith("norm.weight") else 0.3 * noise
        weights[name] = value.to(torch.bfloat16)
    return weights


def expected(model):
    ids = torch.randint(0, 32, (1, 24), generator=torch.Generator().manual_seed(6))
    ids[0, 5] = 3
    logits = model(input_ids=ids, use_cache=False).logits
    seed = torch.cos(torch.arange(logits.numel(), dtype=torch.float64) / 10).float().view_as(logits)
    (logits * seed).sum().backward()
    found = {"ids": ids, "logits": logits.detach().contiguous()}
    for name, p in model.named_parameters():
        if any(part in name for part in GRADIENTS):
            found["grad." + name] = p.grad.contiguous()
    return found


def rope():
    """x turned at some positions, by each type of frequencies of heads of 64, with Llama's sizes."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    keys = dict(hidden_size=128, num_attention_heads=2, max_position_embeddings=8192)
    kinds = {
        "default": (10000.0, None),
        "linear": (10000.0, dict(rope_type="linear", factor=4.0)),
        "dynamic": (10000.0, dict(rope_type="dynamic", factor=2.0)),
        "llama3": (500000.0, dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                  original_max_position_embeddings=8192)),
        "yarn": (1000000.0, dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=4096)),
    }
    x = torch.randn(1, 1, 1, 64, generator=torch.Generator().manual_seed(7))
    found = {"x": x.view(1, 1, 1, 64)}
    for kind, (theta, scaling) in kinds.items():
        config = model_config(keys, theta, scaling)
        for position in (0, 100, 8192, 60000):
            emb = LlamaRotaryEmbedding(config)
            at = torch.tensor([[position]])
            cos, sin = emb(x, at)
            found[f"{kind}.{position}"] = apply_rotary_pos_emb(x, x, cos, sin)[0].contiguous()
    return found


def model_config(keys, theta, scaling):
    if transformers.__version__.startswith("4."):
        return transformers.LlamaConfig(**keys, rope_theta=theta, rope_scaling=scaling and dict(scaling))
    return transformers.LlamaConfig(**keys, rope_parameters=dict(rope_theta=theta, **(scaling or {"rope_type": "default"})))


def put(path, tensors, check):
    if not check:
        return save_file(tensors, path, metadata={"format": "pt"})
    old = load_file(path)
    assert old.keys() == tensors.keys(), path
    for name, value in tensors.items():
        worst = (old[name].double() - value.double()).abs().max().item()
        assert worst <= 1e-5 * (1 + value.double().abs().max().item()), (path, name, worst)


def read(folder):
    """Compares with models of the config.json files that coshard wrote below `folder`."""
    for case, (name, kind, *_) in CASES.items():
        config = transformers.AutoConfig.from_pretrained(folder / case)
        model = getattr(transformers, kind + "ForCausalLM")._from_config(config, attn_implementation="eager").eval()
        stored = {n: w.float() for n, w in load_file(HERE / f"{name}.safetensors").items()}
        _, unexpected = model.load_state_dict(stored, strict=False)
        assert not unexpected, (case, unexpected)
        put(HERE / case / "expected.safetensors", expected(model), True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", type=pathlib.Path, help=read.__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.read:
        return read(args.read)
    check = args.check
    weights = {}
    for case, (name, kind, keys, theta, scaling) in CASES.items():
        model = model_of(kind, keys, theta, scaling)
        if name not in weights:
            weights[name] = drawn(model)
            put(HERE / f"{name}.safetensors", weights[name], check)
        missing, unexpected = model.load_state_dict({n: w.float() for n, w in weights[name].items()}, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}, (case, missing, unexpected)
        (HERE / case).mkdir(exist_ok=True)
        put(HERE / case / "expected.safetensors", expected(model), check)
        old = transformers.__version__.startswith("4.")
        if old or not check:
            text = json.loads(model.config.to_json_string())
            text["architectures"] = [kind + "ForCausalLM"]
            (HERE / case / ("config_of_4.json" if old else "config.json")).write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
    put(HERE / "rope.safetensors", rope(), check)
    print(transformers.__version__, "compared" if check else "written")


if __name__ == "__main__":
    main()
