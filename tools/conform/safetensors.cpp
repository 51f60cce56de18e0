#include "tools/conform/safetensors.h"

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/stored_value.h"

namespace coshard::conform {
double CaseTensor::value(std::int64_t at) const {
  return static_cast<double>(stored_value(to_stored(dtype), data, at));
}

TensorFile::TensorFile(const std::string& path) : header_(SafetensorsHeader::of_file(path)) {
  bytes_.resize(header_.file_bytes() - header_.data_begin());
  InputFile(path).read(header_.data_begin(), bytes_);
}

CaseTensor TensorFile::at(const std::string& key) const {
  const auto found = header_.find(key);
  CS_REQUIRE(found, header_.path(), ": no tensor ", key);
  const StoredTensor stored = header_[*found];
  const auto dtype = to_dtype(stored.type);
  CS_REQUIRE(dtype, header_.path(), ": ", key, " is ", stored.type, ", and no case has that");
  CaseTensor tensor{*dtype, {}, bytes_.data() + stored.begin};
  for (const std::uint64_t size : stored.shape)
    tensor.shape.push_back(static_cast<std::int64_t>(size));
  return tensor;
}

}  // namespace coshard::conform
