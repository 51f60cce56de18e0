#include "dtensor/checkpoint/file_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

constexpr std::size_t kAligned = 4096, kLength = 8, kMostHead = 100'000'000;
static_assert(std::endian::native == std::endian::little);

std::int64_t bytes_of(const NewTensor& tensor) {
  std::uint64_t bits = static_cast<std::uint64_t>(bits_of(tensor.type));
  for (const std::uint64_t size : tensor.shape) bits *= size;
  return static_cast<std::int64_t>(bits / 8);
}

std::string quoted(const std::string& name) {
  try {
    return nlohmann::json(name).dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::BadInput,
         str_cat(
             "the name of a tensor is no UTF-8: ",
             nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  }
}

// `entries`: what the header says of each tensor, with commas between.
std::string head_of(const std::string& entries) {
  std::string header = R"({"__metadata__":{"format":"pt"})" + entries + "}";
  header.resize((header.size() + kLength + kAligned - 1) / kAligned * kAligned - kLength, ' ');
  CS_REQUIRE(header.size() <= kMostHead, "a header of ", header.size(),
             " bytes; readers take at most ", kMostHead, ": give files fewer bytes");
  std::string head(kLength, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(head.data(), &length, sizeof length);
  return head + header;
}

std::string index_of(const FileLayout& made, const std::vector<NewTensor>& tensors) {
  std::int64_t total = 0;
  nlohmann::json files = nlohmann::json::object();
  for (const FileLayout::Place& place : made.places) {
    const std::string& file = made.files[place.file].name;
    files[tensors[place.tensor].name] = file.substr(file.rfind('/') + 1);
    total += place.end - place.begin;
  }
  const nlohmann::json index{{"metadata", {{"total_size", total}}}, {"weight_map", files}};
  return index.dump(2) + "\n";
}

}  // namespace

FileLayout lay_out(const std::vector<NewTensor>& tensors, std::int64_t file_bytes,
                   std::string_view stem) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::tuple(-static_cast<int>(tensors[i].type), std::string_view(tensors[i].name));
  });
  FileLayout made;
  std::vector<std::string> entries(1);
  std::int64_t filled = 0;
  for (const std::size_t i : order) {
    const std::int64_t bytes = bytes_of(tensors[i]);
    if (filled > 0 && filled + bytes > file_bytes) {
      entries.emplace_back();
      filled = 0;
    }
    entries.back() += fmt::format(R"(,{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                                  quoted(tensors[i].name), to_string(tensors[i].type),
                                  sizes_text(tensors[i].shape), filled, filled + bytes);
    made.places.push_back({i, entries.size() - 1, filled, filled + bytes});
    filled += bytes;
  }
  for (std::size_t k = 0; k < entries.size(); ++k) {
    const std::string name = entries.size() == 1 ? fmt::format("{}.safetensors", stem)
                                                 : fmt::format("{}-{:05}-of-{:05}.safetensors",
                                                               stem, k + 1, entries.size());
    std::string head = head_of(entries[k]);
    const auto bytes = static_cast<std::int64_t>(head.size());
    made.files.push_back({name, std::move(head), bytes});
  }
  for (FileLayout::Place& place : made.places) {
    FileLayout::File& file = made.files[place.file];
    place.begin += static_cast<std::int64_t>(file.head.size());
    place.end += static_cast<std::int64_t>(file.head.size());
    file.bytes = place.end;
  }
  if (made.files.size() > 1) made.index = index_of(made, tensors);
  return made;
}

}  // namespace coshard
