#include "tools/ckpt/merge.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/model_folder.h"
#include "dtensor/checkpoint/stored_value.h"
#include "dtensor/checkpoint/strict_json.h"
#include "styles/adapter_config.h"
#include "styles/nn/config_text.h"
#include "tools/ckpt/ckpt.h"

namespace coshard::tools {
namespace {

constexpr std::uint64_t kMostOfConfig = 100'000'000;

// model_type of the base's config.json; "": it is not known.
std::string model_type_of(const std::string& base) {
  const std::string path = (std::filesystem::path(base) / "config.json").string();
  if (!is_there(path)) return {};
  const nn::ConfigJson config = nn::parse_config(read_text(path, kMostOfConfig), path);
  const auto type = config.find("model_type");
  return type != config.end() && type->is_string() ? type->get<std::string>() : std::string();
}

// Whether a layer has such a name as the Conv1D of GPT-2, whose weights are [in, out].
bool may_be_conv1d(std::string_view path) {
  constexpr std::string_view kNames[] = {"c_attn", "c_proj", "c_fc", "q_attn"};
  return std::ranges::count(kNames, path.substr(path.rfind('.') + 1)) > 0;
}
bool has_conv1d(std::string_view model_type) {
  constexpr std::string_view kTypes[] = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"};
  return std::ranges::count(kTypes, model_type) > 0;
}

// [columns, rows] of values [rows, columns].
std::vector<double> transposed(const std::vector<double>& values, std::uint64_t rows) {
  std::vector<double> made;
  const std::uint64_t columns = rows == 0 ? 0 : values.size() / rows;
  for (std::uint64_t column = 0; column < columns; ++column)
    for (std::uint64_t row = 0; row < rows; ++row) made.push_back(values[row * columns + column]);
  return made;
}

bool has_file(const std::string& folder, std::string_view name) {
  return is_there((std::filesystem::path(folder) / name).string());
}

// Error{BadInput}: the two have changed places, or are something else.
void require_base_and_adapter(const std::string& base, const std::string& adapter) {
  const bool is_adapter = has_file(adapter, kAdapterConfig),
             is_base = has_file(base, "config.json") || !has_file(base, kAdapterConfig);
  CS_REQUIRE(is_adapter || is_base, base, ": is the adapter, and ", adapter,
             " has none; the order is BASE ADAPTER OUT: coshard ckpt merge ", adapter, " ", base,
             " OUT");
  CS_REQUIRE(is_base, base, ": is an adapter, not the model that it was trained on; give that");
  CS_REQUIRE(is_adapter || !has_file(adapter, Manifest::kPath), adapter,
             ": is a checkpoint of training, not an adapter; give the folder that save_adapter, or "
             "--save of `llama finetune`, has written");
  CS_REQUIRE(is_adapter, adapter, ": has no ", kAdapterConfig,
             "; give the folder of an adapter, as PEFT and save_adapter write it");
}

// Error{BadInput}: a checkpoint of training has them.
void require_no_adapters(const ModelFolder& model, const std::string& base) {
  for (std::size_t i = 0; i < model.size(); ++i)
    CS_REQUIRE(!model[i].tensor.name.ends_with(".lora_A.weight"), base, ": has adapters already, '",
               shortened(model[i].tensor.name), "'; give the model that was trained");
}

// scale * B A of each layer, by the name of its weight; its transpose for a Conv1D.
class LoraTerms final : public AddedTerms {
 public:
  LoraTerms(const std::string& folder, const std::string& base)
      : model_type_(model_type_of(base)),
        config_(read_adapter_config(folder)),
        header_(SafetensorsHeader::of_file(
            (std::filesystem::path(folder) / str_cat(kAdapterStem, ".safetensors")).string())),
        file_(header_.path()) {
    const ModelFolder model(base);
    require_no_adapters(model, base);
    for (const std::string& path : adapted_paths(header_, config_)) add_layer(path, model);
  }

