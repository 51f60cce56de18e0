#include "tools/conform/module_spec.h"

#include <algorithm>

#include <coshard/styles/nn/activation.h>
#include <coshard/styles/nn/causal_lm.h>
#include <coshard/styles/nn/embedding.h>
#include <coshard/styles/nn/linear.h>
#include <coshard/styles/nn/norm.h>
#include <coshard/styles/nn/sequential.h>

namespace coshard::conform {
namespace {

// (first(x), second(y)); without y the second output is missing.
class Pair final : public Module {
 public:
  Pair(std::shared_ptr<Module> first, std::shared_ptr<Module> second)
      : first_(std::move(first)), second_(std::move(second)) {
    register_module("first", first_);
    register_module("second", second_);
  }

 protected:
  Task<Outputs> run_all(Inputs inputs) override {
    Outputs outputs(2);
    Task<Tensor> first = first_->forward(inputs.get(0, "x"));
    outputs[0] = co_await std::move(first);
    const Tensor y = inputs.get(1, "y");
    if (!y.defined()) co_return outputs;
    Task<Tensor> second = second_->forward(y);
    outputs[1] = co_await std::move(second);
    co_return outputs;
  }

 private:
  std::shared_ptr<Module> first_, second_;
};

std::shared_ptr<Module> make_sequential(const Json& spec, World& world) {
  auto sequential = std::make_shared<nn::Sequential>();
  for (const Json& child : spec.at("children"))
    sequential->append(child.at(0), make_module(child.at(1), world));
  return sequential;
}

std::shared_ptr<Module> make_embedding(const Json& spec, World& world) {
  nn::EmbeddingOptions options;
  const std::int64_t num = spec.at("num");
  if (spec.contains("padding_idx") && !spec.at("padding_idx").is_null()) {
    options.padding_idx = spec.at("padding_idx").get<std::int64_t>();
  }
  return std::make_shared<nn::Embedding>(num, spec.at("dim"), world, options);
}

std::shared_ptr<Module> make_layer_norm(const Json& spec, World& world) {
  nn::LayerNormOptions options;
  options.eps = spec.value("eps", options.eps);
  options.affine = spec.value("affine", true);
  options.bias = spec.value("bias", true);
  return std::make_shared<nn::LayerNorm>(spec.at("dim"), world, options);
}

std::shared_ptr<Module> make_rms_norm(const Json& spec, World& world) {
  nn::RMSNormOptions options;
  if (spec.contains("eps")) options.eps = spec.at("eps").get<double>();
  options.affine = spec.value("affine", true);
  return std::make_shared<nn::RMSNorm>(spec.at("dim"), world, options);
}

std::shared_ptr<Module> make_llama(const Json& spec, World& world) {
  const Json& keys = spec.at("config");
  nn::CausalLMConfig c;
  const auto take = [&keys](const char* key, auto& value) {
    if (keys.contains(key) && !keys.at(key).is_null()) keys.at(key).get_to(value);
  };
  take("vocab_size", c.vocab_size);
  take("hidden_size", c.hidden_size);
  take("intermediate_size", c.intermediate_size);
  take("num_hidden_layers", c.num_hidden_layers);
  take("num_attention_heads", c.num_attention_heads);
  take("num_key_value_heads", c.num_key_value_heads);
  take("head_dim", c.head_dim);
  take("rms_norm_eps", c.rms_norm_eps);
  take("rope_theta", c.rope.theta);
  take("attention_bias", c.qkv_bias);
  take("attention_bias", c.o_bias);
  take("mlp_bias", c.mlp_bias);
  take("tie_word_embeddings", c.tie_word_embeddings);
  return std::make_shared<nn::CausalLM>(c, world);
}

// One placement as text, or a list of them in which null leaves its tensor alone.
Placements placements_of(const Json& style, const char* field) {
  if (!style.contains(field) || style.at(field).is_null()) return {};
  const Json& given = style.at(field);
  if (given.is_string()) return parse_placement(given.get<std::string>());
  std::vector<std::optional<Placement>> list;
  for (const Json& text : given) {
    list.emplace_back();
    if (!text.is_null()) list.back() = parse_placement(text.get<std::string>());
  }
  return Placements(list);
}

KeywordPlacements keywords_of(const Json& style, const char* field) {
  if (!style.contains(field) || style.at(field).is_null()) return {};
  std::vector<KeywordPlacements::Entry> list;
  for (const auto& [name, text] : style.at(field).items()) {
    std::optional<Placement> placement;
    if (!text.is_null()) placement = parse_placement(text.get<std::string>());
    list.emplace_back(name, placement);
  }
  return KeywordPlacements(list);
}

Placement placement_of(const Json& style, const char* field, Placement otherwise) {
  if (!style.contains(field) || style.at(field).is_null()) return otherwise;
  return parse_placement(style.at(field).get<std::string>());
}

std::optional<DType> reduce_dtype_of(const Json& style) {
  if (!style.contains("reduce_dtype") || style.at("reduce_dtype").is_null()) return std::nullopt;
  return parse_dtype(style.at("reduce_dtype").get<std::string>());
}

// An unknown argument is an error.
void require_arguments(const Json& style, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : style.items())
    CS_REQUIRE(key == "style" || std::find(known.begin(), known.end(), key) != known.end(),
               "style ", style.at("style").dump(), ": argument '", key, "' is not known");
}

PrepareModuleInput prepare_input_of(const Json& style) {
  require_arguments(style, {"input_layouts", "desired_input_layouts", "input_kwarg_layouts",
                            "desired_input_kwarg_layouts", "use_local_output"});
  return {.input_layouts = placements_of(style, "input_layouts"),
          .desired_input_layouts = placements_of(style, "desired_input_layouts"),
          .input_kwarg_layouts = keywords_of(style, "input_kwarg_layouts"),
          .desired_input_kwarg_layouts = keywords_of(style, "desired_input_kwarg_layouts"),
          .use_local_output = style.value("use_local_output", false)};
}

PrepareModuleOutput prepare_output_of(const Json& style) {
  require_arguments(
      style, {"output_layouts", "desired_output_layouts", "use_local_output", "reduce_dtype"});
  return {.output_layouts = placements_of(style, "output_layouts"),
          .desired_output_layouts = placements_of(style, "desired_output_layouts"),
          .use_local_output = style.value("use_local_output", true),
          .reduce_dtype = reduce_dtype_of(style)};
}

PrepareModuleInputOutput prepare_both_of(const Json& style) {
  require_arguments(style, {"input_layouts", "desired_input_layouts", "input_kwarg_layouts",
                            "desired_input_kwarg_layouts", "use_local_input", "output_layouts",
                            "desired_output_layouts", "use_local_output", "reduce_dtype"});
  return {.input_layouts = placements_of(style, "input_layouts"),
          .desired_input_layouts = placements_of(style, "desired_input_layouts"),
          .input_kwarg_layouts = keywords_of(style, "input_kwarg_layouts"),
          .desired_input_kwarg_layouts = keywords_of(style, "desired_input_kwarg_layouts"),
          .use_local_input = style.value("use_local_input", false),
          .output_layouts = placements_of(style, "output_layouts"),
          .desired_output_layouts = placements_of(style, "desired_output_layouts"),
          .use_local_output = style.value("use_local_output", true),
          .reduce_dtype = reduce_dtype_of(style)};
}

Style parameter_style_of(const std::string& name, const Json& style) {
  require_arguments(style, {"input_layouts", "output_layouts", "use_local_output",
                            name == "RowwiseParallel" ? "reduce_dtype" : "use_local_output"});
  if (name == "ColwiseParallel")
    return ColwiseParallel{.input_layouts = placement_of(style, "input_layouts", Replicate()),
                           .output_layouts = placement_of(style, "output_layouts", Shard(-1)),
                           .use_local_output = style.value("use_local_output", true)};
  return RowwiseParallel{.input_layouts = placement_of(style, "input_layouts", Shard(-1)),
                         .output_layouts = placement_of(style, "output_layouts", Replicate()),
                         .use_local_output = style.value("use_local_output", true),
                         .reduce_dtype = reduce_dtype_of(style)};
}

SequenceParallel sequence_of(const Json& style) {
  require_arguments(style, {"sequence_dim", "use_local_output"});
  return {.sequence_dim = style.value("sequence_dim", 1),
          .use_local_output = style.value("use_local_output", false)};
}

NoParallel no_parallel_of(const Json& style) {
  require_arguments(style,
                    {"input_layout", "desired_input_layout", "output_layout", "use_local_output"});
  return {.input_layout = placement_of(style, "input_layout", Replicate()),
          .desired_input_layout = placement_of(style, "desired_input_layout", Replicate()),
          .output_layout = placement_of(style, "output_layout", Replicate()),
          .use_local_output = style.value("use_local_output", true)};
}

Style style_of(const Json& style) {
  const std::string name = style.at("style");
  if (name == "ColwiseParallel" || name == "RowwiseParallel")
    return parameter_style_of(name, style);
  if (name == "SequenceParallel") return sequence_of(style);
  if (name == "NoParallel") return no_parallel_of(style);
  if (name == "PrepareModuleInput") return prepare_input_of(style);
  if (name == "PrepareModuleOutput") return prepare_output_of(style);
  CS_REQUIRE(name == "PrepareModuleInputOutput", "unknown style '", name, "'");
  return prepare_both_of(style);
}

}  // namespace

