#pragma once
// The attributes of the library's operators (Attrs::as). Attributes of gradient operators that
// programs do not call are declared beside those operators. Dimensions count from the front; a set
// of dimensions is a bit mask.
#include <cstdint>

#include <coshard/dtensor/ops/attrs.h>
#include <coshard/runtime/dtype.h>

namespace coshard::kernels {
enum class ReduceOp : std::uint8_t;
}

#pragma GCC visibility push(default)
namespace coshard {

// The right-hand number of add_scalar, mul_scalar, pow_scalar, div_scalar, remainder_scalar and
// comparisons; what full_like fills in.
struct ScalarAttrs {
  double value;
};
struct AddAttrs {
  double alpha;  // of the second operand
};
struct AddmmAttrs {
  double beta, alpha;
};
struct AttentionAttrs {
  bool causal;
  std::int64_t diagonal;  // query i sees keys j <= i + diagonal, if causal
  double scale;
  std::int64_t window = 0;  // and j > i + diagonal - window, unless 0
};
struct CatAttrs {
  int dim;
};
struct ClampAttrs {
  double min, max;
};
struct CrossEntropyAttrs {
  bool summed;
  std::int64_t ignored;  // the target value to ignore
  double smoothing;
};
struct DiagonalAttrs {
  std::int64_t offset;
  int dim1, dim2;
};
struct DropoutAttrs {
  double p;
  Opaque seed{}, stream{};
};
struct EinsumAttrs {
  std::int64_t a, b, out;  // axes, one byte each, the last in the lowest byte
};
struct EmbeddingAttrs {
  std::int64_t padding;  // -1: none
};
struct ExpandAttrs {
  Shape shape;
};
struct FlipAttrs {
  Shape dims;
};
struct GatherAttrs {
  int dim;
  std::int64_t cuts;  // the mesh dimensions that shard it, as bits
};
struct LayerNormAttrs {
  int dims;  // how many of the last dimensions are normalized
  double eps;
};
struct LeakyReluAttrs {
  double slope;
};
struct MaskedFillAttrs {
  bool where_false;
  double value;
};
// For max and min.
struct MaxAttrs {
  bool largest;
  std::int64_t mask;
  bool keepdim;
  std::int64_t cuts;  // the mesh dimensions that shard the only dimension of the mask, as bits
};
struct NllLossAttrs {
  std::int64_t ignored;  // the target value to ignore
  double smoothing;
};
struct PermuteAttrs {
  Shape dims;  // which input dimension each output dimension is
};
struct SliceAttrs {
  int dim;
  std::int64_t start, step;
  std::int64_t size;  // of the result along dim
};
struct PlaceAttrs {
  SliceAttrs at;
  double value;  // of the other elements
};
// For sum, amax, …: `op` is the operation of that name, alpha the kernel's (args/reduce.h).
struct ReductionAttrs {
  kernels::ReduceOp op;
  std::int64_t mask;
  bool keepdim;
  double alpha;
};
struct RmsNormAttrs {
  int dims;  // how many of the last dimensions are normalized
  double eps;
};
struct RotaryEmbeddingAttrs {
  std::int64_t first_position;
  bool inverse;
  double theta;
  std::int64_t table = 0;  // RotaryTable::key(); 0: none
};
// For cumsum, cumprod, …
struct ScanAttrs {
  int dim;
  bool reverse;
};
struct ScatterAddZerosAttrs {
  int dim;
  Shape shape;  // of the result
};
struct ScatterAttrs {
  int dim;
  double value = 0;  // without src
};
struct SoftmaxAttrs {
  int dim;
  bool log;
};
struct SortAttrs {
  int dim;
  bool descending;
  std::int64_t count;  // how many of the first to return
};
struct ToAttrs {
  DType dtype;
};
struct TriangleAttrs {
  std::int64_t diagonal;
  bool upper;  // which triangle is kept
};
struct ViewAttrs {
  Shape shape;
  int alone = -1;  // the extra size-1 dimension of the longer shape, if known
};

}  // namespace coshard
#pragma GCC visibility pop