  std::size_t size() const override { return layers_.size(); }
  bool has(std::string_view tensor) const override { return layers_.find(tensor) != layers_.end(); }
  void add(std::string_view tensor, std::uint64_t first, std::span<double> to) const override {
    const Layer& layer = layers_.find(tensor)->second;
    const auto rank = static_cast<std::uint64_t>(config_.options.rank);
    const double scale = config_.options.scale();
    for (std::uint64_t at = 0; at < to.size();) {
      const std::uint64_t row = (first + at) / layer.in, column = (first + at) % layer.in;
      const std::uint64_t count = std::min(layer.in - column, to.size() - at);
      for (std::uint64_t k = 0; k < rank; ++k) {
        const double factor = scale * layer.b[row * rank + k];
        const double* const a = &layer.a[k * layer.in + column];
        for (std::uint64_t i = 0; i < count; ++i) to[at + i] += factor * a[i];
      }
      at += count;
    }
  }

 private:
  struct Layer {
    std::uint64_t in;
    std::vector<double> a, b;  // [rank, in], [out, rank]; of a Conv1D with B as a, A as b
  };

  void add_layer(const std::string& path, const ModelFolder& base) {
    const std::string weight = path + ".weight";
    const auto place = base.find(weight);
    const StoredTensor a = header_[*header_.find(lora_name(path, 'A'))];
    const StoredTensor b = header_[*header_.find(lora_name(path, 'B'))];
    CS_REQUIRE(place, header_.path(), ": has an adapter of '", shortened(path),
               "', but the model has no '", shortened(weight), "'");
    const StoredTensor& to = place->tensor;
    CS_REQUIRE(!may_be_conv1d(path) || !model_type_.empty(), header_.path(),
               ": has an adapter of '", shortened(path),
               "', and the base no config.json with its model_type, which says how ",
               "that weight is stored; give the folder that has it");
    const bool turned = may_be_conv1d(path) && has_conv1d(model_type_);
    std::vector<std::uint64_t> shape{b.shape[0], a.shape[1]};
    if (turned) std::ranges::reverse(shape);
    const std::optional<DType> dtype = to_dtype(to.type);
    CS_REQUIRE(std::ranges::equal(to.shape, shape), header_.path(), ": the adapter of '",
               shortened(path), "' is for a weight ", sizes_text(shape), ", but the model's is ",
               sizes_text(to.shape));
    CS_REQUIRE(dtype && is_floating(*dtype), "'", shortened(weight), "' is ", to.type,
               ", to which nothing can be added; convert the model first");
    Layer layer{shape[1], values_of_stored(a), values_of_stored(b)};
    if (turned)
      layer = {shape[1], transposed(layer.b, b.shape[0]), transposed(layer.a, a.shape[0])};
    layers_[weight] = std::move(layer);
  }

  std::vector<double> values_of_stored(const StoredTensor& tensor) const {
    CS_REQUIRE(has_values(tensor.type), header_.path(), ": '", shortened(tensor.name), "' is ",
               tensor.type, ", which is not supported");
    std::vector<std::byte> bytes(tensor.end - tensor.begin);
    file_.read(header_.data_begin() + tensor.begin, bytes);
    std::vector<double> values(tensor.elements());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(
          stored_value(tensor.type, bytes.data(), static_cast<std::int64_t>(i)));
    return values;
  }

  std::string model_type_;
  AdapterConfig config_;
  SafetensorsHeader header_;
  InputFile file_;
  std::map<std::string, Layer, std::less<>> layers_;
};

}  // namespace

void merge(const std::string& base, const std::string& adapter, const std::string& to,
           const ConvertOptions& options, bool json, std::ostream& out) {
  require_model(base);
  CS_REQUIRE(is_there(adapter), adapter, ": there is no such folder");
  require_base_and_adapter(base, adapter);
  const LoraTerms terms(adapter, base);
  convert(base, to, options, json, out, &terms);
}

}  // namespace coshard::tools
