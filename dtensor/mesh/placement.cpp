#include <coshard/dtensor/mesh/placement.h>

#include <array>
#include <charconv>

#include <coshard/runtime/error.h>

namespace coshard {

std::ostream& operator<<(std::ostream& out, const Placement& placement) {
  switch (placement.kind) {
    case PlacementKind::Replicate: return out << 'R';
    case PlacementKind::Shard: return out << "S(" << std::to_string(placement.dim) << ')';
    case PlacementKind::StridedShard:
      return out << str_cat("_S(", placement.dim, ',', placement.split, ')');
    case PlacementKind::Partial: return out << "P(" << to_string(placement.reduce) << ')';
  }
  return out;
}

void refuse_shard(int dim, int split) {
  if (split < 1)
    fail(ErrorKind::BadInput,
         str_cat("StridedShard(", dim, ", ", split, "): split must be at least 1"));
  fail(ErrorKind::BadInput, str_cat("Shard(", dim, "): no tensor has that dimension"));
}

Placement parse_placement(std::string_view text) {
  const auto bad = [&]() {
    fail(ErrorKind::BadInput, str_cat("unknown placement '", text,
                                      "'; expected R, S(d), _S(d,f), P(sum|avg|min|max|product)"));
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
  int dim = 0, split = 1;
  auto [end, status] = std::from_chars(body.data(), body.data() + body.size(), dim);
  if (status != std::errc{}) bad();
  if (head == "_S") {
    if (end == body.data() + body.size() || *end != ',') bad();
    auto [last, ok] = std::from_chars(end + 1, body.data() + body.size(), split);
    if (ok != std::errc{} || split < 1) bad();
    end = last;
  } else if (head != "S") {
    bad();
  }
  if (end != body.data() + body.size()) bad();
  return head == "S" ? Shard(dim) : StridedShard(dim, split);
}

}  // namespace coshard
