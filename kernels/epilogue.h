#pragma once
// A Matmul's bias and Epilogue as separate kernels, for back ends whose GEMM does not fuse them.
// Host code for cpu and cuda.
#include <utility>

#include <coshard/runtime/error.h>
#include "kernels/args.h"

namespace coshard::kernels {

inline bool is_contiguous(const View& v) {
  std::int64_t count = 1;
  for (int d = v.ndim - 1; d >= 0; --d) {
    if (v.shape[d] != 1 && v.strides[d] != count) return false;
    count *= v.shape[d];
  }
  return true;
}

inline View transposed_matrix(View v) {
  std::swap(v.shape[0], v.shape[1]);
  std::swap(v.strides[0], v.strides[1]);
  return v;
}

inline bool has_epilogue(const Matmul& args) {
  return args.bias != nullptr || args.epilogue != Epilogue::None;
}

// Error{BadInput} if the Matmul does not support the requested epilogue.
inline void check_epilogue(const Matmul& args) {
  if (!has_epilogue(args)) return;
  CS_REQUIRE(is_floating(args.out.dtype),
             "matmul: a bias or epilogue needs a floating-point output, got ", args.out.dtype);
  if (args.epilogue == Epilogue::None) return;
  CS_REQUIRE(args.aux != nullptr, "matmul: this epilogue needs aux");
  if (args.epilogue == Epilogue::BiasGrad) {
    CS_REQUIRE(
        args.a.ndim == 2 && (is_contiguous(args.a) || is_contiguous(transposed_matrix(args.a))),
        "matmul: row sums need a contiguous a");
  } else {
    CS_REQUIRE(is_contiguous(args.out), "matmul: gelu needs a contiguous output");
  }
}

template <class Run>
void add_bias(const Matmul& args, Run&& run) {
  View bias = args.out;
  bias.data = const_cast<void*>(args.bias);
  bias.strides = {};
  bias.strides[bias.ndim - 1] = 1;
  run(Binary{BinaryOp::Add, args.out, args.out, bias});
}

// The row sums of a; a or its transpose must be contiguous.
template <class Run>
void sum_rows(const Matmul& args, Run&& run) {
  ReduceDim sum{ReduceOp::Sum, args.a.dtype, args.a.shape[0], args.a.shape[1], 1,
                args.a.data,   args.aux};
  if (!is_contiguous(args.a)) {
    sum.inner = sum.outer;
    sum.outer = 1;
  }
  run(sum);
}

// Finishes the Matmul once `out` holds the plain result. `run` runs one kernel.
template <class Run>
void run_epilogue(const Matmul& args, Run&& run) {
  if (args.bias != nullptr) add_bias(args, run);
  const DType dtype = args.out.dtype;
  std::int64_t count = 1;
  for (int d = 0; d < args.out.ndim; ++d) count *= args.out.shape[d];
  switch (args.epilogue) {
    case Epilogue::None: return;
    case Epilogue::Gelu: {
      View aux = args.out;
      aux.data = args.aux;
      run(Copy{aux, args.out});
      return run(Unary{UnaryOp::GeluTanh, dtype, count, args.aux, args.out.data});
    }
    case Epilogue::GeluGrad:
      return run(
          UnaryGrad{UnaryOp::GeluTanh, dtype, count, args.out.data, args.aux, args.out.data});
    case Epilogue::BiasGrad: return sum_rows(args, run);
  }
}

}  // namespace coshard::kernels
