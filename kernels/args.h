#pragma once
// What each numeric kernel is asked to do: plain pointers, shapes and strides, no tensors and no
// layouts. `kernels::run(device kind, args)` picks the back end (kernels/run.h). Strides count
// elements. Unless a field is a View, memory is contiguous and row-major. Where a dtype field is
// not otherwise limited, every floating dtype works; accumulation is in f32 for bf16 and f32, in
// f64 for f64.
#include <array>
#include <cstdint>

#include "runtime/dtype.h"

namespace coshard::kernels {

constexpr int kMaxDims = 8;

struct View {
  void* data = nullptr;
  DType dtype = DType::F32;
  int ndim = 0;
  std::array<std::int64_t, kMaxDims> shape{};
  std::array<std::int64_t, kMaxDims> strides{};
};

// to[i] = from[i], any strides, converting the dtype. Equal shapes.
struct Copy {
  View to, from;
};
struct Fill {
  void* data;
  DType dtype;
  std::int64_t count;
  double value;
};

enum class UnaryOp : std::uint8_t {
  Neg,
  Abs,
  Exp,
  Log,
  Sqrt,
  Rsqrt,
  Tanh,
  Sigmoid,
  Relu,
  Silu,
  Gelu,
  GeluTanh,
  // out = a + alpha, a * alpha, and a^alpha
  AddScalar,
  MulScalar,
  PowScalar,
};
// y[i] = op(x[i])
struct Unary {
  UnaryOp op;
  DType dtype;
  std::int64_t count;
  const void* x;
  void* y;
  double alpha = 0;
};

enum class UnaryGradOp : std::uint8_t { Silu, Gelu, GeluTanh, Relu };
// dx[i] = dy[i] * op'(x[i])
struct UnaryGrad {
  UnaryGradOp op;
  DType dtype;
  std::int64_t count;
  const void* dy;
  const void* x;
  void* dx;
};

enum class BinaryOp : std::uint8_t { Add, Sub, Mul, Div, Maximum, Minimum };
// out[i] = a[i] op (alpha * b[i]); broadcasting is expressed by stride 0. One dtype (ints allowed;
// alpha then integral).
struct Binary {
  BinaryOp op;
  View out, a, b;
  double alpha = 1;
};

// y = silu(a) * b, and its gradients: da = dy*b*silu'(a), db = dy*silu(a)
struct SwiGlu {
  DType dtype;
  std::int64_t count;
  const void* a;
  const void* b;
  void* y;
};
struct SwiGluGrad {
  DType dtype;
  std::int64_t count;
  const void* dy;
  const void* a;
  const void* b;
  void* da;
  void* db;
};

// out[..,m,n] = alpha * a[..,m,k] @ b[..,k,n] + beta * out. ndim 2 or 3 (batch first; a batch
// stride of 0 broadcasts). Any strides with one unit stride among the last two dims of each view. k
// == 0 gives beta*out.
struct Matmul {
  View out, a, b;
  double alpha = 1, beta = 0;
};

enum class ReduceOp : std::uint8_t { Sum, Mean, Max, Min };
// x [outer, extent, inner] -> y [outer, inner]. Extent 0: sum 0, mean NaN, max -inf, min +inf.
// Ints: sum, max, min.
struct ReduceDim {
  ReduceOp op;
  DType dtype;
  std::int64_t outer, extent, inner;
  const void* x;
  void* y;
};

// over the middle of [outer, extent, inner]; log=true: log-softmax.
struct Softmax {
  DType dtype;
  bool log;
  std::int64_t outer, extent, inner;
  const void* x;
  void* y;
};
struct SoftmaxGrad {
  DType dtype;
  bool log;
  std::int64_t outer, extent, inner;
  const void* dy;
  const void* y;
  void* dx;
};

// rows x dim. mean and rstd are [rows] in f32 (f64 for f64). weight, bias [dim] may be null.
struct LayerNorm {
  DType dtype;
  std::int64_t rows, dim;
  double eps;
  const void* x;
  const void* weight;
  const void* bias;
  void* y;
  void* mean;
  void* rstd;
};
// dweight, dbias [dim] are overwritten with this call's sums; either may be null.
struct LayerNormGrad {
  DType dtype;
  std::int64_t rows, dim;
  const void* dy;
  const void* x;
  const void* weight;
  const void* mean;
  const void* rstd;
  void* dx;
  void* dweight;
  void* dbias;
};
struct RmsNorm {
  DType dtype;
  std::int64_t rows, dim;
  double eps;
  const void* x;
  const void* weight;
  void* y;
  void* rstd;
};
struct RmsNormGrad {
  DType dtype;
  std::int64_t rows, dim;
  const void* dy;
  const void* x;
  const void* weight;
  const void* rstd;
  void* dx;
  void* dweight;
};

// out[i,:] = weight[ids[i]-first,:], or 0 when ids[i] is outside [first, first+rows) (the masked
// partial of a row-sharded table). ids I64 or I32.
struct Embedding {
  DType dtype;
  DType ids_dtype;
  std::int64_t count, rows, dim, first;
  const void* ids;
  const void* weight;
  void* out;
};
// dweight[rows,dim] is overwritten: zero, then sums in index order. ids equal to padding (global
// id, -1: none) get nothing.
struct EmbeddingGrad {
  DType dtype;
  DType ids_dtype;
  std::int64_t count, rows, dim, first, padding;
  const void* ids;
  const void* dout;
  void* dweight;
};

// Rotary embedding (rotate-half form, as Hugging Face's Llama): x and y [batch, seq, heads, dim]
// views; position of row s is first_position + s; angle of pair i is position * theta^(-2i/dim).
// inverse: the transpose (its gradient).
struct Rope {
  View y, x;
  std::int64_t first_position;
  double theta;
  bool inverse;
};

// Scaled dot-product attention. q [b,h,tq,d], k, v [b,hkv,tk,d] views (last stride 1); h a multiple
// of hkv, query head i reads kv head i / (h/hkv). out [b,h,tq,d] view. lse [b,h,tq] contiguous f32
// (f64 for f64): log of the sum of exp. causal: query i sees keys j <= i + (tk - tq). No tq x tk
// matrix is stored.
struct Attention {
  View out, q, k, v;
  void* lse;
  double scale;
  bool causal;
};
struct AttentionGrad {
  View dq, dk, dv, dout, out, q, k, v;
  const void* lse;
  double scale;
  bool causal;
};

// Cross-entropy in three pieces, so that a class-sharded one can reduce in between. logits [rows,
// classes]; this rank holds classes [first, first+classes). target I64 [rows]; rows whose target is
// ignore count for nothing. Statistics are f32 (f64 for f64), contiguous [rows].
struct RowMax {
  DType dtype;
  std::int64_t rows, classes;
  const void* logits;
  void* max;
};
// sum[r] = sum_c exp(logits - max); picked[r] = logits[r, target] - max[r] if the target is here,
// else 0; total[r] = sum_c (logits - max) (null unless label smoothing needs it)
struct CrossEntropyStats {
  DType dtype;
  std::int64_t rows, classes, first, ignore;
  const void* logits;
  const void* target;
  const void* max;
  void* sum;
  void* picked;
  void* total;
};
// dlogits[r,c] = scale[r] * (exp(logits-max)/sum - (1-smoothing)*[c==target] -
// smoothing/all_classes), 0 where ignored. scale [rows] of the statistics' dtype.
struct CrossEntropyGrad {
  DType dtype;
  std::int64_t rows, classes, first, ignore;
  double smoothing;
  std::int64_t all_classes;
  const void* logits;
  const void* target;
  const void* max;
  const void* sum;
  const void* scale;
  void* dlogits;
};

// Philox 4x32-10, counter = (index/4 low, index/4 high, stream low, stream high), key = seed; word
// index%4. `index` is the element's index in the *global* tensor, so any sharding draws the same
// numbers. local [shape] contiguous sits at `offset` inside a global tensor with `global_strides`.
struct RandomRegion {
  int ndim;
  std::array<std::int64_t, kMaxDims> shape, offset, global_strides;
};
enum class RandomKind : std::uint8_t {
  Uniform,  // [0,1): (word >> 8) * 2^-24 (f64: the same value)
  Normal,   // Box-Muller: words of the aligned pair (index & ~1): u1 = (word_even>>8 + 1) * 2^-24,
            // u2 = (word_odd>>8) * 2^-24; even index: sqrt(-2 ln u1) cos(2 pi u2), odd: sin
};
struct Random {
  RandomKind kind;
  DType dtype;
  RandomRegion region;
  std::uint64_t seed, stream;
  double scale = 1, shift = 0;
  void* out;
};
// y = x * keep/(1-p), keep = uniform >= p; calling it on dy with the same seed and stream is the
// gradient.
struct Dropout {
  DType dtype;
  RandomRegion region;
  std::uint64_t seed, stream;
  double p;
  const void* x;
  void* y;
};

// One tensor's update. AdamW: m, v and (for bf16) master are f32 (f64 for f64). step counts from 1.
// Decoupled decay (Loshchilov & Hutter).
struct AdamW {
  DType dtype;
  std::int64_t count;
  void* param;
  const void* grad;
  void* m;
  void* v;
  void* master;
  double lr, beta1, beta2, eps, weight_decay, grad_scale;
  std::int64_t step;
};
// momentum may be null. First step: buffer = grad (PyTorch). L2 decay added to the gradient.
struct Sgd {
  DType dtype;
  std::int64_t count;
  void* param;
  const void* grad;
  void* momentum;
  double lr, momentum_factor, weight_decay, grad_scale;
  bool first;
};
// returns the sum of |x|^p (p = 2), in double, over contiguous data; p = 0 means the largest |x|
struct PowSum {
  DType dtype;
  std::int64_t count;
  const void* x;
  double p;
  double* result;
};

}  // namespace coshard::kernels
