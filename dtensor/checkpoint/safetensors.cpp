#include "dtensor/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/strict_json.h"

namespace coshard {
namespace {

constexpr std::uint64_t kLengthBytes = 8, kMaxHeader = 100'000'000;
constexpr std::size_t kMaxDims = 65'535, kMaxAllDims = 1 << 21, kMaxMetadata = 65'536;
constexpr std::string_view kMetadata = "__metadata__";

struct TypeName {
  std::string_view name;
  int bits;
};
constexpr std::array<TypeName, 22> kTypes{{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};
static_assert(static_cast<std::size_t>(StoredType::U64) + 1 == kTypes.size());

}  // namespace

std::string_view to_string(StoredType type) { return kTypes[static_cast<std::size_t>(type)].name; }
int bits_of(StoredType type) { return kTypes[static_cast<std::size_t>(type)].bits; }

std::optional<DType> to_dtype(StoredType type) {
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32,
                            DType::Bool, DType::F8E4M3, DType::F8E5M2})
    if (to_stored(dtype) == type) return dtype;
  return std::nullopt;
}

StoredType to_stored(DType dtype) {
  switch (dtype) {
    case DType::F32: return StoredType::F32;
    case DType::F64: return StoredType::F64;
    case DType::BF16: return StoredType::BF16;
    case DType::F16: return StoredType::F16;
    case DType::I64: return StoredType::I64;
    case DType::I32: return StoredType::I32;
    case DType::Bool: return StoredType::Bool;
    case DType::F8E4M3: return StoredType::F8_E4M3;
    case DType::F8E5M2: return StoredType::F8_E5M2;
  }
  return StoredType::U8;
}

std::string sizes_text(std::span<const std::uint64_t> sizes) {
  std::string text = "[";
  for (const std::uint64_t size : sizes) text += str_cat(text.size() > 1 ? "," : "", size);
  return text + "]";
}

std::uint64_t StoredTensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

// Takes the header's values: {"name": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, …,
// "__metadata__": {"format": "pt"}}. Other members of a tensor are skipped, as safetensors does.
class HeaderReader final : public JsonEvents {
 public:
  explicit HeaderReader(SafetensorsHeader& to) : to_(to) {}

  void begin_object() override { begin("an object"); }
  void begin_array() override { begin("an array"); }
  void end_object() override { end(); }
  void end_array() override { end(); }
  void key(std::string_view name) override;
  void text(std::string_view value) override;
  void count(std::uint64_t value) override;
  void other(std::string_view value) override;

 private:
  enum class At { Start, File, Tensor, Type, Shape, Sizes, Offsets, Places, Metadata, Skipped };

  // What was read instead of what belongs there.
  [[noreturn]] void refuse(std::string_view value) const;
  template <class... Args>
  void require(bool holds, const Args&... what) const {
    CS_REQUIRE(holds, to_.path_, ": tensor '", shortened(member_), "': ", what...);
  }
  void begin(std::string_view what);
  void end();
  void begin_member();
  void begin_metadata() {
    CS_REQUIRE(!std::exchange(has_metadata_, true), to_.path_, ": __metadata__ is there twice");
  }
  void end_tensor();
  void require_bytes(const SafetensorsHeader::Entry& entry) const;
  void skip_or_refuse(std::string_view value);
  void once(bool& has) const { require(!std::exchange(has, true), "has a key twice"); }

  SafetensorsHeader& to_;
  At at_ = At::Start;
  int skipped_ = 0;  // levels within what is skipped
  std::string member_, metadata_key_;
  bool has_metadata_ = false;
  struct {
    SafetensorsHeader::Entry entry;
    bool type = false, shape = false, offsets = false;
    int places = 0;
  } now_;
};

void HeaderReader::refuse(std::string_view value) const {
  constexpr std::string_view kWanted[] = {"an object",
                                          "an object for each tensor",
                                          "",
                                          "a dtype such as \"F32\"",
                                          "an array of sizes",
                                          "a size",
                                          "an array of two places",
                                          "a place",
                                          "a text for each key",
                                          ""};
  const std::string_view wanted = kWanted[static_cast<std::size_t>(at_)];
  CS_REQUIRE(at_ != At::Metadata && at_ != At::Start, to_.path_, ": __metadata__ has ",
             shortened(value), ", not ", wanted);
  require(false, "has ", shortened(value), ", not ", wanted);
  __builtin_unreachable();
}

