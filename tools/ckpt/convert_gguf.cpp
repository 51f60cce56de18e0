#include "tools/ckpt/convert_gguf.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include <coshard/runtime/error.h>
#include <coshard/styles/nn/config_json.h>
#include "tools/ckpt/dequantize.h"
#include "tools/ckpt/gguf_model.h"
#include "tools/ckpt/gguf_tokenizer.h"
#include "tools/ckpt/write_model.h"

namespace coshard::tools {
namespace {

constexpr std::uint64_t kValues = 1 << 21;  // of a tensor at a time, at least a row or a head

class GgufConversion {
 public:
  GgufConversion(const std::string& from, const ConvertOptions& options)
      : file_(source_of_file(from)), model_(GgufModel::of(file_)), options_(options) {
    model_.config.dtype = options.dtype.value_or(DType::F32);
    for (const NamedTensor& tensor : model_.tensors)
      tensors_.push_back(
          {tensor.name, to_stored(model_.config.dtype), file_.tensors()[tensor.tensor].shape});
    layout_ = lay_out(tensors_, options.file_bytes, "model");
    texts_ =
        tokenizer_files(file_, model_.config.vocab_size, model_.config.max_position_embeddings);
    texts_.emplace_back("config.json", nn::config_text(model_.config));
    if (!layout_.index.empty()) texts_.emplace_back("model.safetensors.index.json", layout_.index);
  }

  void write(const std::string& to) {
    write_model(
        layout_, texts_, to, options_.overwrite,
        [this](const FileLayout::Place& place, OutputFile& out) { write_tensor(place, out); });
  }

  void report(bool json, std::ostream& out) const {
    Written written{.tensors = model_.tensors.size(), .overflown = overflown_};
    for (const NamedTensor& tensor : model_.tensors)
      written.cast += is_of(file_.tensors()[tensor.tensor].type, model_.config.dtype) ? 0 : 1;
    print_written(written, layout_, model_.config.dtype, json, out);
  }

 private:
  static bool is_of(GgufType type, DType dtype) {
    return (type == GgufType::F32 && dtype == DType::F32) ||
           (type == GgufType::F16 && dtype == DType::F16) ||
           (type == GgufType::BF16 && dtype == DType::BF16);
  }

  void write_tensor(const FileLayout::Place& place, OutputFile& out) {
    const NamedTensor& named = model_.tensors[place.tensor];
    const GgufTensor& tensor = file_.tensors()[named.tensor];
    const std::uint64_t row = tensor.shape.back(),
                        rows = tensor.shape.size() > 1 ? tensor.shape[0] : 1;
    std::uint64_t step = std::max<std::uint64_t>(kValues / row, 1);
    if (named.pairs_of_heads > 0) step = rows / static_cast<std::uint64_t>(named.pairs_of_heads);
    const GgufBlock block = block_of(tensor.type);
    std::uint64_t from = tensor.begin;
    std::int64_t to = place.begin;
    for (std::uint64_t at = 0; at < rows; at += step) {
      const std::uint64_t count = std::min(step, rows - at) * row;
      read_.resize(count / block.elements * block.bytes);
      file_.source().read(from, read_);
      from += read_.size();
      values_.resize(count);
      dequantize(tensor.type, read_, values_);
      if (named.pairs_of_heads > 0) separate_pairs(row);
      to += put(named.name, to, out);
    }
  }

  // A head's rows from x0 y0 x1 y1 …, as llama.cpp rotates them, to x0 x1 … y0 y1 …
  void separate_pairs(std::uint64_t row) {
    const std::uint64_t half = values_.size() / row / 2;
    ordered_.resize(values_.size());
    for (std::uint64_t i = 0; i < half; ++i)
      for (std::uint64_t part = 0; part < 2; ++part)
        std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>((2 * i + part) * row), row,
                    ordered_.begin() + static_cast<std::ptrdiff_t>((part * half + i) * row));
    values_.swap(ordered_);
  }

  // How many bytes that were.
  std::int64_t put(const std::string& name, std::int64_t to, OutputFile& out) {
    std::span<const std::byte> bytes = std::as_bytes(std::span(values_));
    if (const DType dtype = model_.config.dtype; dtype != DType::F32) {
      cast_.resize(values_.size() * static_cast<std::uint64_t>(bits_of(to_stored(dtype))) / 8);
      if (const auto lost = cast_values(DType::F32, bytes, dtype, cast_, values_.size()); lost > 0)
        overflown_[name] += lost;
      bytes = cast_;
    }
    out.write(to, bytes);
    return static_cast<std::int64_t>(bytes.size());
  }

  Gguf file_;
  GgufModel model_;
  ConvertOptions options_;
  std::vector<NewTensor> tensors_;
  FileLayout layout_;
  TextFiles texts_;
  std::vector<std::byte> read_, cast_;
  std::vector<float> values_, ordered_;
  std::map<std::string, std::uint64_t> overflown_;
};

}  // namespace

bool is_gguf(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return false;
  const InputFile file(path);
  std::array<char, 4> magic = {};
  if (file.size() < magic.size()) return false;
  file.read(0, std::as_writable_bytes(std::span(magic)));
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

void convert_gguf(const std::string& from, const std::string& to, const ConvertOptions& options,
                  bool json, std::ostream& out) {
  GgufConversion conversion(from, options);
  conversion.write(to);
  conversion.report(json, out);
}

}  // namespace coshard::tools
