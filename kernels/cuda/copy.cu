// Copies between views, with conversion, and fills.
#include "kernels/cuda/strided.h"

namespace coshard::kernels::cuda {
namespace {

// As the reference converts: through double to floating types, to bool by comparison with 0.
template <class To, class From>
CS_BODY To converted(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (is_short_float<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (is_short_float<From>) {
    return static_cast<To>(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
struct CopyKernel : PerElement {
  StridedIndex<2> index;
  To* to;
  const From* from;
  CS_BODY void operator()(Block& block) const {
    for (std::int64_t i = block.grid_thread(); i < index.count; i += block.grid_threads()) {
      std::int64_t at[2];
      index.offsets(i, at);
      to[at[0]] = converted<To>(from[at[1]]);
    }
  }
};

template <class T>
struct FillKernel : PerElement {
  T* data;
  T value;
  std::int64_t count;
  CS_BODY void operator()(Block& block) const {
    for (std::int64_t i = block.grid_thread(); i < count; i += block.grid_threads())
      data[i] = value;
  }
};

}  // namespace

void run(CudaDevice& device, const Copy& args) {
  with_any(args.to.dtype, [&](auto to) {
    with_any(args.from.dtype, [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      CopyKernel<To, From> kernel{};
      kernel.index = strided_index<2>({&args.to, &args.from});
      kernel.to = as<To>(args.to.data);
      kernel.from = as<From>(args.from.data);
      launch_elements(device, "copy", kernel, kernel.index.count);
    });
  });
}

void run(CudaDevice& device, const Fill& args) {
  with_any(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    FillKernel<T> kernel{};
    kernel.data = as<T>(args.data);
    kernel.value = static_cast<T>(args.value);
    kernel.count = args.count;
    launch_elements(device, "fill", kernel, args.count);
  });
}

}  // namespace coshard::kernels::cuda
