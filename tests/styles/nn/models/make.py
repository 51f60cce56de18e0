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
GPT2 = dict(vocab_size=32, n_positions=64, n_embd=20, n_layer=2, n_head=5, n_inner=24, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = dict(factor=4.0, original_max_position_embeddings=16)

# case: weights, class, hyperparameters, rope_theta (None: there are no rotary positions), rope_scaling
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
    # Heads that 2 and 4 ranks cannot share evenly, and fewer key heads than 3 or 4 ranks.
    "llama_odd": ("llama_odd", "Llama", SMALL | dict(hidden_size=18, num_attention_heads=9, num_key_value_heads=3, attention_bias=True), 10000.0, None),
    "qwen3_few": ("qwen3_few", "Qwen3", SMALL | dict(num_key_value_heads=2), 1000000.0, None),
    "gemma": ("gemma", "Gemma", SMALL | dict(num_key_value_heads=1, head_dim=6, hidden_size=12), 10000.0, None),
    "gpt2": ("gpt2", "GPT2", GPT2, None, None),
    "gpt2_scales": ("gpt2", "GPT2", GPT2 | dict(scale_attn_by_inverse_layer_idx=True, activation_function="gelu", reorder_and_upcast_attn=True,
                                                layer_norm_epsilon=1e-3), None, None),
}
GRADIENTS = ("layers.0.self_attn.q_", "layers.1.self_attn.k_", "layers.0.self_attn.o_proj.bias", "layers.0.mlp.gate_proj.bias",
             "layers.1.self_attn.q_norm", "layers.0.self_attn.k_norm", "input_layernorm", "embed_tokens", "model.norm",
             "wte", "wpe", "h.1.ln_1", "h.0.attn.c_", "h.1.mlp.c_fc")


def model_of(kind, keys, theta, scaling):
    config = getattr(transformers, kind + "Config")
    if theta is None:
        config = config(**keys)
    elif transformers.__version__.startswith("4."):
        # Mistral's takes rope_scaling as any unknown key.
        config = config(**keys, rope_theta=theta, rope_scaling=scaling and dict(scaling))
    else:
        config = config(**keys, rope_parameters=dict(rope_theta=theta, **(scaling or {"rope_type": "default"})))
    torch.manual_seed(0)
    return made(kind, config)


def class_of(kind):
    return kind + ("LMHeadModel" if kind == "GPT2" else "ForCausalLM")


def made(kind, config):
    return getattr(transformers, class_of(kind))._from_config(config, attn_implementation="eager").eval()


def drawn(model, kind):
    """Weights that make attention uneven and positions matter."""
    generator = torch.Generator().manual_seed(5)
    weights = {}
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        scales = name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight"))
        value = (0 if kind == "Gemma" else 1) + 0.2 * noise if scales else 0.3 * noise
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
        model = made(kind, config)
        stored = {n: w.float() for n, w in load_file(HERE / f"{name}.safetensors").items()}
        _, unexpected = model.load_state_dict(stored, strict=False)
        assert not unexpected, (case, unexpected)
        put(HERE / case / "expected.safetensors", expected(model), True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", type=pathlib.Path, help=read.__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", nargs="+", default=list(CASES), metavar="CASE", help="these cases alone")
    args = parser.parse_args()
    if args.read:
        return read(args.read)
    check = args.check
    weights = {}
    for case in args.only:
        name, kind, keys, theta, scaling = CASES[case]
        model = model_of(kind, keys, theta, scaling)
        if name not in weights:
            weights[name] = drawn(model, kind)
            put(HERE / f"{name}.safetensors", weights[name], check)
        missing, unexpected = model.load_state_dict({n: w.float() for n, w in weights[name].items()}, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}, (case, missing, unexpected)
        (HERE / case).mkdir(exist_ok=True)
        put(HERE / case / "expected.safetensors", expected(model), check)
        old = transformers.__version__.startswith("4.")
        if old or not check:
            text = json.loads(model.config.to_json_string())
            text["architectures"] = [class_of(kind)]
            (HERE / case / ("config_of_4.json" if old else "config.json")).write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
    if len(args.only) == len(CASES):
        put(HERE / "rope.safetensors", rope(), check)
    print(transformers.__version__, "compared" if check else "written")


if __name__ == "__main__":
    main()
