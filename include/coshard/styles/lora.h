#pragma once
// LoRA: adapters of low rank beside frozen linear layers, in the files of PEFT
// (https://github.com/huggingface/peft). Rank's thread.
//
//   const auto model = cs::nn::open_model("models/smollm2", world);
//   cs::add_lora(*model, "model.layers.*.self_attn.[qv]_proj", {.rank = 8, .alpha = 16});
//   co_await cs::parallelize_module(*model, mesh, model->plan());
//   co_await cs::load(*model, "models/smollm2");  // the base
//   cs::AdamW optimizer(model->parameters(), {.lr = 1e-3});
//   …
//   co_await cs::save_adapter(*model, "adapter");
#include <string>
#include <string_view>

#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/checkpoint/save.h>
#include <coshard/styles/module.h>
#include <coshard/styles/nn/linear.h>

#pragma GCC visibility push(default)
namespace coshard {

using nn::LoraOptions;

// Gives each nn::Linear whose path matches `pattern` (as the keys of a plan: "*", "?" and "[qv]"
// within the parts of a path) an adapter: lora_A [rank, in], drawn as PEFT draws it, and lora_B
// [out, rank], zeros, of the weight's dtype. All other parameters of the model but adapters no
// longer require a gradient. Called before parallelize_module and fully_shard, which shard the
// adapters with their layers: no forward or backward takes a further collective, and the gradients
// of lora_A (of layers cut by columns) and lora_B (by rows) are Partial, which the optimizer's one
// all_reduce sums. All ranks call it alike. A checkpoint (save, Checkpoints) has base and adapters.
//   Fails:  Error{BadInput}, with nothing changed: no linear layer matches, one has an adapter or is
//           sharded already; adapters of other options are there; rank < 1; dropout outside of [0, 1).
void add_lora(Module& model, std::string_view pattern, LoraOptions options = {},
              CallSite site = CallSite::current());

// Writes the adapters alone, as PEFT does: adapter_model.safetensors and adapter_config.json, which
// names the folder of a model of open_model (LanguageModel::folder) for PEFT's Auto classes.
//   Moves:  as save(), and the path of that folder from rank 0.
//   Fails:  as save(). Error{BadInput}: the model has no adapters.
Task<void> save_adapter(Module& model, std::string folder, SaveOptions options = {},
                        CallSite site = CallSite::current());

// Fills the adapters from such a folder, of any layout; if the model has none, adds those of the
// folder first, as add_lora.
//   Moves:  as load().
//   Fails:  as load() and add_lora. Error{BadInput}: adapter_config.json names what changes the
//           result and is not supported, such as use_dora, rank_pattern or modules_to_save, or
//           other options than those of the adapters that are there.
Task<LoadReport> load_adapter(Module& model, std::string folder, LoadOptions options = {},
                              CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
