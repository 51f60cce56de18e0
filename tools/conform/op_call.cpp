#include "tools/conform/op_call.h"

#include <limits>

namespace coshard::conform {
namespace {

double number_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_string()) return value.get<double>();
  const auto word = value.get<std::string>();
  CS_REQUIRE(word == "inf" || word == "-inf" || word == "nan", "attribute '", word,
             "' is no number");
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return word == "inf" ? infinity : -infinity;
}

}  // namespace

double OpCall::number(const char* name) const {
  CS_REQUIRE(has(name), "attribute ", name, " is missing");
  return number_of(attrs_.at(name));
}
double OpCall::number(const char* name, double otherwise) const {
  return has(name) ? number(name) : otherwise;
}
Scalar OpCall::scalar(const char* name) const {
  const double value = number(name);
  const Json& given = attrs_.at(name);
  if (given.is_boolean()) return given.get<bool>();
  return given.is_number_integer() ? Scalar(static_cast<std::int64_t>(value)) : Scalar(value);
}
std::optional<double> OpCall::maybe_number(const char* name) const {
  return has(name) ? std::optional(number(name)) : std::nullopt;
}
std::int64_t OpCall::integer(const char* name, std::int64_t otherwise) const {
  return has(name) ? integer(name) : otherwise;
}
int OpCall::dim(const char* name, int otherwise) const {
  return static_cast<int>(integer(name, otherwise));
}
std::optional<int> OpCall::maybe_dim(const char* name) const {
  return has(name) ? std::optional(static_cast<int>(integer(name))) : std::nullopt;
}
bool OpCall::flag(const char* name, bool otherwise) const {
  return has(name) ? attrs_.at(name).get<bool>() : otherwise;
}
std::string OpCall::text(const char* name, const char* otherwise) const {
  return has(name) ? attrs_.at(name).get<std::string>() : otherwise;
}
Shape OpCall::list(const char* name) const {
  CS_REQUIRE(has(name), "attribute ", name, " is missing");
  const Json& value = attrs_.at(name);
  return value.is_array() ? shape_of(value) : Shape{value.get<std::int64_t>()};
}

Reduction parse_reduction(std::string_view text) {
  if (text == "none") return Reduction::None;
  if (text == "sum") return Reduction::Sum;
  CS_REQUIRE(text == "mean", "unknown reduction '", text, "'");
  return Reduction::Mean;
}

std::vector<Tensor> call_operator(const std::string& name, const OpCall& call) {
  for (const OpTable* table :
       {&pointwise_table(), &matmul_table(), &reduce_table(), &view_table()}) {
    const auto found = table->find(name);
    if (found != table->end()) return found->second(call);
  }
  fail(ErrorKind::Unsupported, str_cat("unknown operator '", name, "'"));
}

}  // namespace coshard::conform
