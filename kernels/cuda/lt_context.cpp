#include "kernels/cuda/lt_context.h"

#include <bit>
#include <span>

#include <coshard/runtime/error.h>
#include "kernels/cuda/cuda.h"
#include "runtime/device/cuda/launch.h"

namespace coshard::kernels::cuda {
namespace {

cudaDataType_t lt_type(DType dtype) {
  switch (dtype) {
    case DType::F64: return CUDA_R_64F;
    case DType::BF16: return CUDA_R_16BF;
    case DType::F16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

cublasComputeType_t compute_type(DType dtype, bool tf32) {
  if (dtype == DType::F64) return CUBLAS_COMPUTE_64F;
  return dtype == DType::F32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// The largest power of two up to 256 that divides the address: the alignment algorithms may assume.
std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256;
  return static_cast<std::uint32_t>(address & -address);
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which, const T& value) {
  check_lt(cublas_lt().MatmulDescSetAttribute(desc, which, &value, sizeof value),
           "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, const T& value) {
  check_lt(cublas_lt().MatrixLayoutSetAttribute(layout, which, &value, sizeof value),
           "cublasLtMatrixLayoutSetAttribute");
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which,
         const T& value) {
  check_lt(cublas_lt().MatmulPreferenceSetAttribute(preference, which, &value, sizeof value),
           "cublasLtMatmulPreferenceSetAttribute");
}

struct Destroy {
  void operator()(cublasLtMatrixLayoutOpaque_t* layout) const {
    log_lt(cublas_lt().MatrixLayoutDestroy(layout), "cublasLtMatrixLayoutDestroy");
  }
  void operator()(cublasLtMatmulDescOpaque_t* desc) const {
    log_lt(cublas_lt().MatmulDescDestroy(desc), "cublasLtMatmulDescDestroy");
  }
  void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const {
    log_lt(cublas_lt().MatmulPreferenceDestroy(preference), "cublasLtMatmulPreferenceDestroy");
  }
};
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;
using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy>;

Layout layout_of(const LtMatrix& matrix, const LtProduct& p) {
  cublasLtMatrixLayout_t made = nullptr;
  check_lt(cublas_lt().MatrixLayoutCreate(&made, lt_type(p.dtype),
                                          static_cast<std::uint64_t>(matrix.rows),
                                          static_cast<std::uint64_t>(matrix.columns), matrix.ld),
           "cublasLtMatrixLayoutCreate");
  Layout layout(made);
  if (p.batch == 1) return layout;
  set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(p.batch));
  set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride);
  return layout;
}

// Sets what differs between two GEMMs of one plan.
void point_to(cublasLtMatmulDesc_t desc, const LtProduct& p) {
  if (p.bias != nullptr) set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  if (p.aux != nullptr) set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
}

Description description_of(const LtProduct& p, bool tf32) {
  cublasLtMatmulDesc_t made = nullptr;
  check_lt(cublas_lt().MatmulDescCreate(&made, compute_type(p.dtype, tf32),
                                        p.dtype == DType::F64 ? CUDA_R_64F : CUDA_R_32F),
           "cublasLtMatmulDescCreate");
  Description description(made);
  if (p.transpose_a) set(made, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (p.transpose_b) set(made, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
  if (p.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return description;
  set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
  point_to(made, p);
  if (p.aux == nullptr) return description;
  set(made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.m);
  const std::int64_t stride = p.batch == 1 ? 0 : p.m * p.n;
  set(made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, stride);
  return description;
}

Preference preference_of(const LtProduct& p, std::size_t workspace_bytes) {
  cublasLtMatmulPreference_t made = nullptr;
  check_lt(cublas_lt().MatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  Preference preference(made);
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  // Sums that the library splits are added in f32, not in the dtype of the result.
  const std::uint32_t in_f32 = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, in_f32);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.a.data));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.b.data));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.d.data));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.d.data));
  return preference;
}

std::string name_of(const char* call, const LtProduct& p) {
  return str_cat(call, " m=", p.m, " n=", p.n, " k=", p.k,
                 p.batch > 1 ? str_cat(" batch=", p.batch) : "", " ", p.dtype);
}

// The first GEMM of a dtype loads the library's kernels for it; NCCL collectives running concurrently
// with that have hung (openxla/xla#38932).
const DevicePreparation warmed([](CudaDevice& device) {
  constexpr std::int64_t kSize = 16;
  const auto buffer = device.make_buffer(kSize * kSize * sizeof(double));
  LtProduct product;
  product.m = product.n = product.k = kSize;
  product.a = product.b = product.d = {buffer->data(), kSize, kSize, kSize, 0};
  run(device, Fill{buffer->data(), DType::F64, kSize * kSize, 0});
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
    product.dtype = dtype;
    LtContext::of(device).run(product);
  }
});

}  // namespace

struct LtContext::Plan {
  Description description;
  Layout a, b, d;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
  bool possible = false;
};

LtContext& LtContext::of(CudaDevice& device) {
  static const char key = 0;
  std::shared_ptr<void>& slot = device.extension(&key);
  if (slot == nullptr) [[unlikely]]
    slot = std::make_shared<LtContext>(device);
  return *static_cast<LtContext*>(slot.get());
}

