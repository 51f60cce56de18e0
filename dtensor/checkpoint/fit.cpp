#include "dtensor/checkpoint/fit.h"

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

void Complaints::add_type(std::string_view name, std::string_view there, DType here,
                          bool castable) {
  add("'", shortened(name), "' is ", there, " there and ", here, " here",
      castable ? ", which Cast::Any allows" : "");
}

void Complaints::add_names(const LoadReport& report) {
  for (const std::string& name : report.missing) add("lacks '", shortened(name), "'");
  for (const std::string& name : report.unexpected)
    add("has '", shortened(name), "', which is not in the state");
}

void Complaints::require_none(std::string_view who) const {
  CS_REQUIRE(count_ == 0, who, ": ", text_,
             count_ > kNamed ? str_cat("; and ", count_ - kNamed, " more") : std::string());
}

}  // namespace coshard
