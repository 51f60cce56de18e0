#include <coshard/styles/lora.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include <coshard/dtensor/distribute/init.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/styles/nn/language_model.h>
#include "dtensor/checkpoint/agreement.h"
#include "dtensor/checkpoint/training_files.h"
#include "runtime/coro/user_call.h"
#include "styles/adapter_config.h"
#include "styles/path_pattern.h"

namespace coshard {
namespace {

struct Adapted {
  std::string path;
  nn::Linear* layer;
};

std::vector<Adapted> linear_layers(Module& model) {
  std::vector<Adapted> all;
  std::set<const Module*> adapters;
  for (const NamedModule& m : model.named_modules())
    if (auto* layer = dynamic_cast<nn::Linear*>(m.module); layer && !adapters.contains(layer)) {
      all.push_back({m.path, layer});
      adapters.insert({layer->lora_A.get(), layer->lora_B.get()});
    }
  return all;
}

std::vector<Adapted> adapted_layers(Module& model) {
  std::vector<Adapted> all = linear_layers(model);
  std::erase_if(all, [](const Adapted& each) { return !each.layer->lora_A; });
  return all;
}

std::string close_names(std::string_view pattern, const std::vector<Adapted>& layers) {
  std::vector<std::string> names;
  for (const Adapted& each : layers) names.push_back(each.path);
  std::string near;
  for (const std::string& name : nearest(pattern, std::move(names), 3))
    near += (near.empty() ? "" : ", ") + name;
  return near.empty() ? "the model has none" : "close names: " + near;
}

// "model.layers.*.self_attn.q_proj" of "q_proj", which is the end of a layer's path; "": of none.
std::string whole_pattern(std::string_view pattern, const std::vector<Adapted>& layers) {
  for (const auto& [path, layer] : layers)
    for (std::size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1))
      if (matches(pattern, path.substr(dot + 1)))
        return pattern_of_numbers(path.substr(0, dot + 1)).append(pattern);
  return {};
}

[[noreturn]] void fail_unmatched(std::string_view pattern, const std::vector<Adapted>& layers) {
  const std::string whole = whole_pattern(pattern, layers);
  fail(ErrorKind::BadInput, str_cat("add_lora: '", pattern, "' matches no nn::Linear; ",
                                    whole.empty() ? close_names(pattern, layers)
                                                  : "patterns are of whole paths: " + whole));
}

void require_options(const LoraOptions& options) {
  CS_REQUIRE(options.rank >= 1, "add_lora: rank ", options.rank, " is less than 1");
  CS_REQUIRE(std::isfinite(options.alpha), "add_lora: alpha ", options.alpha, " is no number");
  CS_REQUIRE(options.dropout >= 0 && options.dropout < 1, "add_lora: dropout ", options.dropout,
             " is not in [0, 1)");
}

// Error{BadInput}: a layer that cannot get an adapter now.
void require_new_adapters(Module& model, const std::vector<Adapted>& layers,
                          const LoraOptions& options) {
  for (const auto& [path, layer] : layers) {
    CS_REQUIRE(!layer->lora_A, "add_lora: '", path, "' has an adapter already");
    CS_REQUIRE(!layer->weight.is_distributed(), "add_lora: '", path, "' is sharded already, ",
               layer->weight, "; call add_lora before parallelize_module and fully_shard");
  }
  for (const auto& [path, layer] : adapted_layers(model))
    CS_REQUIRE(layer->lora == options, "add_lora: the adapter of '", path, "' has rank ",
               layer->lora.rank, ", alpha ", layer->lora.alpha, " and dropout ",
               layer->lora.dropout, "; adapters of one model have the same");
}

void add_to(nn::Linear& layer, const LoraOptions& options, World& world) {
  const nn::LinearOptions plain{.bias = false, .dtype = layer.weight.dtype()};
  layer.lora_A = std::make_shared<nn::Linear>(layer.in_features, options.rank, world, plain);
  layer.lora_B = std::make_shared<nn::Linear>(options.rank, layer.out_features, world, plain);
  nn::init::zeros_(layer.lora_B->weight);
  layer.lora = options;
  layer.register_module("lora_A", layer.lora_A);
  layer.register_module("lora_B", layer.lora_B);
  layer.lora_A->train(layer.training());
  layer.lora_B->train(layer.training());
}

void freeze_base(Module& model) {
  std::set<const void*> adapters;
  for (const auto& [path, layer] : adapted_layers(model))
    adapters.insert({layer->lora_A->weight.id(), layer->lora_B->weight.id()});
  for (const NamedParameter& p : model.named_parameters())
    if (!adapters.contains(p.slot->id())) p.slot->set_requires_grad(false);
}

void add_adapters(Module& model, const std::vector<Adapted>& layers, const LoraOptions& options) {
  World* const world = World::current();
  CS_REQUIRE(world != nullptr, "add_lora: called outside of a rank's program");
  require_options(options);
  require_new_adapters(model, layers, options);
  for (const auto& [path, layer] : layers) add_to(*layer, options, *world);
  freeze_base(model);
}

State adapter_state(const std::vector<Adapted>& layers) {
  State state;
  for (const auto& [path, layer] : layers) {
    state.add(lora_name(path, 'A'), layer->lora_A->weight);
    state.add(lora_name(path, 'B'), layer->lora_B->weight);
  }
  return state;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// Last parts of the paths if these name the adapted layers and no other module; else the paths.
std::vector<std::string> targets_of(Module& model, const std::vector<Adapted>& layers) {
  std::set<std::string> paths, names;
  for (const Adapted& each : layers) {
    paths.insert(each.path);
    names.insert(last_part(each.path));
  }
  for (const NamedModule& m : model.named_modules())
    if (names.contains(last_part(m.path)) && !paths.contains(m.path))
      return {paths.begin(), paths.end()};
  return {names.begin(), names.end()};
}

std::int64_t size_in(const SafetensorsHeader& header, const std::string& path, char which,
                     int dim) {
  return static_cast<std::int64_t>(header[*header.find(lora_name(path, which))].shape[dim]);
}

// Of a folder, for a model without any.
void add_from(Module& model, const std::string& folder, const AdapterConfig& config) {
  const std::string file =
      (std::filesystem::path(folder) / str_cat(kAdapterStem, ".safetensors")).string();
  const std::vector<Adapted> all = linear_layers(model);
  const SafetensorsHeader header = SafetensorsHeader::of_file(file);
  std::vector<Adapted> layers;
  for (const std::string& path : adapted_paths(header, config)) {
    const auto found = std::ranges::find(all, path, &Adapted::path);
    CS_REQUIRE(found != all.end(), "load_adapter: ", file, ": is of another model: '",
               shortened(path), "' is no nn::Linear of this one; ", close_names(path, all));
    const std::int64_t in = size_in(header, path, 'A', 1), out = size_in(header, path, 'B', 0);
    const nn::Linear& layer = *found->layer;
    CS_REQUIRE(in == layer.in_features && out == layer.out_features, "load_adapter: ", file,
               ": is of another model: the weight of '", shortened(path), "' is [", out, ",", in,
               "] there and [", layer.out_features, ",", layer.in_features, "] here");
    layers.push_back(*found);
  }
  add_adapters(model, layers, config.options);
}

}  // namespace

void add_lora(Module& model, std::string_view pattern, LoraOptions options, CallSite site) {
  const UserCall user(site);
  const std::vector<Adapted> all = linear_layers(model);
  std::vector<Adapted> layers = all;
  std::erase_if(layers, [&](const Adapted& each) { return !matches(pattern, each.path); });
  if (layers.empty()) fail_unmatched(pattern, all);
  add_adapters(model, layers, options);
}

Task<void> save_adapter(Module& model, std::string folder, SaveOptions options, CallSite site) {
  const UserCall user(site);
  const std::vector<Adapted> layers = adapted_layers(model);
  CS_REQUIRE(!layers.empty(), "save_adapter: the model has no adapters; add_lora adds them");
  const auto* known = dynamic_cast<const nn::LanguageModel*>(&model);
  World* const world = World::current();
  CS_REQUIRE(world != nullptr, "save_adapter: called outside of a rank's program");
  // Processes of other hosts may have it at another path.
  const std::vector<std::string> own(1, known == nullptr ? "" : known->folder);
  Task<std::vector<std::string>> telling = texts_of_rank_0(*world, own, nullptr);
  const std::vector<std::string> base = co_await std::move(telling);
  TrainingFiles beside;
  beside.stem = kAdapterStem;
  beside.files[kAdapterConfig] =
      adapter_config_text(layers.front().layer->lora, targets_of(model, layers), base.front());
  Task<void> saved =
      save_with(adapter_state(layers), std::move(folder), options, std::move(beside));
  co_await std::move(saved);
}

Task<LoadReport> load_adapter(Module& model, std::string folder, LoadOptions options,
                              CallSite site) {
  const UserCall user(site);
  const AdapterConfig config = read_adapter_config(folder);
  if (adapted_layers(model).empty()) add_from(model, folder, config);
  const std::vector<Adapted> layers = adapted_layers(model);
  const LoraOptions& own = layers.front().layer->lora;
  CS_REQUIRE(own.rank == config.options.rank && own.scale() == config.options.scale(),
             "load_adapter: ", folder, " has r ", config.options.rank, " and lora_alpha ",
             config.options.alpha, config.options.rslora ? " with use_rslora" : "",
             ", but the model's adapters rank ", own.rank, " and alpha ", own.alpha);
  FilesToLoad from;
  from.path = std::move(folder);
  from.stem = kAdapterStem;
  Task<LoadReport> loaded = load_files(adapter_state(layers), std::move(from), options);
  co_return co_await std::move(loaded);
}

}  // namespace coshard
