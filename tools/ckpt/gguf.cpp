#include "tools/ckpt/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <unordered_set>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/strict_json.h"

namespace coshard::tools {
namespace {

constexpr std::uint64_t kMaxDims = 4, kAlignment = 32;
// Bytes of a key or a name, of another text, and of all that are read in one go; items of a list.
constexpr std::uint64_t kMaxKey = 65535, kMaxText = 1 << 24, kMaxTexts = 1 << 26;
constexpr std::uint64_t kMaxList = 1 << 22;
constexpr std::uint64_t kMaxAlignment = 1 << 20;
constexpr std::string_view kMagic = "GGUF";

// Types of values, and the bytes of those that have a size.
enum ValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kText,
  kList,
  kU64,
  kI64,
  kF64
};
constexpr std::array<std::uint64_t, 13> kValueBytes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// All types of tensors, for errors.
constexpr std::array<std::string_view, 40> kTypeNames{
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4"};

bool is_supported(std::uint32_t type) {
  constexpr GgufType kAll[] = {GgufType::F32,  GgufType::F16,  GgufType::Q4_0,
                               GgufType::Q4_1, GgufType::Q8_0, GgufType::BF16};
  return std::ranges::find(kAll, static_cast<GgufType>(type)) != std::end(kAll);
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80) continue;
    if (first < 0xc2 || first > 0xf4) return false;
    const std::size_t more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    if (more >= text.size() - i) return false;
    // Neither longer than needed, nor a surrogate, nor beyond U+10FFFF.
    const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    for (std::size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if (next < (k == 1 ? least : 0x80) || next > (k == 1 ? most : 0xbf)) return false;
    }
    i += more;
  }
  return true;
}

}  // namespace

ByteSource source_of_file(const std::string& path) {
  const auto file = std::make_shared<InputFile>(path);
  return {path, file->size(),
          [file](std::uint64_t at, std::span<std::byte> to) { file->read(at, to); }};
}

GgufBlock block_of(GgufType type) {
  switch (type) {
    case GgufType::F32: return {1, 4};
    case GgufType::F16:
    case GgufType::BF16: return {1, 2};
    case GgufType::Q4_0: return {32, 18};
    case GgufType::Q4_1: return {32, 20};
    case GgufType::Q8_0: return {32, 34};
  }
  return {1, 1};
}

// Reads from the beginning on, through a buffer.
class Gguf::Cursor {
 public:
  Cursor(const ByteSource& source, std::uint64_t at) : source_(source), at_(at) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return source_.size - at_; }
  // Error{BadInput}: the file ends before that.
  void require(std::uint64_t bytes, std::string_view what) const {
    CS_REQUIRE(bytes <= left(), source_.path, ": ends at byte ", source_.size, ", within ", what,
               " at byte ", at_);
  }
  void skip(std::uint64_t bytes, std::string_view what) {
    require(bytes, what);
    at_ += bytes;
  }
  void read(std::span<std::byte> to, std::string_view what) {
    require(to.size(), what);
    while (!to.empty()) {
      if (at_ < begin_ || at_ >= begin_ + buffer_.size()) fill();
      const std::uint64_t from = at_ - begin_;
      const std::size_t some = std::min<std::uint64_t>(to.size(), buffer_.size() - from);
      std::memcpy(to.data(), buffer_.data() + from, some);
      to = to.subspan(some);
      at_ += some;
    }
  }
  template <class T>
  T number(std::string_view what) {
    T value;
    read(std::as_writable_bytes(std::span(&value, 1)), what);
    return value;
  }
  std::string text(std::string_view what, std::uint64_t most = kMaxText) {
    const auto bytes = number<std::uint64_t>(what);
    require(bytes, what);
    CS_REQUIRE(bytes <= most, source_.path, ": ", what, " has ", bytes, " bytes; at most ", most);
    texts_ += bytes;
    CS_REQUIRE(texts_ <= kMaxTexts, source_.path, ": the texts until ", what, " have ", texts_,
               " bytes; at most ", kMaxTexts);
    std::string value(bytes, '\0');
    read(std::as_writable_bytes(std::span(value)), what);
    CS_REQUIRE(is_utf8(value), source_.path, ": ", what, " is not UTF-8: ", shortened(value));
    return value;
  }
  void skip_text(std::string_view what) { skip(number<std::uint64_t>(what), what); }

 private:
  void fill() {
    constexpr std::uint64_t kBuffer = 1 << 16;
    begin_ = at_;
    buffer_.resize(std::min(kBuffer, left()));
    source_.read(begin_, buffer_);
  }
  const ByteSource& source_;
  std::uint64_t at_, begin_ = 0, texts_ = 0;
  std::vector<std::byte> buffer_;
};

