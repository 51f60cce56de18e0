#include <coshard/runtime/dtype.h>

#include <array>
#include <utility>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {
constexpr std::array<std::pair<std::string_view, DType>, 9> kNames{{
    {"f32", DType::F32},
    {"f64", DType::F64},
    {"bf16", DType::BF16},
    {"f16", DType::F16},
    {"i64", DType::I64},
    {"i32", DType::I32},
    {"bool", DType::Bool},
    {"f8e4m3", DType::F8E4M3},
    {"f8e5m2", DType::F8E5M2},
}};
}  // namespace

void fail_without_arithmetic(DType dtype) {
  fail(ErrorKind::Unsupported,
       str_cat("nothing computes with ", dtype, ": cast it first, with to(x, DType::BF16)"));
}

std::string_view to_string(DType dtype) {
  for (const auto& [name, value] : kNames)
    if (value == dtype) return name;
  return "?";
}

DType parse_dtype(std::string_view text) {
  for (const auto& [name, value] : kNames)
    if (name == text) return value;
  fail(ErrorKind::BadInput,
       str_cat("unknown dtype '", text,
               "'; expected f32, f64, bf16, f16, i64, i32, bool, f8e4m3 or f8e5m2"));
}

}  // namespace coshard
