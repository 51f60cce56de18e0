#include "tools/ckpt/convert.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/file_layout.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/model_folder.h"
#include "dtensor/checkpoint/strict_json.h"
#include "styles/nn/config_text.h"
#include "tools/ckpt/ckpt.h"
#include "tools/ckpt/convert_gguf.h"
#include "tools/ckpt/write_model.h"

namespace coshard::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kElements = 1 << 22;  // of a tensor at a time; whole bytes of every type
constexpr std::uint64_t kMostOfText = 100'000'000;  // bytes of a file that is copied
constexpr const char* kConfig = "config.json";

bool is_float(StoredType type) {
  const std::optional<DType> dtype = to_dtype(type);
  return dtype && is_floating(*dtype);
}

bool is_stored_integer(StoredType type) {
  constexpr StoredType kIntegers[] = {StoredType::Bool, StoredType::U8,  StoredType::I8,
                                      StoredType::I16,  StoredType::U16, StoredType::I32,
                                      StoredType::U32,  StoredType::I64, StoredType::U64};
  return std::ranges::find(kIntegers, type) != std::end(kIntegers);
}

StoredType new_type(const StoredTensor& tensor, std::optional<DType> dtype) {
  if (!dtype || is_stored_integer(tensor.type)) return tensor.type;
  CS_REQUIRE(is_float(tensor.type), "'", shortened(tensor.name), "' is ", tensor.type,
             ", which cannot be cast to ", *dtype, "; leave out --dtype to keep the types");
  return to_stored(*dtype);
}

// What a file of the folder is when it holds weights, of any framework.
bool has_weights(std::string_view name) {
  constexpr std::string_view kEnds[] = {
      ".safetensors", ".index.json", ".bin",       ".pt",     ".pth",  ".h5",  ".keras",
      ".msgpack",     ".onnx",       ".onnx_data", ".gguf",   ".ggml", ".ot",  ".tflite",
      ".npz",         ".npy",        ".mlmodel",   ".pickle", ".pkl",  ".ckpt"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

struct FilesBeside {
  std::vector<std::string> names, too_large;
};

// The folder's other files; none of a path that is a file.
FilesBeside files_beside(const std::string& from) {
  FilesBeside found;
  if (!fs::is_directory(from)) return found;
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !name.starts_with(".") && !has_weights(name))
      (entry.file_size() <= kMostOfText ? found.names : found.too_large).push_back(name);
  }
  std::ranges::sort(found.names);
  std::ranges::sort(found.too_large);
  return found;
}

std::string with_dtype(std::string_view text, const std::string& path, DType dtype) {
  nn::ConfigJson config = nn::parse_config(text, path);
  CS_REQUIRE(config.is_object(), path, ": is no object");
  CS_REQUIRE(!config.contains("quantization_config"), path,
             ": has a quantization_config, whose tensors belong together; leave out --dtype");
  nn::put_dtype(config, dtype);
  return config.dump(2) + "\n";
}

class Conversion {
 public:
  Conversion(const std::string& from, const ConvertOptions& options, const AddedTerms* terms)
      : from_(from), model_(from), manifest_(Manifest::of(from)), options_(options), terms_(terms) {
    for (std::size_t i = 0; i < model_.size(); ++i) {
      const StoredTensor tensor = model_[i].tensor;
      tensors_.push_back({std::string(tensor.name),
                          new_type(tensor, options.dtype),
                          {tensor.shape.begin(), tensor.shape.end()}});
    }
    layout_ = lay_out(tensors_, options.file_bytes, "model");
    const FilesBeside beside = files_beside(from);
    left_out_ = beside.too_large;
    for (const std::string& name : beside.names) {
      const std::string path = (fs::path(from) / name).string();
      if (manifest_) manifest_->require_text(from, name, read_text(path, kMostOfText));
      if (name == kConfig && options.dtype)
        texts_.emplace_back(name, with_dtype(read_text(path, kMostOfText), path, *options.dtype));
      else
        copied_.push_back(name);
    }
    if (manifest_)
      for (const auto& [name, known] : manifest_->files())
        CS_REQUIRE(is_there((fs::path(from) / name).string()), from, "/", name,
                   ": is missing, and was written with the checkpoint");
    if (!layout_.index.empty()) texts_.emplace_back("model.safetensors.index.json", layout_.index);
    require_hashes();
  }

  void write(const std::string& to) {
    const auto put = [this](const FileLayout::Place& place, OutputFile& out) {
      write_tensor(place, out);
    };
    const auto copy = [this](const NewFolder& made) {
      for (const std::string& name : copied_)
        made.write(name, read_text((fs::path(from_) / name).string(), kMostOfText));
    };
    if (options_.overwrite) require_nothing_lost(to);
    write_model(layout_, texts_, to, options_.overwrite, put, copy);
  }

