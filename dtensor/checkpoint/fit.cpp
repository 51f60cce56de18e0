#include "dtensor/checkpoint/fit.h"

#include <algorithm>

#include "dtensor/checkpoint/strict_json.h"

namespace coshard {
namespace {

bool widens(DType from, DType to) {
  switch (to) {
    case DType::F64: return from == DType::F32 || from == DType::F16 || from == DType::BF16;
    case DType::F32: return from == DType::F16 || from == DType::BF16;
    case DType::I64: return from == DType::I32;
    default: return false;
  }
}

bool is_integer(DType type) { return type == DType::I32 || type == DType::I64; }

}  // namespace

bool may_be_cast(DType from, DType to, Cast cast) {
  if (from == to) return true;
  if (cast == Cast::Same) return false;
  if (widens(from, to)) return true;
  return cast == Cast::Any &&
         ((is_floating(from) && is_floating(to)) || (is_integer(from) && is_integer(to)));
}

std::string first_of(const std::vector<std::string>& names) {
  constexpr std::size_t kFirst = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kFirst); ++i)
    text += str_cat(i == 0 ? "'" : ", '", shortened(names[i]), "'");
  return names.size() <= kFirst ? text : str_cat(text, " and ", names.size() - kFirst, " more");
}

void Complaints::add_type(std::string_view name, std::string_view there, DType here,
                          bool castable) {
  add("'", shortened(name), "' is ", there, " there and ", here, " here",
      castable ? ", which Cast::Any allows" : "");
}

void Complaints::add_names(const LoadReport& report) {
  if (!report.missing.empty()) add("lacks ", first_of(report.missing));
  if (!report.unexpected.empty())
    add("has ", first_of(report.unexpected), ", which the state does not have");
}

void Complaints::require_none(std::string_view who) const {
  CS_REQUIRE(count_ == 0, who, ": ", text_,
             count_ > kNamed ? str_cat("; and ", count_ - kNamed, " more") : std::string());
}

}  // namespace coshard