Gguf::Gguf(ByteSource source) : source_(std::move(source)) {
  static_assert(std::endian::native == std::endian::little);
  Cursor in(source_, 0);
  std::array<char, kMagic.size()> magic = {};
  in.read(std::as_writable_bytes(std::span(magic)), "the first word");
  CS_REQUIRE(std::ranges::equal(magic, kMagic), path(), ": does not begin with GGUF");
  const auto version = in.number<std::uint32_t>("the version");
  CS_REQUIRE(version == 2 || version == 3, path(), ": is GGUF of version ", version,
             ", or of another byte order; versions 2 and 3 of little-endian files can be read");
  const auto tensors = in.number<std::uint64_t>("the number of tensors");
  const auto values = in.number<std::uint64_t>("the number of values");
  read_values(in, values);
  read_tensors(in, tensors);
  const std::int64_t alignment =
      integer("general.alignment").value_or(static_cast<std::int64_t>(kAlignment));
  CS_REQUIRE(alignment > 0 && alignment <= static_cast<std::int64_t>(kMaxAlignment) &&
                 std::has_single_bit(static_cast<std::uint64_t>(alignment)),
             path(), ": general.alignment ", alignment, " is not a power of two up to ",
             kMaxAlignment);
  const auto unit = static_cast<std::uint64_t>(alignment);
  place_tensors((in.at() + unit - 1) / unit * unit, unit);
}

void Gguf::read_values(Cursor& in, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string key = in.text(str_cat("key ", i), kMaxKey);
    const auto type = in.number<std::uint32_t>("the type of a value");
    Value value = read_value(in, type, key);
    const auto [at, is_new] = values_.emplace(std::move(key), std::move(value));
    CS_REQUIRE(is_new, path(), ": key ", shortened(at->first), " is there twice");
  }
}

Gguf::Value Gguf::read_value(Cursor& in, std::uint32_t type, const std::string& key) const {
  const std::string what = shortened(key);
  switch (type) {
    case kU8: return std::int64_t{in.number<std::uint8_t>(what)};
    case kI8: return std::int64_t{in.number<std::int8_t>(what)};
    case kU16: return std::int64_t{in.number<std::uint16_t>(what)};
    case kI16: return std::int64_t{in.number<std::int16_t>(what)};
    case kU32: return std::int64_t{in.number<std::uint32_t>(what)};
    case kI32: return std::int64_t{in.number<std::int32_t>(what)};
    case kU64: return in.number<std::uint64_t>(what);
    case kI64: return in.number<std::int64_t>(what);
    case kF32: return in.number<float>(what);
    case kF64: return in.number<double>(what);
    case kBool: return in.number<std::uint8_t>(what) != 0;
    case kText: return in.text(what);
    case kList: break;
    default: CS_REQUIRE(false, path(), ": ", what, " is of the unknown type ", type);
  }
  Array array{in.number<std::uint32_t>(what), in.number<std::uint64_t>(what), 0};
  array.begin = in.at();
  CS_REQUIRE(array.type < kValueBytes.size() && array.type != kList, path(), ": ", what,
             " is a list of the type ", array.type, ", which is not supported");
  const std::uint64_t bytes = array.type == kText ? sizeof(std::uint64_t) : kValueBytes[array.type];
  CS_REQUIRE(array.count <= in.left() / bytes, path(), ": ", what, " has ", array.count,
             " elements, more than the file");
  CS_REQUIRE(array.type != kText || array.count <= kMaxList, path(), ": ", what, " has ",
             array.count, " texts; at most ", kMaxList);
  if (array.type != kText) {
    in.skip(array.count * bytes, what);
  } else {
    for (std::uint64_t i = 0; i < array.count; ++i) in.skip_text(what);
  }
  return array;
}

void Gguf::read_tensors(Cursor& in, std::uint64_t count) {
  std::unordered_set<std::string> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor{in.text(str_cat("the name of tensor ", i), kMaxKey), {}, {}, 0, 0};
    const std::string what = str_cat("tensor '", shortened(tensor.name), "'");
    CS_REQUIRE(names.insert(tensor.name).second, path(), ": ", what, " is there twice");
    const auto dims = in.number<std::uint32_t>(what);
    CS_REQUIRE(dims <= kMaxDims, path(), ": ", what, " has ", dims, " dimensions");
    for (std::uint32_t d = 0; d < dims; ++d) tensor.shape.push_back(in.number<std::uint64_t>(what));
    std::ranges::reverse(tensor.shape);
    const auto type = in.number<std::uint32_t>(what);
    const bool has_name = type < kTypeNames.size();
    CS_REQUIRE(is_supported(type), path(), ": ", what, " is of type ",
               has_name ? std::string(kTypeNames[type]) : str_cat("number ", type),
               "; F32, F16, BF16, Q8_0, Q4_0 and Q4_1 can be read");
    tensor.type = static_cast<GgufType>(type);
    tensor.begin = in.number<std::uint64_t>(what);
    tensors_.push_back(std::move(tensor));
  }
}

