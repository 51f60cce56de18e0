#include "dtensor/mesh/calibration.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

constexpr std::string_view kTitle = "coshard calibration 2\n";

// Reads numbers and lines from the front of a text; `ok` is false after a mismatch.
struct Reader {
  std::string_view rest;
  bool ok = true;

  std::string_view line() {
    const std::size_t end = rest.find('\n');
    if (end == rest.npos) return ok = false, std::string_view();
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    return line;
  }
  std::int64_t number() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    const auto length = static_cast<std::size_t>(end - rest.data());
    ok = ok && error == std::errc() && length < rest.size() && value >= 0;
    if (ok) rest.remove_prefix(length + 1);  // and the blank or line end behind it
    return ok ? value : 0;
  }
};

constexpr std::int64_t kMostLines = 64;

}  // namespace

std::uint64_t text_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return std::max<std::uint64_t>((hash ^ hash >> 52) & ((std::uint64_t{1} << 52) - 1), 1);
}

Link Calibration::Times::link() const {
  if (large_bytes == 0) return {};
  const double moving =
      time_of_moving(static_cast<double>(large_ns), static_cast<double>(small_ns));
  const double rate = static_cast<double>(large_bytes) / std::max(moving, 1.0);  // per ns
  const double more = static_cast<double>(middle_ns) - static_cast<double>(middle_bytes) / rate;
  const double latency = std::max(static_cast<double>(small_ns), std::floor(more));
  return {latency * 1e-3, rate * 1e3, static_cast<double>(contention_x1024) / 1024};
}

std::vector<Link> Calibration::costs() const {
  std::vector<Link> all;
  for (const Times& times : links) all.push_back(times.link());
  return all;
}

const GemmTable* Calibration::table(DType dtype) const {
  const auto found = std::ranges::find(products, dtype, &GemmTable::dtype);
  return found == products.end() ? nullptr : &*found;
}

std::string Calibration::text() const {
  std::string out =
      str_cat(kTitle, about, '\n', links.size(), ' ', rounds.size(), ' ', products.size(), '\n');
  for (const auto* list : {&links, &rounds})
    for (const Times& t : *list)
      out += str_cat(t.small_ns, ' ', t.middle_ns, ' ', t.large_ns, ' ', t.middle_bytes, ' ',
                     t.large_bytes, ' ', t.contention_x1024, '\n');
  for (const GemmTable& t : products) {
    out += str_cat(static_cast<int>(t.dtype), ' ', t.scale, ' ', t.multiprocessors);
    for (const std::int64_t ns : t.ns) out += str_cat(' ', ns);
    out += '\n';
  }
  return out + str_cat(text_hash(out), '\n');
}

std::optional<Calibration> Calibration::parse(std::string_view text) {
  if (!text.starts_with(kTitle)) return std::nullopt;
  Reader reader{text.substr(kTitle.size())};
  Calibration c;
  c.about = reader.line();
  const std::int64_t links = reader.number(), rounds = reader.number();
  const std::int64_t products = reader.number();
  if (std::max({links, rounds, products}) > kMostLines) return std::nullopt;
  for (std::int64_t i = 0; i < links + rounds; ++i) {
    Times& t = (i < links ? c.links : c.rounds).emplace_back();
    for (std::int64_t* value : {&t.small_ns, &t.middle_ns, &t.large_ns, &t.middle_bytes,
                                &t.large_bytes, &t.contention_x1024})
      *value = reader.number();
  }
  for (std::int64_t i = 0; i < products; ++i) {
    GemmTable& t = c.products.emplace_back();
    t.dtype = static_cast<DType>(reader.number());
    t.scale = reader.number(), t.multiprocessors = reader.number();
    for (std::int64_t& ns : t.ns) ns = reader.number();
    reader.ok = reader.ok && t.scale > 0;
  }
  const std::size_t before = text.size() - reader.rest.size();
  const std::int64_t hash = reader.number();
  if (!reader.ok || !reader.rest.empty() ||
      static_cast<std::uint64_t>(hash) != text_hash(text.substr(0, before)))
    return std::nullopt;
  return c;
}

}  // namespace coshard