void HeaderReader::begin(std::string_view what) {
  const bool is_object = what == "an object";
  switch (at_) {
    case At::Start: at_ = At::File; return;
    case At::Skipped: ++skipped_; return;
    case At::File:
      if (!is_object) refuse(what);
      return begin_member();
    case At::Shape:
    case At::Offsets:
      if (is_object) refuse(what);
      at_ = at_ == At::Shape ? At::Sizes : At::Places;
      return;
    default: refuse(what);
  }
}

void HeaderReader::end() {
  switch (at_) {
    case At::Skipped:
      if (--skipped_ == 0) at_ = At::Tensor;
      return;
    case At::Sizes: at_ = At::Tensor; return;
    case At::Places:
      require(now_.places == 2, "has ", now_.places, " data_offsets, not 2");
      at_ = At::Tensor;
      return;
    case At::Tensor: end_tensor(); [[fallthrough]];
    default: at_ = At::File; return;
  }
}

void HeaderReader::begin_member() {
  if (member_ == kMetadata) {
    begin_metadata();
    at_ = At::Metadata;
    return;
  }
  now_ = {};
  now_.entry.name = static_cast<std::uint32_t>(to_.names_.size());
  now_.entry.name_size = static_cast<std::uint32_t>(member_.size());
  now_.entry.shape = static_cast<std::uint32_t>(to_.sizes_.size());
  to_.names_ += member_;
  at_ = At::Tensor;
}

void HeaderReader::end_tensor() {
  require(now_.type && now_.shape && now_.offsets, "lacks its ",
          !now_.type    ? "dtype"
          : !now_.shape ? "shape"
                        : "data_offsets");
  require_bytes(now_.entry);
  to_.tensors_.push_back(now_.entry);
}

// Where it lies it has the bytes of its shape.
void HeaderReader::require_bytes(const SafetensorsHeader::Entry& t) const {
  const auto shape = std::span(std::as_const(to_.sizes_)).subspan(t.shape, t.dims);
  const auto text = [&] { return str_cat(t.type, shortened(sizes_text(shape))); };
  std::uint64_t bits = 1;
  bool fits = true;  // in safetensors' order: a 0 ends what has grown too large only after it
  for (const std::uint64_t size : shape) fits = fits && !__builtin_mul_overflow(bits, size, &bits);
  const auto bits_of_one = static_cast<std::uint64_t>(bits_of(t.type));
  fits = fits && !__builtin_mul_overflow(bits, bits_of_one, &bits);
  if (!fits) require(false, text(), " has more than 2^64 bits");
  if (bits % 8 != 0) require(false, text(), " ends within a byte");
  if (t.begin > t.end || t.end - t.begin != bits / 8)
    require(false, "data_offsets [", t.begin, ",", t.end, "] are not the ", bits / 8, " bytes of ",
            text());
  require(t.end <= to_.data_bytes_, "ends at byte ", t.end, " of the data, but ", to_.data_bytes_,
          " bytes follow the header; the file was cut");
}

void HeaderReader::key(std::string_view name) {
  if (at_ == At::File) {
    member_ = name;
  } else if (at_ == At::Metadata) {
    metadata_key_ = name;
  } else if (at_ == At::Tensor) {
    at_ = name == "dtype" ? At::Type : name == "shape" ? At::Shape : At::Offsets;
    if (at_ == At::Type) {
      once(now_.type);
    } else if (at_ == At::Shape) {
      once(now_.shape);
    } else if (name == "data_offsets") {
      once(now_.offsets);
    } else {
      at_ = At::Skipped;
      skipped_ = 0;
    }
  }
}

void HeaderReader::text(std::string_view value) {
  if (at_ == At::Metadata) {
    CS_REQUIRE(to_.metadata_.size() < kMaxMetadata, to_.path_, ": __metadata__ has more than ",
               kMaxMetadata, " keys");
    CS_REQUIRE(to_.metadata_.emplace(metadata_key_, value).second, to_.path_,
               ": __metadata__ has '", shortened(metadata_key_), "' twice");
  } else if (at_ == At::Type) {
    const auto known = std::ranges::find(kTypes, value, &TypeName::name);
    require(known != kTypes.end(), "has the unknown dtype '", shortened(value), "'");
    now_.entry.type = static_cast<StoredType>(known - kTypes.begin());
    at_ = At::Tensor;
  } else {
    if (at_ != At::Skipped) refuse(str_cat('"', shortened(value), '"'));
    skip_or_refuse(value);
  }
}

