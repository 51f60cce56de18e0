#include <vector>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

std::int64_t id_at(DType dtype, const void* ids, std::int64_t i) {
  return dtype == DType::I64 ? as<std::int64_t>(ids)[i] : as<std::int32_t>(ids)[i];
}

}  // namespace

void run(const Embedding& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t i = 0; i < args.count; ++i) {
      const std::int64_t row = id_at(args.ids_dtype, args.ids, i) - args.first;
      const bool here = row >= 0 && row < args.rows;
      for (std::int64_t d = 0; d < args.dim; ++d) {
        as<T>(args.out)[i * args.dim + d] = here ? as<T>(args.weight)[row * args.dim + d] : T(0.0F);
      }
    }
  });
}

void run(const EmbeddingGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    std::vector<double> sums(args.rows * args.dim);
    for (std::int64_t i = 0; i < args.count; ++i) {
      const std::int64_t id = id_at(args.ids_dtype, args.ids, i);
      const std::int64_t row = id - args.first;
      if (row < 0 || row >= args.rows || (args.padding >= 0 && id == args.padding)) continue;
      for (std::int64_t d = 0; d < args.dim; ++d) {
        sums[row * args.dim + d] += get(as<T>(args.dout), i * args.dim + d);
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) as<T>(args.dweight)[i] = rounded<T>(sums[i]);
  });
}

}  // namespace coshard::kernels::reference
