#include <coshard/dtensor/mesh/placement.h>

#include <array>
#include <charconv>
#include <limits>

#include <coshard/runtime/error.h>

namespace coshard {

std::ostream& operator<<(std::ostream& out, const Placement& placement) {
  switch (placement.kind) {
    case PlacementKind::Replicate: return out << 'R';
    case PlacementKind::Shard: return out << "S(" << std::to_string(placement.dim) << ')';
    case PlacementKind::StridedShard:
      out << str_cat("_S(", placement.dim, ',', placement.split);
      if (placement.unit != 1) out << str_cat(',', placement.unit);
      return out << ')';
    case PlacementKind::Partial: return out << "P(" << to_string(placement.reduce) << ')';
  }
  return out;
}

void refuse_shard(int dim, std::int64_t split, std::int64_t unit) {
  if (split < 1)
    fail(ErrorKind::BadInput,
         str_cat("StridedShard(", dim, ", ", split, "): split must be at least 1"));
  if (unit < 1 || unit > std::numeric_limits<std::int32_t>::max())
    fail(ErrorKind::BadInput, str_cat("StridedShard(", dim, ", ", split, ", ", unit,
                                      "): unit must be at least 1, and below 2^31"));
  fail(ErrorKind::BadInput, str_cat("Shard(", dim, "): no tensor has that dimension"));
}

Placement parse_placement(std::string_view text) {
  const auto bad = [&]() {
    fail(ErrorKind::BadInput,
         str_cat("unknown placement '", text,
                 "'; expected R, S(d), _S(d,f), _S(d,f,u), P(sum|avg|min|max|product)"));
  };
  if (text == "R") return Replicate();
  const auto open = text.find('(');
  if (open == text.npos || text.back() != ')') bad();
  const auto head = text.substr(0, open);
  const auto body = text.substr(open + 1, text.size() - open - 2);
  if (head == "P") {
    for (Reduce r : {Reduce::Sum, Reduce::Avg, Reduce::Min, Reduce::Max, Reduce::Product})
      if (body == to_string(r)) return Partial(r);
    bad();
  }
  // The numbers between commas.
  std::array<int, 3> numbers{0, 1, 1};
  std::size_t count = 0;
  const char *at = body.data(), *const last = body.data() + body.size();
  for (bool more = true; more; ++count) {
    if (count == numbers.size()) bad();
    const auto [end, status] = std::from_chars(at, last, numbers[count]);
    if (status != std::errc{} || (count > 0 && numbers[count] < 1)) bad();
    more = end != last && *end == ',';
    if (!more && end != last) bad();
    at = end + 1;
  }
  const auto [dim, split, unit] = numbers;
  if (head == "S" && count == 1) return Shard(dim);
  if (head != "_S" || count < 2) bad();
  return StridedShard(dim, split, unit);
}

}  // namespace coshard
