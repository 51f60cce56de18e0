#pragma once
// From a BinaryOp to its function.
#include "kernels/elementwise/binary.h"

namespace coshard::kernels {

#define COSHARD_SWITCH_BINARY(op, body)          \
  switch (op) { COSHARD_BINARY_FUNCTIONS(body) } \
  __builtin_unreachable()

template <class Body>
CS_ELEMENT void with_function(BinaryOp op, const Body& body) {
#define X(Name) \
  case BinaryOp::Name: return body(elementwise::Name());
  COSHARD_SWITCH_BINARY(op, X);
#undef X
}

constexpr std::string_view to_string(BinaryOp op) {
#define X(Name) \
  case BinaryOp::Name: return elementwise::Name::kName;
  COSHARD_SWITCH_BINARY(op, X);
#undef X
}
constexpr bool takes_integers(BinaryOp op) {
#define X(Name) \
  case BinaryOp::Name: return elementwise::TakesTwoIntegers<elementwise::Name>;
  COSHARD_SWITCH_BINARY(op, X);
#undef X
}
constexpr bool has_vector_value(BinaryOp op) {
#define X(Name) \
  case BinaryOp::Name: return elementwise::Name::kVectorValue;
  COSHARD_SWITCH_BINARY(op, X);
#undef X
}
constexpr bool divides(BinaryOp op) {
#define X(Name) \
  case BinaryOp::Name: return elementwise::Name::kDivides;
  COSHARD_SWITCH_BINARY(op, X);
#undef X
}
constexpr bool is_comparison(BinaryOp op) { return op >= BinaryOp::Lt; }

}  // namespace coshard::kernels
