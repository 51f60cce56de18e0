#pragma once
// From a UnaryOp to its function.
#include "kernels/elementwise/unary.h"

namespace coshard::kernels {

// The result of `body(function)` for the function that `op` names.
#define COSHARD_SWITCH_UNARY(op, body)          \
  switch (op) { COSHARD_UNARY_FUNCTIONS(body) } \
  __builtin_unreachable()

template <class Body>
CS_ELEMENT void with_function(UnaryOp op, const Body& body) {
#define X(Name) \
  case UnaryOp::Name: return body(elementwise::Name());
  COSHARD_SWITCH_UNARY(op, X);
#undef X
}

constexpr std::string_view to_string(UnaryOp op) {
#define X(Name) \
  case UnaryOp::Name: return elementwise::Name::kName;
  COSHARD_SWITCH_UNARY(op, X);
#undef X
}
constexpr bool takes_integers(UnaryOp op) {
#define X(Name) \
  case UnaryOp::Name: return elementwise::TakesIntegers<elementwise::Name>;
  COSHARD_SWITCH_UNARY(op, X);
#undef X
}
constexpr bool has_vector_value(UnaryOp op) {
#define X(Name) \
  case UnaryOp::Name: return elementwise::Name::kVectorValue;
  COSHARD_SWITCH_UNARY(op, X);
#undef X
}
constexpr bool has_vector_derivative(UnaryOp op) {
#define X(Name) \
  case UnaryOp::Name: return elementwise::Name::kVectorDerivative;
  COSHARD_SWITCH_UNARY(op, X);
#undef X
}
constexpr bool is_from_result(UnaryOp op) {
#define X(Name) \
  case UnaryOp::Name: return elementwise::Name::kFromResult;
  COSHARD_SWITCH_UNARY(op, X);
#undef X
}

}  // namespace coshard::kernels
