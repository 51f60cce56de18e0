// Matmul through cuBLASLt, which is column-major: a row-major GEMM is computed as that of the
// swapped, transposed operands, out^T = b^T @ a^T, without moving data.
#include <algorithm>
#include <memory>

#include <coshard/runtime/error.h>
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/lt_context.h"
#include "kernels/cuda/plain_matmul.h"
#include "kernels/epilogue.h"
#include "kernels/matrix.h"

namespace coshard::kernels::cuda {
namespace {

constexpr std::uintptr_t kFusedAlignment = 16;  // of bias and aux, in bytes

// Whether a plain matrix is row-major (one with a single column may be both).
bool by_rows(const Matrix& m) { return m.column_stride == 1 && m.row_stride >= m.columns; }

// A plain problem with a row-major result.
struct RowMajor {
  Matrix out, a, b;
  bool swapped;  // it is out^T = b^T @ a^T of the requested Matmul
};

RowMajor row_major(Matrix out, Matrix a, Matrix b) {
  RowMajor p = {out, a, b, false};
  if (!by_rows(out)) p = {out.transposed(), b.transposed(), a.transposed(), true};
  if (p.out.batch > 1 && p.b.batch_stride == 0 && p.out.folds() && p.a.folds()) {
    p.out = p.out.folded();
    p.a = p.a.folded();
    p.b = p.b.single();
  }
  return p;
}

// The matrix as the library reads it: the transpose of a row-major one.
LtMatrix lt_matrix(const Matrix& m) {
  if (by_rows(m)) return {m.data, m.columns, m.rows, m.row_stride, m.batch_stride};
  return {m.data, m.rows, m.columns, m.column_stride, m.batch_stride};
}

LtProduct lt_product(const RowMajor& p, const Matmul& args) {
  LtProduct product;
  product.dtype = args.out.dtype;
  product.m = p.out.columns;
  product.n = p.out.rows;
  product.k = p.a.columns;
  product.batch = p.out.batch;
  product.a = lt_matrix(p.b);
  product.b = lt_matrix(p.a);
  product.d = lt_matrix(p.out);
  product.transpose_a = !by_rows(p.b);
  product.transpose_b = !by_rows(p.a);
  product.alpha = args.alpha;
  product.beta = args.beta;
  return product;
}

bool aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kFusedAlignment == 0;
}

// Sets the library's epilogue for the requested one; false if it has none, or not for these shapes:
// a bias is added along the library's columns, and gelu's aux matrix needs columns of a multiple of
// 8 elements.
bool set_epilogue(LtProduct& product, const RowMajor& p, const Matmul& args) {
  if (product.dtype == DType::F64 || !aligned(args.bias) || !aligned(args.aux)) return false;
  product.bias = args.bias;
  product.aux = args.aux;
  const bool bias = args.bias != nullptr;
  switch (args.epilogue) {
    case Epilogue::None:
      product.aux = nullptr;
      product.epilogue = CUBLASLT_EPILOGUE_BIAS;
      return !p.swapped;
    case Epilogue::Gelu:
      product.epilogue = bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return !p.swapped && product.m % 8 == 0;
    case Epilogue::GeluGrad:
      product.epilogue = CUBLASLT_EPILOGUE_DGELU;
      return !p.swapped && !bias && product.m % 8 == 0;
    case Epilogue::BiasGrad:
      product.bias = args.aux;
      product.aux = nullptr;
      product.epilogue = p.swapped ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
      return !bias;
  }
  return false;
}

// A separate copy of a view, with rows aligned to 16 bytes.
class AlignedCopy {
 public:
  AlignedCopy(CudaDevice& device, const View& from, bool fill) : view_(from) {
    const int last = from.ndim - 1;
    const auto step = static_cast<std::int64_t>(16 / size_of(from.dtype));
    std::int64_t stride = (from.shape[last] + step - 1) / step * step;
    view_.strides[last] = 1;
    for (int d = last - 1; d >= 0; --d) {
      view_.strides[d] = stride;
      stride *= from.shape[d];
    }
    memory_ = device.make_buffer(static_cast<std::size_t>(stride) * size_of(from.dtype));
    view_.data = memory_->data();
    if (fill) cuda::run(device, Copy{view_, from});
  }
  const View& view() const { return view_; }

 private:
  View view_;
  std::shared_ptr<Buffer> memory_;
};

// A view as it is, or a copy if the library does not support its strides.
class PlainOperand {
 public:
  PlainOperand(CudaDevice& device, const View& view) : matrix_(matrix_of(view)) {
    if (is_plain(matrix_)) return;
    copy_ = std::make_unique<AlignedCopy>(device, view, true);
    matrix_ = matrix_of(copy_->view());
  }
  const Matrix& matrix() const { return matrix_; }

 private:
  Matrix matrix_;
  std::unique_ptr<AlignedCopy> copy_;
};

// Runs on copies of all three: for result strides that the library cannot write, and for addresses
// that no algorithm supports.
void run_on_copies(CudaDevice& device, const Matmul& args) {
  const AlignedCopy out(device, args.out, args.beta != 0), a(device, args.a, true),
      b(device, args.b, true);
  const RowMajor p = row_major(matrix_of(out.view()), matrix_of(a.view()), matrix_of(b.view()));
  const LtProduct product = lt_product(p, args);
  if (!LtContext::of(device).run(product))
    fail(ErrorKind::Unsupported,
         str_cat("matmul [", product.n, ", ", product.m, "] over ", product.k, " ", product.dtype,
                 ": cuBLASLt has no algorithm"));
  run(device, Copy{args.out, out.view()});
}

// Returns whether the epilogue was fused.
bool run_library(CudaDevice& device, const Matmul& args) {
  const Matrix out = matrix_of(args.out);
  if (is_plain(out)) {
    const PlainOperand a(device, args.a), b(device, args.b);
    const RowMajor p = row_major(out, a.matrix(), b.matrix());
    LtContext& library = LtContext::of(device);
    if (has_epilogue(args)) {
      LtProduct fused = lt_product(p, args);
      if (set_epilogue(fused, p, args) && library.run(fused)) return true;
    }
    if (library.run(lt_product(p, args))) return false;
  }
  run_on_copies(device, args);
  return false;
}

bool is_empty(const View& v) {
  return std::any_of(v.shape.begin(), v.shape.begin() + v.ndim,
                     [](std::int64_t size) { return size == 0; });
}

}  // namespace

void run(CudaDevice& device, const Matmul& args) {
  const DType dtype = args.out.dtype;
  CS_REQUIRE(args.a.dtype == dtype && args.b.dtype == dtype,
             "matmul: dtypes differ: ", args.a.dtype, " and ", args.b.dtype, " into ", dtype);
  check_epilogue(args);
  const bool empty = is_empty(args.out);  // the bias gradient may be requested even then
  const bool plain = !is_floating(dtype) || args.a.shape[args.a.ndim - 1] == 0;
  if (!empty && plain) run_plain(device, args);
  if (!empty && !plain && run_library(device, args)) return;
  if (has_epilogue(args)) run_epilogue(args, [&](const auto& kernel) { run(device, kernel); });
}

}  // namespace coshard::kernels::cuda
