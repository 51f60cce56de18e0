#include "tools/ckpt/merge.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/model_folder.h"
#include "dtensor/checkpoint/stored_value.h"
#include "dtensor/checkpoint/strict_json.h"
#include "styles/adapter_config.h"

namespace coshard::tools {
namespace {

// scale * B A of each layer, by the name of its weight.
class LoraTerms final : public AddedTerms {
 public:
  LoraTerms(const std::string& folder, const ModelFolder& base)
      : config_(read_adapter_config(folder)),
        header_(SafetensorsHeader::of_file(
            (std::filesystem::path(folder) / str_cat(kAdapterStem, ".safetensors")).string())),
        file_(header_.path()) {
    for (const std::string& path : adapted_paths(header_, config_)) add_layer(path, base);
  }

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
    std::vector<double> a, b;  // [rank, in], [out, rank]
  };

  void add_layer(const std::string& path, const ModelFolder& base) {
    const std::string weight = path + ".weight";
    const auto place = base.find(weight);
    const StoredTensor a = header_[*header_.find(lora_name(path, 'A'))];
    const StoredTensor b = header_[*header_.find(lora_name(path, 'B'))];
    CS_REQUIRE(place, header_.path(), ": has an adapter of '", shortened(path),
               "', but the model has no '", shortened(weight), "'");
    const StoredTensor& to = place->tensor;
    const std::vector<std::uint64_t> shape{b.shape[0], a.shape[1]};
    const std::optional<DType> dtype = to_dtype(to.type);
    CS_REQUIRE(std::ranges::equal(to.shape, shape), header_.path(), ": the adapter of '",
               shortened(path), "' is for a weight ", sizes_text(shape), ", but the model's is ",
               sizes_text(to.shape));
    CS_REQUIRE(dtype && is_floating(*dtype), "'", shortened(weight), "' is ", to.type,
               ", to which nothing can be added; convert the model first");
    layers_[weight] = {a.shape[1], values_of_stored(a), values_of_stored(b)};
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

  AdapterConfig config_;
  SafetensorsHeader header_;
  InputFile file_;
  std::map<std::string, Layer, std::less<>> layers_;
};

}  // namespace

void merge(const std::string& base, const std::string& adapter, const std::string& to,
           const ConvertOptions& options, bool json, std::ostream& out) {
  for (const std::string& path : {base, adapter})
    CS_REQUIRE(is_there(path), path, ": there is no such file or folder");
  const LoraTerms terms(adapter, ModelFolder(base));
  convert(base, to, options, json, out, &terms);
}

}  // namespace coshard::tools
