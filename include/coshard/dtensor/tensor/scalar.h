#pragma once
// Numbers as operands beside a tensor, and as its values.
#include <concepts>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <coshard/runtime/dtype.h>

#pragma GCC visibility push(default)
namespace coshard {

template <class T>
concept Number = std::integral<T> || std::floating_point<T>;

// An operand. Remembers its category (bool, integer, floating-point): i64 + 2 is i64, i64 + 2.0 is
// f32. Exact for integers up to 2^53.
struct Scalar {
  double value = 0;
  DType dtype = DType::F32;  // Bool, I64 or F32: its category

  constexpr Scalar() = default;
  // Implicit, as in arithmetic.
  template <Number T>
  constexpr Scalar(T number)  // NOLINT
      : value(static_cast<double>(number)), dtype(category<T>()) {}

 private:
  template <class T>
  static constexpr DType category() {
    if (std::same_as<T, bool>) return DType::Bool;
    return std::integral<T> ? DType::I64 : DType::F32;
  }
};

// Values given as a list, row-major: {1, 2.5}, a span, a vector or an array of numbers.
class ValueList {
 public:
  template <Number... Values>
  ValueList(Values... values)  // NOLINT: implicit; no initializer_list, as in inline_vector.h
      : held_{static_cast<double>(values)...}, values_(held_) {}
  template <class Range>
  requires Number<std::remove_cvref_t<decltype(*std::begin(std::declval<const Range&>()))>>
  ValueList(const Range& values) {  // NOLINT: implicit
    if constexpr (std::convertible_to<const Range&, std::span<const double>>) {
      values_ = values;
    } else {
      held_.assign(std::begin(values), std::end(values));
      values_ = held_;
    }
  }
  ValueList(const ValueList&) = delete;
  ValueList& operator=(const ValueList&) = delete;
  operator std::span<const double>() const { return values_; }  // NOLINT

 private:
  std::vector<double> held_;  // what is not a span of doubles
  std::span<const double> values_;
};

}  // namespace coshard
#pragma GCC visibility pop
