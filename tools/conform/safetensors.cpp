#include "tools/conform/safetensors.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include <coshard/runtime/error.h>

namespace coshard::conform {
namespace {

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  CS_REQUIRE(in.good(), path, ": cannot read the file");
  std::vector<std::byte> bytes(static_cast<std::size_t>(in.tellg()));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  CS_REQUIRE(in.good(), path, ": cannot read the file");
  return bytes;
}

DType dtype_from(const std::string& word, const std::string& path, const std::string& key) {
  if (word == "F32") return DType::F32;
  if (word == "F64") return DType::F64;
  if (word == "BF16") return DType::BF16;
  if (word == "F16") return DType::F16;
  if (word == "I64") return DType::I64;
  if (word == "I32") return DType::I32;
  CS_REQUIRE(word == "BOOL", path, ": unsupported dtype ", word, " of tensor ", key);
  return DType::Bool;
}

template <class T>
double element(const std::byte* data, std::int64_t at) {
  T value;
  std::memcpy(&value, data + static_cast<std::size_t>(at) * sizeof(T), sizeof(T));
  return static_cast<double>(value);
}

}  // namespace

double StoredTensor::value(std::int64_t at) const {
  switch (dtype) {
    case DType::F32: return element<float>(data, at);
    case DType::F64: return element<double>(data, at);
    case DType::BF16: return element<BFloat16>(data, at);
    case DType::F16: return element<Float16>(data, at);
    case DType::I64: return element<std::int64_t>(data, at);
    case DType::I32: return element<std::int32_t>(data, at);
    case DType::Bool: return data[at] == std::byte{0} ? 0 : 1;
  }
  return 0;
}

TensorFile::TensorFile(const std::string& path) : path_(path), bytes_(read_file(path)) {
  std::uint64_t length = 0;
  CS_REQUIRE(bytes_.size() >= sizeof length, path, ": ", bytes_.size(),
             " bytes are too short for a header");
  std::memcpy(&length, bytes_.data(), sizeof length);
  CS_REQUIRE(length <= bytes_.size() - sizeof length, path, ": a header of ", length, " bytes in ",
             bytes_.size());
  const char* text = reinterpret_cast<const char*>(bytes_.data()) + sizeof length;
  const auto header = nlohmann::json::parse(text, text + length, nullptr, false);
  CS_REQUIRE(header.is_object(), path, ": the header is not a JSON object");
  const std::size_t begin = sizeof length + length;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    StoredTensor tensor;
    tensor.dtype = dtype_from(entry.at("dtype"), path, key);
    for (std::int64_t size : entry.at("shape")) tensor.shape.push_back(size);
    const std::size_t from = entry.at("data_offsets").at(0), to = entry.at("data_offsets").at(1);
    const auto count = static_cast<std::size_t>(numel(tensor.shape));
    CS_REQUIRE(
        from <= to && to - from == count * size_of(tensor.dtype) && to <= bytes_.size() - begin,
        path, ": bytes ", from, "..", to, " of ", key, " ", tensor.dtype, tensor.shape);
    tensor.data = bytes_.data() + begin + from;
    tensors_.emplace(key, tensor);
  }
}

const StoredTensor& TensorFile::at(const std::string& key) const {
  const auto found = tensors_.find(key);
  CS_REQUIRE(found != tensors_.end(), path_, ": no tensor ", key);
  return found->second;
}

}  // namespace coshard::conform