LtContext::LtContext(CudaDevice& device) : device_(device) {
  device.make_current();
  check_lt(cublas_lt().Create(&handle_), "cublasLtCreate");
}

LtContext::~LtContext() {
  plans_.clear();
  if (workspace_ != nullptr) device_.deallocate(workspace_, workspace_bytes(), {});
  log_lt(cublas_lt().Destroy(handle_), "cublasLtDestroy");
}

// NVIDIA's recommendation: 32 MiB from Hopper on, 4 MiB before.
std::size_t LtContext::workspace_bytes() const {
  return std::size_t{device_.capability() >= 90 ? 32U : 4U} << 20;
}

void* LtContext::workspace() {
  if (workspace_ == nullptr) workspace_ = device_.allocate(workspace_bytes());
  return workspace_;
}

std::size_t LtContext::KeyHash::operator()(const Key& key) const noexcept {
  std::uint64_t hash = 0;
  for (const std::int64_t word : key)
    hash = (std::rotl(hash, 5) ^ static_cast<std::uint64_t>(word)) * 0x517cc1b727220a95U;
  return hash ^ (hash >> 32);
}

LtContext::Key LtContext::key_of(const LtProduct& p) const {
  std::int64_t aligned = 0;
  for (const void* data : {p.a.data, p.b.data, static_cast<const void*>(p.d.data), p.bias,
                           static_cast<const void*>(p.aux)})
    aligned = aligned << 9 | alignment_of(data);
  const int flags = (p.transpose_a ? 1 : 0) | (p.transpose_b ? 2 : 0) | (p.bias != nullptr ? 4 : 0);
  return {p.m,
          p.n,
          p.k,
          p.batch,
          p.a.ld,
          p.b.ld,
          p.d.ld,
          p.a.batch_stride,
          p.b.batch_stride,
          p.d.batch_stride,
          static_cast<std::int64_t>(p.dtype),
          flags,
          p.epilogue,
          aligned,
          p.aux != nullptr ? 1 : 0};
}

void LtContext::choose_algorithm(Plan& plan, const LtProduct& p) const {
  const Preference preference = preference_of(p, workspace_bytes());
  std::array<cublasLtMatmulHeuristicResult_t, 4> results{};
  int count = 0;
  const cublasStatus_t status = cublas_lt().MatmulAlgoGetHeuristic(
      handle_, plan.description.get(), plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(),
      preference.get(), static_cast<int>(results.size()), results.data(), &count);
  if (!succeeded(status) && status != CUBLAS_STATUS_NOT_SUPPORTED)
    fail(ErrorKind::DeviceFailed,
         str_cat(name_of("cublasLtMatmulAlgoGetHeuristic", p), ": ", text_of(status)));
  if (status != CUBLAS_STATUS_SUCCESS) return;
  for (const auto& result : std::span(results).first(static_cast<std::size_t>(count))) {
    if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_bytes()) continue;
    plan.algorithm = result.algo;
    plan.workspace_bytes = result.workspaceSize;
    plan.possible = true;
    return;
  }
}

LtContext::Plan& LtContext::plan_of(const LtProduct& p) {
  const Key key = key_of(p);
  const auto found = plans_.find(key);
  if (found != plans_.end()) [[likely]]
    return *found->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  auto plan = std::make_unique<Plan>();
  plan->description = description_of(p, device_.tf32());
  plan->a = layout_of(p.a, p);
  plan->b = layout_of(p.b, p);
  plan->d = layout_of(p.d, p);
  choose_algorithm(*plan, p);
  return *plans_.emplace(key, std::move(plan)).first->second;
}

bool LtContext::run(const LtProduct& p) {
  CS_REQUIRE(p.batch <= INT32_MAX, name_of("matmul", p), ": the batch is too large");
  device_.make_current();
  Plan& plan = plan_of(p);
  if (!plan.possible) return false;
  point_to(plan.description.get(), p);
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  const bool wide = p.dtype == DType::F64;
  void* space = plan.workspace_bytes > 0 ? workspace() : nullptr;
  const cublasStatus_t status = cublas_lt().Matmul(
      handle_, plan.description.get(), wide ? static_cast<const void*>(&p.alpha) : &alpha, p.a.data,
      plan.a.get(), p.b.data, plan.b.get(), wide ? static_cast<const void*>(&p.beta) : &beta,
      p.d.data, plan.d.get(), const_cast<void*>(p.d.data), plan.d.get(), &plan.algorithm, space,
      plan.workspace_bytes, static_cast<cudaStream_t>(device_.compute_stream().native()));
  if (succeeded(status)) [[likely]]
    return true;
  if (status != CUBLAS_STATUS_NOT_SUPPORTED)
    fail(ErrorKind::DeviceFailed, str_cat(name_of("cublasLtMatmul", p), ": ", text_of(status)));
  plan.possible = false;  // the library rejects the algorithm that it chose
  return false;
}

}  // namespace coshard::kernels::cuda