void HeaderReader::count(std::uint64_t value) {
  if (at_ == At::Sizes) {
    require(now_.entry.dims < kMaxDims, "has more than ", kMaxDims, " dimensions");
    require(to_.sizes_.size() < kMaxAllDims, "and those before it have more than ", kMaxAllDims,
            " dimensions");
    ++now_.entry.dims;
    to_.sizes_.push_back(value);
  } else if (at_ == At::Places) {
    if (now_.places < 2) (now_.places == 0 ? now_.entry.begin : now_.entry.end) = value;
    ++now_.places;
  } else {
    if (at_ != At::Skipped) refuse(std::to_string(value));
    skip_or_refuse("");
  }
}

void HeaderReader::other(std::string_view value) {
  if (at_ == At::File && member_ == kMetadata && value == "null") return begin_metadata();
  skip_or_refuse(value);
}

void HeaderReader::skip_or_refuse(std::string_view value) {
  if (at_ != At::Skipped) refuse(value);
  if (skipped_ == 0) at_ = At::Tensor;
}

SafetensorsHeader::SafetensorsHeader(std::string_view text, std::uint64_t data_bytes,
                                     std::string path)
    : path_(std::move(path)), data_begin_(kLengthBytes + text.size()), data_bytes_(data_bytes) {
  CS_REQUIRE(text.size() <= kMaxHeader, path_, ": a header of ", text.size(),
             " bytes; safetensors permits ", kMaxHeader);
  HeaderReader reader(*this);
  read_json(text, path_, reader);
  std::ranges::sort(tensors_, {},
                    [this](const Entry& e) { return std::tuple(e.begin, e.end, name_of(e)); });
  require_places();
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  const auto name = [this](std::uint32_t i) { return name_of(tensors_[i]); };
  std::ranges::sort(by_name_, {}, name);
  const auto twice = std::ranges::adjacent_find(by_name_, {}, name);
  CS_REQUIRE(twice == by_name_.end(), path_, ": tensor '", shortened(name(*twice)),
             "' is there twice");
}

// Each begins where the one before ends.
void SafetensorsHeader::require_places() const {
  std::uint64_t at = 0;
  std::string_view before;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const StoredTensor t = (*this)[i];
    CS_REQUIRE(
        t.begin == at, path_, ": tensor '", shortened(t.name), "': begins at byte ", t.begin,
        " of the data, but ",
        i == 0 ? std::string("they begin") : str_cat("'", shortened(before), "' before it ends"),
        " at ", at);
    at = t.end;
    before = t.name;
  }
  CS_REQUIRE(at == data_bytes_, path_, ": its tensors have ", at, " bytes, but ", data_bytes_,
             " follow the header");
}

HeaderText HeaderText::of_file(const std::string& path) {
  const InputFile file(path);
  CS_REQUIRE(file.size() >= kLengthBytes, path, ": ", file.size(),
             " bytes, but a safetensors file has 8 or more");
  std::array<unsigned char, kLengthBytes> bytes;
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i > 0; --i) length = length << 8 | bytes[i - 1];
  CS_REQUIRE(length <= kMaxHeader, path, ": a header of ", length, " bytes; safetensors permits ",
             kMaxHeader);
  CS_REQUIRE(length <= file.size() - kLengthBytes, path, ": a header of ", length,
             " bytes in a file of ", file.size(), "; the file was cut, or is no safetensors file");
  std::string text(length, ' ');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  return {path, std::move(text), file.size() - kLengthBytes - length, file.identity()};
}

StoredTensor SafetensorsHeader::operator[](std::size_t i) const {
  const Entry& e = tensors_[i];
  return {name_of(e), e.type, std::span(sizes_).subspan(e.shape, e.dims), e.begin, e.end};
}

std::optional<std::size_t> SafetensorsHeader::find(std::string_view name) const {
  const auto name_at = [this](std::uint32_t i) { return name_of(tensors_[i]); };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_at);
  if (found == by_name_.end() || name_at(*found) != name) return std::nullopt;
  return *found;
}

std::string SafetensorsHeader::names_in(std::int64_t first, std::int64_t last) const {
  const auto begin = static_cast<std::uint64_t>(first), end = static_cast<std::uint64_t>(last);
  std::vector<std::string_view> names;
  for (const Entry& t : tensors_)
    if (data_begin_ + t.begin < end && data_begin_ + t.end > begin) names.push_back(name_of(t));
  const bool of_header = begin < data_begin_;
  return str_cat(of_header ? "the header" : "", of_header && !names.empty() ? ", " : "",
                 names_text(names));
}

}  // namespace coshard