std::shared_ptr<Module> make_module(const Json& spec, World& world) {
  const std::string type = spec.at("type");
  if (type == "Linear")
    return std::make_shared<nn::Linear>(spec.at("in"), spec.at("out"), world,
                                        nn::LinearOptions{.bias = spec.value("bias", true)});
  if (type == "Embedding") return make_embedding(spec, world);
  if (type == "LayerNorm") return make_layer_norm(spec, world);
  if (type == "RMSNorm") return make_rms_norm(spec, world);
  if (type == "GELU") return std::make_shared<nn::GELU>();
  if (type == "ReLU") return std::make_shared<nn::ReLU>();
  if (type == "SiLU") return std::make_shared<nn::SiLU>();
  if (type == "Identity") return std::make_shared<nn::Identity>();
  if (type == "Dropout") return std::make_shared<nn::Dropout>(spec.value("p", 0.5));
  if (type == "Sequential") return make_sequential(spec, world);
  if (type == "Llama") return make_llama(spec, world);
  if (type == "Pair")
    return std::make_shared<Pair>(make_module(spec.at("first"), world),
                                  make_module(spec.at("second"), world));
  fail(ErrorKind::Unsupported, str_cat("unknown module type '", type, "'"));
}

ParallelPlan plan_of(const Json& plan) {
  if (plan.contains("style") && plan.at("style").is_string()) return ParallelPlan(style_of(plan));
  ParallelPlan styles;
  for (const auto& [path, style] : plan.items()) styles[path] = style_of(style);
  return styles;
}

}  // namespace coshard::conform
