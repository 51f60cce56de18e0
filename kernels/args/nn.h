#pragma once
// Neural network layers: softmax, norms, embedding, attention, cross-entropy. See kernels/args.h.
#include <vector>

#include "kernels/args/view.h"

namespace coshard::kernels {

// Over the middle dimension of [outer, extent, inner]; log=true: log-softmax.
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
// dweight[rows,dim] is overwritten: zero, then sums in index order. Rows whose id is `padding`
// (global id; -1: none) get no gradient.
struct EmbeddingGrad {
  DType dtype;
  DType ids_dtype;
  std::int64_t count, rows, dim, first, padding;
  const void* ids;
  const void* dout;
  void* dweight;
};

// Frequencies of rotary positions as data. The angle of pair i is position * frequencies[i], rounded
// to f32; its cosine and sine are multiplied by `scaling` and rounded to f32. Kept for the process:
// equal tables have one address.
struct RopeTable {
  std::vector<float> frequencies;  // [dim / 2]
  float scaling;
};
// Rotary embedding (rotate-half form, as in Hugging Face's Llama): x and y [batch, seq, heads, dim]
// views; position of row s is first_position + s, or first_position + positions[b, s] if that (I64
// [batch, seq]) has data; angle of pair i is position * theta^(-2i/dim), or what `table` says.
// inverse: the transpose (the gradient).
struct Rope {
  View y, x;
  std::int64_t first_position;
  double theta;
  bool inverse;
  const RopeTable* table = nullptr;
  View positions{};
};

// Scaled dot-product attention. q [b,h,tq,d], k [b,hkv,tk,d], v [b,hkv,tk,dv] views (last stride
// 1); h a multiple of hkv, query head i reads kv head i / (h/hkv). out [b,h,tq,dv] view. lse
// [b,h,tq] contiguous f32 (f64 for f64): log of the sum of exp; -inf, and out 0, for a fully masked
// query. causal: query i attends to keys j <= i + diagonal, and if window > 0, only to those j > i +
// diagonal - window. mask (data may be null): [b,h,tq,tk] of any strides; Bool keeps scores where
// true, q's dtype is added to the scores. first, last (data may be null: both or none) I64 [b,tq]:
// query i sees the keys first <= j <= last alone; not together with causal. No tq x tk matrix is
// stored.
struct Attention {
  View out, q, k, v;
  void* lse;
  double scale;
  bool causal;
  std::int64_t diagonal = 0;
  View mask{};
  std::int64_t window = 0;
  View first{}, last{};
};
// dmask (data may be null): [b,h,tq,tk], last stride 1.
struct AttentionGrad {
  View dq, dk, dv, dout, out, q, k, v;
  const void* lse;
  double scale;
  bool causal;
  std::int64_t diagonal = 0;
  View mask{}, dmask{};
  std::int64_t window = 0;
  View first{}, last{};
};

// Cross-entropy in steps, so that class-sharded ranks can combine their statistics in between.
// logits [rows, classes]; this rank holds classes [first, first+classes). target I64 [rows]; rows
// whose target is `ignore` do not contribute. Statistics are f32 (f64 for f64), contiguous [rows].
// max[r]: the largest logit; sum[r] = sum_c exp(logits - max), 0 where max is -infinity; picked[r]:
// logits[r, target] if this rank holds the target, else 0; total[r] = sum_c logits (null unless
// label smoothing needs it)
struct CrossEntropyStats {
  DType dtype;
  std::int64_t rows, classes, first, ignore;
  const void* logits;
  const void* target;
  void* max;
  void* sum;
  void* picked;
  void* total;
};
// Combines the statistics of `parts` ranks, [parts, kinds, rows] in the order of the members above
// (kinds 3: no total), into those of all classes: [kinds, rows]. dtype: of the statistics, F32 or
// F64.
struct CrossEntropyJoin {
  DType dtype;
  std::int64_t parts, kinds, rows;
  const void* found;
  void* joined;
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

// The loss of each row (or their sum) from the statistics of CrossEntropyStats, and the number of
// targets that count, per row or in total. dtype: of the statistics, F32 or F64. lse holds the max
// before and the log-sum-exp after. Error{BadInput}: a target that is not a class.
struct CrossEntropyLoss {
  DType dtype;
  std::int64_t rows, classes, ignore;
  double smoothing;
  bool summed;
  const void* target;
  const void* sum;
  const void* picked;
  const void* total;
  void* lse;
  void* loss;
  void* count;
};

// Negative log-likelihood of log_probs [outer, classes, inner] at target I64 [outer, inner].
// loss[o,i] = -(1-smoothing) w[t] log_probs[o,t,i] - smoothing/classes sum_c w[c] log_probs[o,c,i]
// and count[o,i] = w[t], both 0 where the target is `ignore`. weight [classes] (of dtype) may be
// null: 1. loss and count are f32 (f64 for f64). Error{BadInput}: a target that is not a class.
struct NllLoss {
  DType dtype;
  std::int64_t outer, classes, inner, ignore;
  double smoothing;
  const void* log_probs;
  const void* target;
  const void* weight;
  void* loss;
  void* count;
};
// The gradient of NllLoss by log_probs, for dloss [outer, inner] (f32, f64 for f64).
struct NllLossGrad {
  DType dtype;
  std::int64_t outer, classes, inner, ignore;
  double smoothing;
  const void* dloss;
  const void* target;
  const void* weight;
  void* dlog_probs;
};

// clang-format off
#define COSHARD_NN_KERNELS(X) \
  X(Softmax) X(SoftmaxGrad) X(LayerNorm) X(LayerNormGrad) X(RmsNorm) X(RmsNormGrad) \
  X(Embedding) X(EmbeddingGrad) X(Rope) X(Attention) X(AttentionGrad) X(CrossEntropyJoin) \
  X(CrossEntropyStats) X(CrossEntropyGrad) X(CrossEntropyLoss) X(NllLoss) X(NllLossGrad)
// clang-format on

}  // namespace coshard::kernels
