#include <vector>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

// Calls f(offset in `lines`, offset in `other`) for every element of the index, where `lines` is
// the tensor indexed along `dim`.
template <class F>
void each_indexed(const char* who, const View& index, int dim, const View& lines, const View& other,
                  F&& f) {
  View base = lines;
  base.strides[dim] = 0;
  const std::int64_t extent = lines.shape[dim];
  const std::int64_t stride = lines.strides[dim];
  walk<3>(index, {&index, &base, &other}, [&](const auto& at) {
    const std::int64_t i = index.dtype == DType::I64
                               ? as<std::int64_t>(static_cast<const void*>(index.data))[at[0]]
                               : as<std::int32_t>(static_cast<const void*>(index.data))[at[0]];
    if (i < 0 || i >= extent) {
      fail(ErrorKind::BadInput,
           str_cat(who, ": index ", i, " is out of bounds for a dimension of size ", extent));
    }
    f(at[1] + i * stride, at[2]);
  });
}

View row_major_like(const View& view) {
  View plain = view;
  std::int64_t stride = 1;
  for (int d = view.ndim - 1; d >= 0; --d) {
    plain.strides[d] = stride;
    stride *= view.shape[d];
  }
  return plain;
}

// The source elements, or the value that replaces all of them.
template <class T>
struct ScatterSource {
  const T* data;
  T value;
  T operator()(std::int64_t at) const { return data ? data[at] : value; }
};

// Adds in double and rounds once.
template <class T>
void add_indexed(const Scatter& args, const View& src, const ScatterSource<T>& source) {
  const View plain = row_major_like(args.out);
  std::int64_t count = 1;
  for (int d = 0; d < plain.ndim; ++d) count *= plain.shape[d];
  std::vector<double> sums(count);
  T* out = as<T>(args.out.data);
  walk<2>(plain, {&plain, &args.out},
          [&](const auto& at) { sums[at[0]] = get(static_cast<const T*>(out), at[1]); });
  each_indexed(
      "scatter", args.index, args.dim, plain, src,
      [&](std::int64_t to, std::int64_t from) { sums[to] += static_cast<double>(source(from)); });
  walk<2>(plain, {&plain, &args.out},
          [&](const auto& at) { out[at[1]] = rounded<T>(sums[at[0]]); });
}

bool adds_in_double(DType dtype) { return is_floating(dtype); }

}  // namespace

void run(const CheckIndex& args) {
  const auto check = [&](const auto* index) {
    for (std::int64_t i = 0; i < args.count; ++i) {
      const std::int64_t value = index[i];
      if ((value < 0 || value >= args.limit) && value != args.ignore)
        fail(ErrorKind::BadInput, describe(args.kind, value, args.limit));
    }
  };
  args.dtype == DType::I64 ? check(as<std::int64_t>(args.index))
                           : check(as<std::int32_t>(args.index));
}

void run(const Gather& args) {
  with_moved(args.out.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(static_cast<const void*>(args.x.data));
    T* out = as<T>(args.out.data);
    each_indexed("gather", args.index, args.dim, args.x, args.out,
                 [&](std::int64_t from, std::int64_t to) { out[to] = x[from]; });
  });
}

void run(const Scatter& args) {
  if (args.add && is_float8(args.out.dtype)) fail_without_arithmetic(args.out.dtype);
  with_moved(args.out.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T value = element_of<T>(args.out.dtype, args.value);
    const ScatterSource<T> source{as<T>(static_cast<const void*>(args.src.data)), value};
    const View& src = args.src.data ? args.src : args.index;
    if (args.add && adds_in_double(args.out.dtype)) return add_indexed(args, src, source);
    T* out = as<T>(args.out.data);
    each_indexed("scatter", args.index, args.dim, args.out, src,
                 [&](std::int64_t to, std::int64_t from) {
                   out[to] = args.add ? static_cast<T>(out[to] + source(from)) : source(from);
                 });
  });
}

void run(const Triangle& args) {
  // Loops over the (0, 0) elements of all matrices, then over the elements of each.
  View y = args.y;
  View x = args.x;
  const int i_dim = y.ndim - 2;
  const int j_dim = y.ndim - 1;
  const std::int64_t rows = y.shape[i_dim];
  const std::int64_t columns = y.shape[j_dim];
  y.ndim = x.ndim = i_dim;
  with_moved(args.y.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* from = as<T>(static_cast<const void*>(x.data));
    T* to = as<T>(y.data);
    walk<2>(y, {&y, &x}, [&](const auto& at) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
          const bool kept = args.upper ? j - i >= args.diagonal : j - i <= args.diagonal;
          const std::int64_t source = at[1] + i * x.strides[i_dim] + j * x.strides[j_dim];
          to[at[0] + i * y.strides[i_dim] + j * y.strides[j_dim]] = kept ? from[source] : T{};
        }
      }
    });
  });
}

}  // namespace coshard::kernels::reference
