#include "kernels/convert.h"
#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {

void run(const Copy& args) {
  const DType to_dtype = args.to.dtype, from_dtype = args.from.dtype;
  if (is_float8(to_dtype) || is_float8(from_dtype))
    return walk<2>(args.to, {&args.to, &args.from}, [&](const auto& at) {
      store_float(to_dtype, args.to.data, at[0], load_float(from_dtype, args.from.data, at[1]));
    });
  with_any(args.to.dtype, [&](auto to_tag) {
    with_any(args.from.dtype, [&](auto from_tag) {
      using To = decltype(to_tag);
      using From = decltype(from_tag);
      auto* to = as<To>(args.to.data);
      const auto* from = as<From>(static_cast<const void*>(args.from.data));
      walk<2>(args.to, {&args.to, &args.from},
              [&](const auto& at) { to[at[0]] = converted<To>(from[at[1]]); });
    });
  });
}

void run(const Fill& args) {
  with_moved(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T value = element_of<T>(args.dtype, args.value);
    for (std::int64_t i = 0; i < args.count; ++i) as<T>(args.data)[i] = value;
  });
}

void run(const Where& args) {
  with_moved(args.out.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T value = element_of<T>(args.out.dtype, args.value);
    const View* whole = &args.out;
    const View* x = args.x.data ? &args.x : whole;
    const View* y = args.y.data ? &args.y : whole;
    const auto* condition = as<bool>(static_cast<const void*>(args.condition.data));
    const auto* xs = as<T>(static_cast<const void*>(args.x.data));
    const auto* ys = as<T>(static_cast<const void*>(args.y.data));
    walk<4>(args.out, {whole, &args.condition, x, y}, [&](const auto& at) {
      const bool first = condition[at[1]];
      const T* from = first ? xs : ys;
      as<T>(args.out.data)[at[0]] = from ? from[first ? at[2] : at[3]] : value;
    });
  });
}

}  // namespace coshard::kernels::reference
