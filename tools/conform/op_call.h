#pragma once
// Operators by their names in FORMAT.md: the arguments of a table's functions, and the tables.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <coshard/dtensor/ops/ops.h>
#include "tools/conform/case_file.h"
#include "tools/conform/program.h"

namespace coshard::conform {

// One `op` step: inputs (undefined where null or missing) and keyword arguments.
class OpCall {
 public:
  OpCall(std::vector<Tensor> in, const Json& attrs) : in_(std::move(in)), attrs_(attrs) {}

  std::size_t size() const { return in_.size(); }
  const std::vector<Tensor>& inputs() const { return in_; }
  // Input i; undefined when it is missing.
  Tensor operator[](std::size_t i) const { return i < in_.size() ? in_[i] : Tensor(); }
  // Whether the attribute is there and not null.
  bool has(const char* name) const { return attrs_.contains(name) && !attrs_.at(name).is_null(); }
  // "inf" and "-inf" are numbers; a boolean is 0 or 1.
  double number(const char* name) const;
  double number(const char* name, double otherwise) const;
  std::optional<double> maybe_number(const char* name) const;
  // A number with its category: 2 is an integer, 2.0 is not.
  Scalar scalar(const char* name) const;
  std::int64_t integer(const char* name) const { return static_cast<std::int64_t>(number(name)); }
  std::int64_t integer(const char* name, std::int64_t otherwise) const;
  int dim(const char* name = "dim", int otherwise = 0) const;
  std::optional<int> maybe_dim(const char* name) const;
  bool flag(const char* name, bool otherwise) const;
  std::string text(const char* name, const char* otherwise = "") const;
  // A list, or one number as a list of one.
  Shape list(const char* name) const;
  const Json& attrs() const { return attrs_; }

 private:
  std::vector<Tensor> in_;
  const Json& attrs_;
};

Reduction parse_reduction(std::string_view text);

using OpFunction = std::function<std::vector<Tensor>(const OpCall&)>;
using OpTable = std::map<std::string, OpFunction, std::less<>>;

const OpTable& matmul_table();
const OpTable& pointwise_table();
const OpTable& reduce_table();
const OpTable& view_table();

// Error{Unsupported} for a name that no table has.
std::vector<Tensor> call_operator(const std::string& name, const OpCall& call);

}  // namespace coshard::conform
