// Functions of two elements, strided and broadcast.
#include "kernels/elementwise/binary_switch.h"
#include "kernels/elementwise/scalar_math.h"
#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

// The scalar operand, in the precision of the tensor's arithmetic; in comparisons, rounded to its
// dtype.
template <class T, class Compute>
Compute operand(const Binary& args) {
  if constexpr (std::is_integral_v<T>) return static_cast<Compute>(args.alpha);
  if (is_comparison(args.op)) return static_cast<Compute>(rounded<T>(args.alpha));
  return static_cast<Statistic<T>>(args.alpha);
}

// Integer division by zero is the caller's error.
template <class F, class Compute>
Compute applied(Compute a, Compute b) {
  if constexpr (std::is_integral_v<Compute> && F::kDivides)
    CS_REQUIRE(b != 0, "integer division by zero: ", a, " / 0");
  return elementwise::apply<F>(elementwise::ScalarMath<double>(), a, b);
}

template <class F, class Out, class T, class Compute>
void strided(const Binary& args) {
  auto* out = as<Out>(args.out.data);
  const T* a = as<T>(static_cast<const void*>(args.a.data));
  const auto store = [&](std::int64_t at, Compute value) {
    if constexpr (std::is_integral_v<Out>) {
      out[at] = static_cast<Out>(value);
    } else {
      out[at] = rounded<Out>(value);
    }
  };
  if (!args.b.data) {
    const auto b = operand<T, Compute>(args);
    return walk<2>(args.out, {&args.out, &args.a}, [&](const auto& at) {
      store(at[0], applied<F>(static_cast<Compute>(a[at[1]]), b));
    });
  }
  const T* b = as<T>(static_cast<const void*>(args.b.data));
  const auto alpha = static_cast<Compute>(args.alpha);
  walk<3>(args.out, {&args.out, &args.a, &args.b}, [&](const auto& at) {
    const auto left = static_cast<Compute>(a[at[1]]);
    store(at[0], applied<F>(left, alpha * static_cast<Compute>(b[at[2]])));
  });
}

template <class T, class Compute>
void run_as(const Binary& args) {
  with_function(args.op, [&]<class F>(F) {
    if constexpr (std::is_integral_v<Compute> && !elementwise::TakesTwoIntegers<F>) {
      fail(ErrorKind::Unsupported, str_cat(F::kName, " does not support ", args.a.dtype));
    } else {
      using Out = std::conditional_t<elementwise::Comparison<F>, bool, T>;
      strided<F, Out, T, Compute>(args);
    }
  });
}

}  // namespace

void run(const Binary& args) {
  switch (args.a.dtype) {
    case DType::I64: return run_as<std::int64_t, std::int64_t>(args);
    case DType::I32: return run_as<std::int32_t, std::int32_t>(args);
    case DType::Bool: return run_as<bool, std::int32_t>(args);
    default:
      return with_floating(args.a.dtype, [&](auto tag) { run_as<decltype(tag), double>(args); });
  }
}

}  // namespace coshard::kernels::reference
