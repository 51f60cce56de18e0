#include "tools/conform/check.h"

#include <cmath>

#include "tools/conform/modules.h"

namespace coshard::conform {
namespace {

struct Tolerance {
  double relative, absolute;
};

std::string index_text(std::int64_t at, const Shape& shape) {
  Shape index = shape;
  for (std::size_t d = shape.size(); d-- > 0; at /= shape[d]) index[d] = at % shape[d];
  return str_cat(index);
}

bool equal(double got, double want, const Tolerance& tolerance) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  return std::abs(got - want) <= tolerance.absolute + tolerance.relative * std::abs(want);
}

// The first difference; "" if there is none.
std::string difference(DType dtype, const Full& got, const CaseTensor& want,
                       const Tolerance& tolerance) {
  if (!(got.shape == want.shape)) return str_cat("shape ", got.shape, ", want ", want.shape);
  if (is_floating(want.dtype) ? dtype != want.dtype : is_floating(dtype))
    return str_cat("dtype ", dtype, ", want ", want.dtype);
  const Tolerance used = is_floating(want.dtype) ? tolerance : Tolerance{0, 0};
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (!equal(got.values[i], want.value(at), used)) {
      std::ostringstream text;
      text.precision(9);
      text << "element " << index_text(at, want.shape) << ": got " << got.values[i] << ", want "
           << want.value(at);
      return text.str();
    }
  }
  return "";
}

std::string placements_failure(const Snapshot& own, const Json& wanted) {
  if (!own.distributed) return str_cat(own.text, " is a local tensor, want ", wanted.dump());
  const Layout want = layout_of(wanted);
  return own.layout == want ? "" : str_cat("layout ", own.layout, ", want ", want);
}

std::string tensor_failure(const Case& c, const Json& check, const std::vector<Snapshot>& all,
                           int rank) {
  const Snapshot& own = all[static_cast<std::size_t>(rank)];
  if (!own.defined) return "is missing";
  const Json& tol = c.spec.at("tol");
  const Tolerance tolerance{tol.at(0), tol.at(1)};
  if (check.contains("placements")) return placements_failure(own, check.at("placements"));
  if (check.contains("full"))
    return difference(own.dtype, gather(all, rank),
                      c.tensors->at(check.at("full").get<std::string>()), tolerance);
  if (!check.contains("local")) return str_cat("unknown check ", check.dump());
  const std::string key = check.at("local").at(static_cast<std::size_t>(rank));
  return difference(own.dtype, {own.local_shape, own.values}, c.tensors->at(key), tolerance);
}

// Counts must not exceed those given; an all_to_all may replace an all_gather, a reduce_scatter an
// all_reduce.
std::string collectives_failure(const Json& check, const RankResult& rank) {
  StepCounter::Counts used;
  const std::size_t first = check.at("steps").at(0), last = check.at("steps").at(1);
  for (const auto& [step, counts] : rank.steps)
    if (step >= first && step <= last)
      for (const auto& [kind, count] : counts) used[kind] += count;
  std::map<std::string, int, std::less<>> left;
  for (const auto& [kind, count] : check.at("collectives").items()) left[kind] = count;
  const auto spend = [&](const std::string& kind, int& count) {
    const int taken = std::min(count, left[kind]);
    left[kind] -= taken;
    count -= taken;
  };
  std::string text;
  for (const auto& [kind, count] : used)
    text += str_cat(text.empty() ? "" : ", ", kind, " ", count);
  for (auto& [kind, count] : used) spend(kind, count);
  if (used.contains("all_to_all")) spend("all_gather", used["all_to_all"]);
  if (used.contains("reduce_scatter")) spend("all_reduce", used["reduce_scatter"]);
  for (const auto& [kind, count] : used)
    if (count > 0)
      return str_cat("steps ", first, "-", last, " issued {", text, "}, at most ",
                     check.at("collectives").dump());
  return "";
}

std::string subject_text(const Json& check) {
  for (const char* field : {"value", "grad", "param"})
    if (check.contains(field)) return str_cat(field, " ", check.at(field).get<std::string>());
  return "collectives";
}

}  // namespace

Tensor subject_of(const Program& p, const Json& check) {
  if (check.contains("value")) return p.value(check.at("value"));
  if (check.contains("param")) return find_parameter(p, check.at("param"));
  if (check.contains("grad")) return p.value_or_parameter(check.at("grad")).grad();
  return {};
}

std::string failure_of(const Case& c, const std::vector<RankResult>& ranks) {
  const Json& checks = c.spec.at("expect");
  for (std::size_t i = 0; i < checks.size(); ++i) {
    const Json& check = checks[i];
    const std::string subject = subject_text(check);
    std::vector<Snapshot> all;
    for (const RankResult& rank : ranks)
      all.push_back(rank.tensors.contains(i) ? rank.tensors.at(i) : Snapshot());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const std::string failure = subject == "collectives"
                                      ? collectives_failure(check, ranks[r])
                                      : tensor_failure(c, check, all, static_cast<int>(r));
      if (failure.empty()) continue;
      const std::string text = all[r].text.empty() ? "" : " (" + all[r].text + ")";
      return str_cat(subject, text, " on rank ", r, ": ", failure);
    }
  }
  return "";
}

}  // namespace coshard::conform