  void report(bool json, std::ostream& out) const {
    Written written{.tensors = model_.size(), .overflown = overflown_, .left_out = left_out_};
    for (std::size_t i = 0; i < model_.size(); ++i)
      written.cast += tensors_[i].type != model_[i].tensor.type ? 1 : 0;
    if (terms_ != nullptr) written.adapted = terms_->size();
    print_written(written, layout_, options_.dtype, json, out);
  }

 private:
  // Of a folder that is replaced: what a model folder has is made again, and other files would be
  // gone.
  void require_nothing_lost(const std::string& to) const {
    if (!fs::is_directory(to)) return;
    FilesBeside there = files_beside(to);
    for (const fs::directory_entry& entry : fs::directory_iterator(to)) {
      const std::string name = entry.path().filename().string();
      const bool is_own = name.ends_with(".safetensors") || name.ends_with(".index.json");
      if (entry.is_regular_file() && has_weights(name) && !is_own) there.too_large.push_back(name);
    }
    CS_REQUIRE(there.too_large.empty(), to, ": has '", shortened(there.too_large.front()),
               "', which --overwrite would remove and not write again; give another folder, or "
               "move it");
  }
  // A checkpoint's files, before anything is made of them.
  void require_hashes() const {
    for (std::size_t i = 0; manifest_ && i < model_.files().size(); ++i) {
      const SafetensorsHeader& header = model_.files()[i];
      manifest_->require_whole(from_, model_.name_of_file(i),
                               [&](auto a, auto b) { return header.names_in(a, b); });
    }
  }

  void write_tensor(const FileLayout::Place& place, OutputFile& out) {
    const auto [file, tensor] = model_[place.tensor];
    const StoredType type = tensors_[place.tensor].type;
    const InputFile& in = source(file);
    std::uint64_t from = model_.files()[file].data_begin() + tensor.begin;
    std::int64_t to = place.begin;
    for (std::uint64_t at = 0; at < tensor.elements(); at += kElements) {
      const std::uint64_t count = std::min(kElements, tensor.elements() - at);
      read_.resize((count * static_cast<std::uint64_t>(bits_of(tensor.type)) + 7) / 8);
      in.read(from, read_);
      from += read_.size();
      const std::vector<std::byte>* made = &read_;
      if (terms_ != nullptr && terms_->has(tensor.name)) {
        made = &sum_of(tensor, at, count, type);
      } else if (type != tensor.type) {
        cast_.resize(count * static_cast<std::uint64_t>(bits_of(type)) / 8);
        cast_to(tensor, *to_dtype(tensor.type), read_, type, count);
        made = &cast_;
      }
      out.write(to, *made);
      to += static_cast<std::int64_t>(made->size());
    }
  }

  void cast_to(const StoredTensor& tensor, DType from, std::span<const std::byte> values,
               StoredType type, std::uint64_t count) {
    const std::uint64_t lost = cast_values(from, values, *to_dtype(type), cast_, count);
    if (lost > 0) overflown_[std::string(tensor.name)] += lost;
  }

  // Elements that have been read, with the term: added in f64 and rounded once.
  const std::vector<std::byte>& sum_of(const StoredTensor& tensor, std::uint64_t first,
                                       std::uint64_t count, StoredType type) {
    sums_.resize(count);
    const auto sums = std::as_writable_bytes(std::span(sums_));
    cast_values(*to_dtype(tensor.type), read_, DType::F64, sums, count);
    terms_->add(tensor.name, first, sums_);
    cast_.resize(count * static_cast<std::uint64_t>(bits_of(type)) / 8);
    cast_to(tensor, DType::F64, sums, type, count);
    return cast_;
  }

  // Opened anew for another file than the last one.
  const InputFile& source(std::size_t file) {
    const SafetensorsHeader& header = model_.files()[file];
    if (in_ == nullptr || in_->path() != header.path()) {
      in_ = std::make_unique<InputFile>(header.path());
      if (in_->identity() != header.identity())
        fail(ErrorKind::DeviceFailed,
             str_cat(header.path(), ": was replaced while it was read; convert again"));
    }
    return *in_;
  }

  std::string from_;
  ModelFolder model_;
  std::optional<Manifest> manifest_;  // none: it is no checkpoint
  ConvertOptions options_;
  const AddedTerms* terms_;         // null: none
  std::vector<NewTensor> tensors_;  // by number in model_
  FileLayout layout_;
  TextFiles texts_;
  std::vector<std::string> copied_;    // names; read one by one as they are written
  std::vector<std::string> left_out_;  // names of those that are too large for it
  std::unique_ptr<InputFile> in_;
  std::vector<std::byte> read_, cast_;
  std::vector<double> sums_;
  std::map<std::string, std::uint64_t> overflown_;  // by name
};

}  // namespace

void convert(const std::string& from, const std::string& to, const ConvertOptions& options,
             bool json, std::ostream& out, const AddedTerms* terms) {
  if (terms == nullptr && is_gguf(from)) return convert_gguf(from, to, options, json, out);
  require_model(from);
  Conversion conversion(from, options, terms);
  conversion.write(to);
  conversion.report(json, out);
}

}  // namespace coshard::tools
