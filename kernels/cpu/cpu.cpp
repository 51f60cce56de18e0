#include "kernels/cpu/cpu.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/simd/bodies.h"

namespace coshard::kernels::cpu {
namespace {

struct Choice {
  const char* name;
  Bodies bodies, bodies_f64;
};

Choice choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return {"x86-64-v4", v4::bodies(), v4_f64::bodies()};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    return {"x86-64-v3", v3::bodies(), v3_f64::bodies()};
  }
#endif
  return {"baseline", baseline::bodies(), baseline_f64::bodies()};
}

// Fixed for the life of the process.
const Choice& choice() {
  static const Choice chosen = choose();
  return chosen;
}

template <class Args>
void vectorised(DType dtype, const Args& args) {
  (dtype == DType::F64 ? choice().bodies_f64 : choice().bodies).run(args);
}

// Floating-point dtypes have vectorised bodies; `also` is a further condition.
template <class Args>
void vectorised_or_reference(DType dtype, const Args& args, bool also = true) {
  if (is_floating(dtype) && also) return vectorised(dtype, args);
  reference::run(args);
}

bool contiguous_rows(const View& v) { return v.ndim == 4 && v.strides[3] == 1; }
bool contiguous_rows(const RandomRegion& region) {
  return region.ndim == 0 || region.global_strides[region.ndim - 1] == 1;
}

}  // namespace

const char* instruction_set() { return choice().name; }

void run_packed(const Matmul& args) {
  for (int d = 0; d < args.out.ndim; ++d) {
    if (args.out.shape[d] == 0) return;
  }
  vectorised_or_reference(args.out.dtype, args, args.a.shape[args.a.ndim - 1] > 0);
}
void run(const Copy& args) {
  const bool same = args.to.dtype == args.from.dtype;
  if (same || (is_floating(args.to.dtype) && is_floating(args.from.dtype))) {
    return choice().bodies.run(args);
  }
  reference::run(args);
}
void run(const FewRows& args) { choice().bodies.run(args); }
void run(const Fill& args) {
  if (args.value != 0 || std::signbit(args.value)) return reference::run(args);
  if (args.count > 0) std::memset(args.data, 0, args.count * size_of(args.dtype));
}
void run(const Unary& args) {
  Unary call = args;
  if (args.op == UnaryOp::PowScalar && args.alpha == 2) call.op = UnaryOp::Square;
  vectorised_or_reference(call.dtype, call, has_vector_value(call.op));
}
void run(const UnaryGrad& args) {
  vectorised_or_reference(args.dtype, args, has_vector_derivative(args.op));
}
void run(const Binary& args) {
  const bool exact = args.b.data == nullptr || args.alpha == 1;
  vectorised_or_reference(args.a.dtype, args,
                          is_comparison(args.op) ? exact : has_vector_value(args.op));
}
void run(const SwiGlu& args) { vectorised_or_reference(args.dtype, args); }
void run(const SwiGluGrad& args) { vectorised_or_reference(args.dtype, args); }
void run(const ReduceDim& args) {
  vectorised_or_reference(args.dtype, args, args.op <= ReduceOp::Min);
}
void run(const Softmax& args) { vectorised_or_reference(args.dtype, args); }
void run(const SoftmaxGrad& args) { vectorised_or_reference(args.dtype, args); }
void run(const LayerNorm& args) { vectorised_or_reference(args.dtype, args); }
void run(const LayerNormGrad& args) { vectorised_or_reference(args.dtype, args); }
void run(const RmsNorm& args) { vectorised_or_reference(args.dtype, args); }
void run(const RmsNormGrad& args) { vectorised_or_reference(args.dtype, args); }
void run(const Embedding& args) { vectorised_or_reference(args.dtype, args); }
void run(const EmbeddingGrad& args) { vectorised_or_reference(args.dtype, args); }
void run(const Rope& args) {
  const bool rows = contiguous_rows(args.x) && contiguous_rows(args.y) && args.x.shape[3] % 2 == 0;
  vectorised_or_reference(args.x.dtype, args, rows);
}
void run(const Attention& args) {
  const bool rows = contiguous_rows(args.q) && contiguous_rows(args.k) && contiguous_rows(args.v) &&
                    contiguous_rows(args.out) && args.q.shape[3] == args.v.shape[3];
  vectorised_or_reference(args.q.dtype, args, rows);
}
void run(const AttentionGrad& args) {
  bool rows = args.q.shape[3] == args.v.shape[3];
  for (const View* view :
       {&args.dq, &args.dk, &args.dv, &args.dout, &args.out, &args.q, &args.k, &args.v}) {
    rows = rows && contiguous_rows(*view);
  }
  vectorised_or_reference(args.q.dtype, args, rows);
}
void run(const CrossEntropyStats& args) { vectorised_or_reference(args.dtype, args); }
void run(const CrossEntropyGrad& args) { vectorised_or_reference(args.dtype, args); }
void run(const Random& args) {
  const bool rows = contiguous_rows(args.region);
  vectorised_or_reference(args.dtype, args, rows && args.dtype != DType::F64);
}
void run(const Dropout& args) {
  const bool rows = contiguous_rows(args.region);
  vectorised_or_reference(args.dtype, args, rows && args.dtype != DType::F64);
}
void run(const AdamW& args) { vectorised_or_reference(args.dtype, args); }
void run(const Sgd& args) { vectorised_or_reference(args.dtype, args); }
void run(const PowSum& args) {
  vectorised_or_reference(args.dtype, args, args.p == 2 || args.p == 0);
}

}  // namespace coshard::kernels::cpu
