#include "tools/ckpt/ckpt.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/model_folder.h"
#include "dtensor/checkpoint/stored_value.h"
#include "profiling/json.h"
#include "runtime/printable.h"
#include "tools/ckpt/convert_gguf.h"

namespace coshard::tools {
namespace {

std::string file_name(const SafetensorsHeader& file) {
  return std::filesystem::path(file.path()).filename().string();
}

std::string summary_of(const ModelFolder& model) {
  return fmt::format("{} tensors of {} bytes in {} file{}", model.size(), model.bytes(),
                     model.files().size(), model.files().size() == 1 ? "" : "s");
}

Json json_of(const ModelFolder& model) {
  Json json{{"tensors", Json::array()}, {"files", Json::array()}, {"bytes", model.bytes()}};
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto [file, tensor] = model[i];
    const SafetensorsHeader& header = model.files()[file];
    json["tensors"].push_back({{"name", tensor.name},
                               {"dtype", to_string(tensor.type)},
                               {"shape", tensor.shape},
                               {"file", file_name(header)},
                               {"offset", header.data_begin() + tensor.begin},
                               {"bytes", tensor.end - tensor.begin}});
  }
  for (const SafetensorsHeader& file : model.files())
    json["files"].push_back({{"file", file_name(file)},
                             {"bytes", file.file_bytes()},
                             {"tensors", file.size()},
                             {"metadata", file.metadata()}});
  return json;
}

// What one tensor has in a and in b.
struct Difference {
  std::string name, what;
  std::uint64_t elements = 0;  // that differ
  std::optional<long double> largest;
  std::optional<std::uint64_t> first;  // row-major
  long double in_a = 0, in_b = 0;
};

// Reads a stored tensor from its first element to its last.
class Elements {
 public:
  Elements(const ModelFolder& model, const ModelFolder::Place& place)
      : file_(model.files()[place.file].path()),
        at_(model.files()[place.file].data_begin() + place.tensor.begin),
        bits_(static_cast<std::uint64_t>(bits_of(place.tensor.type))) {}
  std::span<const std::byte> next(std::uint64_t elements) {
    bytes_.resize((elements * bits_ + 7) / 8);
    file_.read(at_, bytes_);
    at_ += bytes_.size();
    return bytes_;
  }

 private:
  InputFile file_;
  std::uint64_t at_, bits_;
  std::vector<std::byte> bytes_;
};

constexpr std::uint64_t kChunk = 1 << 18;  // elements; whole bytes of every type

// Of one type, elements are equal if their bits are, or if both are true.
void compare_values(StoredType a_type, std::span<const std::byte> a, StoredType b_type,
                    std::span<const std::byte> b, std::uint64_t begin, std::uint64_t count,
                    Difference& found) {
  const auto size = static_cast<std::size_t>(bits_of(a_type) / 8);
  const bool by_bits = a_type == b_type && a_type != StoredType::Bool;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const long double x = stored_value(a_type, a.data(), at),
                      y = stored_value(b_type, b.data(), at);
    if (by_bits ? std::ranges::equal(a.subspan(i * size, size), b.subspan(i * size, size)) : x == y)
      continue;
    ++found.elements;
    const long double distance = x == y ? 0 : std::abs(x - y);
    const bool grows = !found.largest || distance > *found.largest || std::isnan(distance);
    if (grows && !(found.largest && std::isnan(*found.largest))) found.largest = distance;
    if (!found.first) found.first = begin + i, found.in_a = x, found.in_b = y;
  }
}

