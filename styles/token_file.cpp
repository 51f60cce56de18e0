#include <coshard/styles/token_file.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <coshard/runtime/launch/world.h>
#include "kernels/philox.h"

namespace coshard {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;  // of an array's data in its file

// A whole file in memory.
struct Mapped {
  std::shared_ptr<const char> bytes;
  std::size_t size;
};

Mapped map_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  CS_REQUIRE(file >= 0, path, ": cannot be opened: ", std::strerror(errno));
  struct stat about = {};
  const bool regular = ::fstat(file, &about) == 0 && S_ISREG(about.st_mode);
  const auto size = static_cast<std::size_t>(about.st_size);
  void* const at =
      regular && size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
  const int why = errno;
  ::close(file);
  CS_REQUIRE(regular, path, ": is no regular file");
  CS_REQUIRE(size > 0, path, ": is empty");
  CS_REQUIRE(at != MAP_FAILED, path, ": cannot be mapped: ", std::strerror(why));
  return {std::shared_ptr<const char>(static_cast<const char*>(at),
                                      [at, size](const char*) { ::munmap(at, size); }),
          size};
}

struct ArrayHeader {
  bool wide;
  std::int64_t count;
  std::size_t data_begin;
};

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

// As numpy.save writes it, and nothing else.
std::optional<ArrayHeader> array_header(std::string_view file) {
  constexpr std::size_t kShort = 10, kLong = 12;  // with a length of 2 or 4 bytes
  if (!file.starts_with(kMagic) || file.size() < kLong) return std::nullopt;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(file[i]); };
  const unsigned version = byte(kMagic.size());
  if (version < 1 || version > 3 || byte(kMagic.size() + 1) != 0) return std::nullopt;
  const std::size_t begin = version == 1 ? kShort : kLong;
  std::size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= std::size_t{byte(10)} << 16 | std::size_t{byte(11)} << 24;
  if (length > file.size() - begin) return std::nullopt;
  std::string_view text = file.substr(begin, length);
  ArrayHeader header{.wide = false, .count = 0, .data_begin = begin + length};
  if (take(text, "{'descr': '<u4'"))
    header.wide = true;
  else if (!take(text, "{'descr': '<u2'"))
    return std::nullopt;
  if (!take(text, ", 'fortran_order': False, 'shape': (")) return std::nullopt;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), header.count);
  if (error != std::errc() || header.count < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.begin()));
  if (!take(text, ",), }") || text.find_first_not_of(" \n") != std::string_view::npos)
    return std::nullopt;
  return header;
}

std::string header_text(bool wide, std::int64_t count) {
  std::string text = str_cat("{'descr': '<u", wide ? 4 : 2, "', 'fortran_order': False, 'shape': (",
                             count, ",), }");
  constexpr std::size_t kBefore = 10;
  text.resize((kBefore + text.size() + kAlignment) / kAlignment * kAlignment - kBefore - 1, ' ');
  text += '\n';
  std::string head = std::string(kMagic) + '\1' + '\0';
  head += static_cast<char>(text.size() & 255);
  head += static_cast<char>(text.size() >> 8);
  return head + text;
}

// A permutation of [0, count), by a Feistel network over the next power of 4 whose values outside
// are permuted again.
std::int64_t permuted(std::uint64_t seed, std::uint64_t epoch, std::int64_t number,
                      std::int64_t count) {
  constexpr std::uint64_t kRounds = 6;
  const int half = (std::bit_width(static_cast<std::uint64_t>(count)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  auto x = static_cast<std::uint64_t>(number);
  do {
    std::uint64_t left = x >> half, right = x & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const auto drawn = kernels::philox_block(seed, epoch, round << 48 | right);
      left = std::exchange(right, (left ^ drawn[0]) & mask);
    }
    x = left << half | right;
  } while (x >= static_cast<std::uint64_t>(count));
  return static_cast<std::int64_t>(x);
}

}  // namespace

TokenFile::TokenFile(std::string path) : path_(std::move(path)) {
  const Mapped file = map_file(path_);
  const std::optional<ArrayHeader> header =
      array_header(std::string_view(file.bytes.get(), file.size));
  CS_REQUIRE(header, path_,
             ": is no array of token ids; numpy.save(path, ids.astype(numpy.uint32)),",
             " of one dimension, writes one");
  CS_REQUIRE(header->count > 0, path_, ": has no token ids");
  const std::size_t width = header->wide ? sizeof(std::uint32_t) : sizeof(std::uint16_t);
  const std::size_t held = file.size - header->data_begin;
  CS_REQUIRE(held % width == 0 && held / width == static_cast<std::uint64_t>(header->count), path_,
             ": has ", held, " bytes of ids, not ", header->count, " ids of ", width,
             " bytes; it was cut off, or changed");
  CS_REQUIRE(header->data_begin % width == 0, path_, ": its ids begin at byte ", header->data_begin,
             ", which is no multiple of ", width);
  wide_ = header->wide;
  size_ = header->count;
  ids_ = std::shared_ptr<const void>(file.bytes, file.bytes.get() + header->data_begin);
}