// Their bytes, from the places relative to `data` that the file gives.
void Gguf::place_tensors(std::uint64_t data, std::uint64_t alignment) {
  std::vector<const GgufTensor*> in_order;
  for (GgufTensor& t : tensors_) {
    const GgufBlock block = block_of(t.type);
    const std::uint64_t row = t.shape.empty() ? 1 : t.shape.back();
    CS_REQUIRE(row % block.elements == 0, path(), ": tensor '", shortened(t.name), "' has rows of ",
               row, " elements, not whole blocks of ", block.elements);
    std::uint64_t elements = 1;
    bool fits = data <= source_.size && t.begin % alignment == 0;
    for (const std::uint64_t size : t.shape)
      fits = fits && !__builtin_mul_overflow(elements, size, &elements);
    fits = fits && !__builtin_mul_overflow(elements / block.elements, block.bytes, &t.bytes);
    fits = fits && t.begin <= source_.size - data && t.bytes <= source_.size - data - t.begin;
    CS_REQUIRE(fits, path(), ": tensor '", shortened(t.name), "' at byte ", t.begin,
               " of the data does not lie in the file of ", source_.size,
               " bytes, or not at a multiple of ", alignment);
    t.begin += data;
    in_order.push_back(&t);
  }
  std::ranges::sort(in_order, {},
                    [](const GgufTensor* t) { return std::pair(t->begin, t->bytes); });
  for (std::size_t i = 1; i < in_order.size(); ++i) {
    const GgufTensor &a = *in_order[i - 1], &b = *in_order[i];
    CS_REQUIRE(b.begin - a.begin >= a.bytes, path(), ": tensors '", shortened(a.name), "' and '",
               shortened(b.name), "' overlap");
  }
}

const Gguf::Value* Gguf::find(const std::string& key) const {
  const auto at = values_.find(key);
  return at == values_.end() ? nullptr : &at->second;
}

void Gguf::refuse(const std::string& key, std::string_view why) const {
  fail(ErrorKind::BadInput, str_cat(path(), ": ", shortened(key), " ", why));
}

std::optional<std::int64_t> Gguf::integer(const std::string& key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<std::int64_t>(value)) return *number;
  const auto* number = std::get_if<std::uint64_t>(value);
  if (number == nullptr || *number > std::numeric_limits<std::int64_t>::max())
    refuse(key, "is not an integer of 63 bits");
  return static_cast<std::int64_t>(*number);
}

std::optional<float> Gguf::single(const std::string& key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* number = std::get_if<float>(value);
  if (number == nullptr) refuse(key, "is not an f32");
  return *number;
}

std::optional<bool> Gguf::flag(const std::string& key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* flag = std::get_if<bool>(value);
  if (flag == nullptr) refuse(key, "is not true or false");
  return *flag;
}

std::optional<std::string> Gguf::text(const std::string& key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* text = std::get_if<std::string>(value);
  if (text == nullptr) refuse(key, "is not a text");
  return *text;
}

std::optional<std::vector<std::string>> Gguf::texts(const std::string& key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* array = std::get_if<Array>(value);
  if (array == nullptr || array->type != kText) refuse(key, "is not a list of texts");
  Cursor in(source_, array->begin);
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < array->count; ++i) texts.push_back(in.text(shortened(key)));
  return texts;
}

std::optional<std::vector<std::int64_t>> Gguf::integers(const std::string& key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* array = std::get_if<Array>(value);
  if (array == nullptr || (array->type != kI32 && array->type != kU32))
    refuse(key, "is not a list of 32-bit integers");
  if (array->count > kMaxList)
    refuse(key, str_cat("has ", array->count, " elements; at most ", kMaxList));
  Cursor in(source_, array->begin);
  std::vector<std::int64_t> numbers;
  for (std::uint64_t i = 0; i < array->count; ++i)
    numbers.push_back(array->type == kI32 ? std::int64_t{in.number<std::int32_t>(key)}
                                          : std::int64_t{in.number<std::uint32_t>(key)});
  return numbers;
}

std::vector<std::string> Gguf::keys(std::string_view prefix) const {
  std::vector<std::string> found;
  for (auto at = values_.lower_bound(std::string(prefix));
       at != values_.end() && at->first.starts_with(prefix); ++at)
    found.push_back(at->first);
  return found;
}

}  // namespace coshard::tools
