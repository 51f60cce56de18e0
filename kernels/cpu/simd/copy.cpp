// Strided copies of one element size, transposes in tiles, and conversion between
// floating-point types.
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/simd/kernels.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

constexpr std::int64_t kTile = 16;

template <class T>
void copy_contiguous(T* to, const T* from, std::int64_t count) {
  constexpr std::int64_t kWords = 64 / sizeof(T);
  std::int64_t i = 0;
  if (count > 4096) {
    std::memcpy(to, from, count * sizeof(T));
    return;
  }
  for (; i + kWords <= count; i += kWords) std::memcpy(to + i, from + i, 64);
  for (; i < count; ++i) to[i] = from[i];
}

// to[r * to_stride + c] = from[r + c * from_stride]
template <class T>
void transpose(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride,
               std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
    const std::int64_t r1 = r0 + kTile < rows ? r0 + kTile : rows;
    for (std::int64_t c0 = 0; c0 < columns; c0 += kTile) {
      const std::int64_t c1 = c0 + kTile < columns ? c0 + kTile : columns;
      T tile[kTile][kTile];
      for (std::int64_t c = c0; c < c1; ++c) {
        for (std::int64_t r = r0; r < r1; ++r) tile[r - r0][c - c0] = from[r + c * from_stride];
      }
      for (std::int64_t r = r0; r < r1; ++r) {
        for (std::int64_t c = c0; c < c1; ++c) to[r * to_stride + c] = tile[r - r0][c - c0];
      }
    }
  }
}

// The dimension along which the source is contiguous, when the destination is contiguous along the
// last one; -1 if none.
int transposed_dim(const Loops<2>& loops) {
  if (loops.ndim < 2 || loops.stride(0) != 1 || loops.stride(1) == 1) return -1;
  for (int d = 0; d + 1 < loops.ndim; ++d) {
    if (loops.strides[1][d] == 1) return d;
  }
  return -1;
}

template <class T>
void copy_transposed(Loops<2> loops, int dim, T* to, const T* from) {
  for (int d = dim; d + 2 < loops.ndim; ++d) loops.swap(d, d + 1);
  const int row = loops.ndim - 2;
  const std::int64_t rows = loops.shape[row];
  const std::int64_t columns = loops.inner();
  const std::int64_t to_stride = loops.strides[0][row];
  const std::int64_t from_stride = loops.stride(1);
  Loops<2> planes = loops;
  planes.shape[row] = 1;
  each_row(planes, [&](const std::int64_t(&at)[2], std::int64_t) {
    transpose(to + at[0], to_stride, from + at[1], from_stride, rows, columns);
  });
}

template <class T>
void copy_same(const Copy& args) {
  const View* views[2] = {&args.to, &args.from};
  const Loops<2> loops = loops_over(views);
  T* to = as<T>(args.to.data);
  const T* from = as<T>(static_cast<const void*>(args.from.data));
  const int dim = transposed_dim(loops);
  if (dim >= 0) return copy_transposed(loops, dim, to, from);
  const std::int64_t to_stride = loops.stride(0);
  const std::int64_t from_stride = loops.stride(1);
  each_row(loops, [&](const std::int64_t(&at)[2], std::int64_t count) {
    if (to_stride == 1 && from_stride == 1) {
      return copy_contiguous(to + at[0], from + at[1], count);
    }
    copy_strided<T>(to + at[0], to_stride, from + at[1], from_stride, count);
  });
}

template <class F>
void with_floating(DType dtype, F&& f) {
  if (dtype == DType::F64) return f(double{});
  with_stored(dtype, f);
}

template <class To, class From>
void convert_elements(To* to, const From* from, std::int64_t count) {
  each_register(
      0, count, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        lanes.store(to + i, lanes.load(from + i));
      });
}

void convert_contiguous(DType to_dtype, void* to, DType from_dtype, const void* from,
                        std::int64_t count) {
  if (from_dtype == DType::F32) {
    return with_floating(to_dtype, [&](auto tag) {
      convert_elements(as<decltype(tag)>(to), as<float>(from), count);
    });
  }
  with_floating(from_dtype,
                [&](auto tag) { convert_elements(as<float>(to), as<decltype(tag)>(from), count); });
}

// By way of f32, in blocks where another dtype is neither that nor contiguous.
void convert(const Copy& args) {
  const View* views[2] = {&args.to, &args.from};
  const Loops<2> loops = loops_over(views);
  const DType to_dtype = args.to.dtype, from_dtype = args.from.dtype;
  const std::int64_t to_stride = loops.stride(0);
  const std::int64_t from_stride = loops.stride(1);
  const bool by_f32 = to_dtype != DType::F32 && from_dtype != DType::F32;
  const bool in_place = to_stride == 1 && from_stride == 1 && !by_f32;
  each_row(loops, [&](const std::int64_t(&at)[2], std::int64_t count) {
    alignas(64) char stored[kBlock * sizeof(double)];
    alignas(64) float wide[kBlock];
    const std::int64_t step = in_place ? count : kBlock;
    for (std::int64_t done = 0; done < count; done += step) {
      const std::int64_t here = count - done < step ? count - done : step;
      void* to = element_at(to_dtype, args.to.data, at[0] + done * to_stride);
      const void* from = element_at(from_dtype, args.from.data, at[1] + done * from_stride);
      if (from_stride != 1) {
        copy_elements(from_dtype, stored, 1, from, from_stride, here);
        from = stored;
      }
      if (by_f32) {
        convert_contiguous(DType::F32, wide, from_dtype, from, here);
        from = wide;
      }
      const DType left = by_f32 ? DType::F32 : from_dtype;
      if (to_stride == 1) {
        convert_contiguous(to_dtype, to, left, from, here);
      } else {
        alignas(64) char result[kBlock * sizeof(double)];
        convert_contiguous(to_dtype, result, left, from, here);
        copy_elements(to_dtype, to, to_stride, result, 1, here);
      }
    }
  });
}

}  // namespace

// Only called with equal or floating-point dtypes. Between f64 and the narrow ones by way of f32.
void run(const Copy& args) {
  if (args.to.dtype != args.from.dtype) {
    return convert(args);
  }
  switch (size_of(args.to.dtype)) {
    case 1: return copy_same<std::uint8_t>(args);
    case 2: return copy_same<std::uint16_t>(args);
    case 4: return copy_same<std::uint32_t>(args);
    default: return copy_same<std::uint64_t>(args);
  }
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