TokenFile::TokenFile(const std::vector<std::int64_t>& ids, std::string name)
    : path_(std::move(name)), size_(static_cast<std::int64_t>(ids.size())) {
  CS_REQUIRE(!ids.empty(), path_, ": has no token ids");
  const auto own = std::make_shared<std::vector<std::uint32_t>>();
  own->reserve(ids.size());
  for (const std::int64_t id : ids) {
    CS_REQUIRE(std::in_range<std::uint32_t>(id), path_, ": token id ", id, " at ", own->size(),
               " is not in [0, 2^32)");
    own->push_back(static_cast<std::uint32_t>(id));
  }
  ids_ = std::shared_ptr<const void>(own, own->data());
}

void TokenFile::save(const std::string& path) const {
  std::int64_t largest = 0;
  for (std::int64_t i = 0; i < size_; ++i) largest = std::max(largest, (*this)[i]);
  const bool wide = largest > std::numeric_limits<std::uint16_t>::max();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  CS_REQUIRE(out, path, ": cannot be written");
  out << header_text(wide, size_);
  for (std::int64_t i = 0; i < size_; ++i) {
    const auto id = static_cast<std::uint32_t>((*this)[i]);
    out.write(reinterpret_cast<const char*>(&id), wide ? sizeof id : sizeof(std::uint16_t));
  }
  out.close();
  if (!out) fail(ErrorKind::DeviceFailed, str_cat(path, ": could not be written"));
}

std::int64_t TokenFile::operator[](std::int64_t at) const {
  return wide_ ? std::int64_t{static_cast<const std::uint32_t*>(ids_.get())[at]}
               : std::int64_t{static_cast<const std::uint16_t*>(ids_.get())[at]};
}

TokenBatches::TokenBatches(TokenFile file, TokenBatchesOptions options)
    : file_(std::move(file)), options_(options), windows_(0) {
  CS_REQUIRE(options.batch >= 1 && options.seq >= 1, "TokenBatches: batch ", options.batch,
             " and seq ", options.seq, " must be at least 1");
  CS_REQUIRE(file_.size() > options.seq, file_.path(), ": its ", file_.size(),
             " token ids hold no window of seq ", options.seq,
             " + 1; take a longer text, or a smaller seq");
  windows_ = (file_.size() - 1) / options.seq;
  for (std::int64_t i = 0; options.vocab > 0 && i < file_.size(); ++i)
    CS_REQUIRE(file_[i] < options.vocab, file_.path(), ": token id ", file_[i], " at ", i,
               " is not below the vocabulary's ", options.vocab);
}

std::int64_t TokenBatches::window_begin(std::int64_t number) const {
  constexpr std::uint64_t kOffset =
      ~std::uint64_t{0};  // a counter that no round of a permutation has
  const auto epoch = static_cast<std::uint64_t>(number / windows_);
  const std::int64_t left = (file_.size() - 1) % options_.seq;
  const auto drawn = kernels::philox_block(options_.seed, epoch, kOffset);
  const std::int64_t offset = std::int64_t{drawn[0]} % (left + 1);
  return offset + options_.seq * permuted(options_.seed, epoch, number % windows_, windows_);
}

Tensor TokenBatches::batch(std::int64_t step, const DeviceMesh& replicas) const {
  World* const world = World::current();
  CS_REQUIRE(world != nullptr, "TokenBatches: called outside of a rank's program");
  CS_REQUIRE(step >= 0, "TokenBatches: step ", step, " is negative");
  CS_REQUIRE(!replicas.defined() || replicas.ndim() == 1, "TokenBatches: ", replicas,
             " has not one dimension; give the data-parallel one, as mesh[\"dp\"]");
  const std::int64_t parts = replicas.defined() ? replicas.size() : 1;
  const std::int64_t part = replicas.defined() ? replicas.local_rank() : 0;
  CS_REQUIRE(options_.batch % parts == 0, "TokenBatches: a batch of ", options_.batch,
             " rows has no even parts for ", parts, " replicas");
  const std::int64_t rows = options_.batch / parts, width = options_.seq + 1;
  std::vector<std::int64_t> ids;
  ids.reserve(static_cast<std::size_t>(rows * width));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t begin = window_begin(step * options_.batch + part * rows + row);
    for (std::int64_t i = 0; i < width; ++i) ids.push_back(file_[begin + i]);
  }
  const Tensor made = Tensor::empty(world->device(), Shape{rows, width}, DType::I64);
  world->device()->upload(made.data(), ids.data(), ids.size() * sizeof ids[0]);
  return made;
}

}  // namespace coshard