std::optional<Difference> difference(const ModelFolder& a, const ModelFolder::Place& in_a,
                                     const ModelFolder& b, const ModelFolder::Place& in_b) {
  const StoredTensor &x = in_a.tensor, &y = in_b.tensor;
  Difference found{.name = std::string(x.name)};
  const bool one_type = x.type == y.type, one_shape = std::ranges::equal(x.shape, y.shape);
  if (!one_shape || !one_type)
    found.what =
        str_cat(x.type, sizes_text(x.shape), " in a, ", y.type, sizes_text(y.shape), " in b");
  if (one_shape && (one_type || (has_values(x.type) && has_values(y.type)))) {
    Elements of_a(a, in_a), of_b(b, in_b);
    for (std::uint64_t at = 0; at < x.elements(); at += kChunk) {
      const std::uint64_t count = std::min(kChunk, x.elements() - at);
      const auto left = of_a.next(count), right = of_b.next(count);
      if (one_type && std::ranges::equal(left, right)) continue;
      if (has_values(x.type))
        compare_values(x.type, left, y.type, right, at, count, found);
      else
        found.what = str_cat(x.type, sizes_text(x.shape), ": other bytes");
    }
  }
  if (found.what.empty() && found.elements == 0) return std::nullopt;
  return found;
}

// Whether a 64-bit integer is the value; none is -0.
bool is_integer(long double value) {
  return value == std::floor(value) && !(value == 0 && std::signbit(value)) && value > -0x1p63L &&
         value < 0x1p64L;
}

Json json_number(long double value) {
  if (!is_integer(value)) return static_cast<double>(value);
  return value < 0 ? Json(static_cast<std::int64_t>(value))
                   : Json(static_cast<std::uint64_t>(value));
}

// With as many digits as tell it from its neighbours.
std::string number_text(long double value) {
  if (is_integer(value)) return fmt::format("{:.0f}", value);
  const auto narrow = static_cast<float>(value);
  const auto wide = static_cast<double>(value);
  return static_cast<long double>(narrow) == value ? fmt::format("{}", narrow)
                                                   : fmt::format("{}", wide);
}

std::string index_text(std::uint64_t at, std::span<const std::uint64_t> shape) {
  std::vector<std::uint64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0; at /= shape[d]) index[d] = at % shape[d];
  return sizes_text(index);
}

std::vector<Difference> differences(const ModelFolder& a, const ModelFolder& b) {
  std::vector<Difference> all;
  const auto only = [](const StoredTensor& t, const char* where) {
    return Difference{.name = std::string(t.name),
                      .what = str_cat(t.type, sizes_text(t.shape), " in ", where, " alone")};
  };
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto there = b.find(a[i].tensor.name);
    if (!there)
      all.push_back(only(a[i].tensor, "a"));
    else if (auto found = difference(a, a[i], b, *there))
      all.push_back(std::move(*found));
  }
  for (std::size_t i = 0; i < b.size(); ++i)
    if (!a.find(b[i].tensor.name)) all.push_back(only(b[i].tensor, "b"));
  std::ranges::stable_sort(all, {}, &Difference::name);
  return all;
}

// Error{BadInput}: a file that the manifest tells of is missing, or has other bytes. Their number.
std::int64_t compare_hashes(const Manifest& manifest, const std::string& path) {
  std::int64_t bytes = 0;
  for (const auto& entry : manifest.files()) {
    const std::string& name = entry.first;  // clang 14 captures no binding
    const auto holds = [&](std::int64_t begin, std::int64_t end) -> std::string {
      if (!name.ends_with(".safetensors")) return "text";
      try {
        const SafetensorsHeader header = SafetensorsHeader::of_file(str_cat(path, "/", name));
        return header.names_in(begin, end);
      } catch (const Error&) {
        return "the header, which cannot be read any more";
      }
    };
    manifest.require_whole(path, name, holds);
    bytes += entry.second.bytes;
  }
  return bytes;
}

}  // namespace

void require_model(const std::string& path) {
  CS_REQUIRE(is_there(path), path, ": there is no such file or folder");
  if (!std::filesystem::is_regular_file(path)) return;
  CS_REQUIRE(!is_gguf(path), path, ": is a GGUF file; convert it first: coshard ckpt convert ",
             path, " FOLDER");
  constexpr std::size_t kBegin = 9;  // the header's length, and the brace that it begins with
  const InputFile file(path);
  std::array<char, kBegin> begin = {};
  if (file.size() >= kBegin) file.read(0, std::as_writable_bytes(std::span(begin)));
  CS_REQUIRE(begin.back() == '{', path,
             ": is neither a safetensors file, nor one of GGUF, nor a model's folder");
}

