#include <coshard/dtensor/tensor/promotion.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coshard {
namespace {

int rank_of(DType dtype) {
  switch (dtype) {
    case DType::Bool: return 0;
    case DType::I32: return 1;
    case DType::I64: return 2;
    case DType::BF16:
    case DType::F16: return 3;
    case DType::F32: return 4;
    case DType::F64: return 5;
    case DType::F8E4M3:
    case DType::F8E5M2: break;
  }
  return 0;
}

enum class Category { Bool, Integer, Floating };
Category category_of(DType dtype) {
  if (dtype == DType::Bool) return Category::Bool;
  return is_floating(dtype) || is_float8(dtype) ? Category::Floating : Category::Integer;
}

double largest(DType dtype) {
  switch (dtype) {
    case DType::Bool: return 1;
    case DType::I32: return 0x1p31 - 1;
    case DType::I64: return 0x1p63 - 1024;  // the last double below
    case DType::BF16: return 0x1.fep127;
    case DType::F16: return 65504;
    case DType::F32: return std::numeric_limits<float>::max();
    case DType::F64: return std::numeric_limits<double>::max();
    case DType::F8E4M3: return 448;
    case DType::F8E5M2: return 57344;
  }
  return 0;
}

// `weaker` counts only if its category is the higher one.
DType with_weaker(DType stronger, DType weaker) {
  return category_of(weaker) > category_of(stronger) ? promoted(stronger, weaker) : stronger;
}

}  // namespace

DType promoted(DType a, DType b) {
  if (a != b && (is_float8(a) || is_float8(b))) fail_without_arithmetic(is_float8(a) ? a : b);
  if (a != b && rank_of(a) == rank_of(b)) return DType::F32;  // neither bf16 nor f16 holds both
  return rank_of(a) > rank_of(b) ? a : b;
}

DType result_type(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return a.dtype();
  if ((a.ndim() == 0) == (b.ndim() == 0)) return promoted(a.dtype(), b.dtype());
  return a.ndim() == 0 ? with_weaker(b.dtype(), a.dtype()) : with_weaker(a.dtype(), b.dtype());
}

bool can_store(DType result, DType destination) {
  return category_of(result) <= category_of(destination);
}

void require_fits(double value, DType dtype, const char* who) {
  if (dtype == DType::Bool || (category_of(dtype) == Category::Floating && !std::isfinite(value)))
    return;
  const double most = largest(dtype);
  const double least = dtype == DType::I32 ? -0x1p31 : dtype == DType::I64 ? -0x1p63 : -most;
  CS_REQUIRE(least <= value && value <= most, who, ": ", value, " does not fit ", dtype);
}

DType floating_type(DType dtype) {
  if (is_float8(dtype)) fail_without_arithmetic(dtype);
  return is_floating(dtype) ? dtype : DType::F32;
}

DType result_type(const Tensor& a, const Scalar& b) { return with_weaker(a.dtype(), b.dtype); }

}  // namespace coshard