void list_tensors(const std::string& path, bool json, std::ostream& out) {
  require_model(path);
  const ModelFolder model(path);
  if (json) {
    out << json_text(json_of(model), 2) << '\n';
    return;
  }
  constexpr std::size_t kWidest = 80;  // columns that longer texts do not widen
  std::size_t name = 6, shape = 5;
  const auto widen = [](std::size_t& column, std::size_t size) {
    if (size <= kWidest) column = std::max(column, size);
  };
  for (std::size_t i = 0; i < model.size(); ++i) {
    widen(name, printable(model[i].tensor.name).size());
    widen(shape, sizes_text(model[i].tensor.shape).size());
  }
  const auto row = [&](const auto& first, const auto& dtype, const auto& sizes, const auto& offset,
                       const auto& bytes, const auto& file) {
    out << fmt::format("{:<{}}  {:<8}  {:<{}}  {:>13}  {:>13}  {}\n", first, name, dtype, sizes,
                       shape, offset, bytes, file);
  };
  row("tensor", "dtype", "shape", "offset", "bytes", "file");
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto [file, t] = model[i];
    const SafetensorsHeader& header = model.files()[file];
    row(printable(t.name), to_string(t.type), sizes_text(t.shape), header.data_begin() + t.begin,
        t.end - t.begin, printable(file_name(header)));
  }
  out << summary_of(model) << '\n';
}

bool verify(const std::string& path, bool json, std::ostream& out) {
  CS_REQUIRE(is_there(path), path, ": there is no such file or folder");
  Json answer{{"path", path}, {"whole", false}, {"hashes", false}};
  std::string text;
  try {
    require_model(path);
    const std::optional<Manifest> manifest = Manifest::of(path);
    const std::int64_t compared = manifest ? compare_hashes(*manifest, path) : 0;
    const ModelFolder model(path);
    answer["whole"] = true;
    answer["hashes"] = manifest.has_value();
    if (manifest && manifest->step) answer["step"] = *manifest->step;
    answer["tensors"] = model.size();
    answer["bytes"] = model.bytes();
    text =
        str_cat(summary_of(model), ": headers and sizes are right; ",
                manifest ? str_cat("all ", manifest->files().size(), " files of the checkpoint, ",
                                   compared, " bytes, have their hashes")
                         : "there are no hashes to compare");
  } catch (const Error& damage) {
    answer["error"] = text = printable(damage.message());
  }
  out << (json ? json_text(answer, 2) : text) << '\n';
  return answer["whole"];
}

bool differ(const std::string& a_path, const std::string& b_path, bool json, std::ostream& out) {
  for (const std::string& path : {a_path, b_path}) require_model(path);
  const ModelFolder a(a_path), b(b_path);
  const std::vector<Difference> all = differences(a, b);
  Json answer{{"tensors", Json::array()}, {"differ", all.size()}};
  for (const Difference& d : all) {
    Json entry{{"name", d.name}};
    std::string text = d.what;
    if (!d.what.empty()) entry["what"] = d.what;
    if (d.elements > 0) {
      const StoredTensor tensor = a.find(d.name)->tensor;
      const std::string index = index_text(*d.first, tensor.shape);
      entry.update({{"elements", d.elements},
                    {"max", json_number(*d.largest)},
                    {"index", index},
                    {"a", json_number(d.in_a)},
                    {"b", json_number(d.in_b)}});
      text += fmt::format(
          "{}{} of {} elements differ, by at most {}; the first at {}: {} in a, {} in b",
          text.empty() ? "" : "; ", d.elements, tensor.elements(), number_text(*d.largest), index,
          number_text(d.in_a), number_text(d.in_b));
    }
    answer["tensors"].push_back(std::move(entry));
    if (!json) out << printable(d.name) << ": " << text << '\n';
  }
  if (json)
    out << json_text(answer, 2) << '\n';
  else if (all.empty())
    out << "no difference: " << summary_of(a) << '\n';
  else
    out << all.size() << " tensors differ\n";
  return !all.empty();
}

}  // namespace coshard::tools
