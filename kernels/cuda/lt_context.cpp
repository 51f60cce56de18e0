#include "kernels/cuda/lt_context.h"

#include <algorithm>
#include <bit>
#include <span>

#include "runtime/error.h"

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

// The largest power of two up to 256 that divides the address: what algorithms may count on.
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

class Layout {
 public:
  Layout(const LtMatrix& matrix, DType dtype, std::int64_t batch) {
    check_lt(cublas_lt().MatrixLayoutCreate(&layout_, lt_type(dtype),
                                            static_cast<std::uint64_t>(matrix.rows),
                                            static_cast<std::uint64_t>(matrix.columns), matrix.ld),
             "cublasLtMatrixLayoutCreate");
    if (batch == 1) return;
    set(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    set(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride);
  }
  ~Layout() { log_lt(cublas_lt().MatrixLayoutDestroy(layout_), "cublasLtMatrixLayoutDestroy"); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Description {
 public:
  Description(const LtProduct& p, bool tf32, int multiprocessors) {
    check_lt(cublas_lt().MatmulDescCreate(&desc_, compute_type(p.dtype, tf32),
                                          p.dtype == DType::F64 ? CUDA_R_64F : CUDA_R_32F),
             "cublasLtMatmulDescCreate");
    if (p.transpose_a) set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (p.transpose_b) set(desc_, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
    if (multiprocessors > 0)
      set(desc_, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<std::int32_t>(multiprocessors));
    if (p.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return;
    set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    point_to(p);
    if (p.aux == nullptr) return;
    set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.m);
    set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, p.batch == 1 ? 0 : p.m * p.n);
  }
  ~Description() { log_lt(cublas_lt().MatmulDescDestroy(desc_), "cublasLtMatmulDescDestroy"); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  // What differs between two products of one plan.
  void point_to(const LtProduct& p) {
    if (p.bias != nullptr) set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.aux != nullptr) set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
  }
  cublasLtMatmulDesc_t get() const { return desc_; }

 private:
  cublasLtMatmulDesc_t desc_ = nullptr;
};

class Preference {
 public:
  Preference() {
    check_lt(cublas_lt().MatmulPreferenceCreate(&preference_), "cublasLtMatmulPreferenceCreate");
  }
  ~Preference() {
    log_lt(cublas_lt().MatmulPreferenceDestroy(preference_), "cublasLtMatmulPreferenceDestroy");
  }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

std::string name_of(const char* call, const LtProduct& p) {
  return cat(call, " m=", p.m, " n=", p.n, " k=", p.k, p.batch > 1 ? cat(" batch=", p.batch) : "",
             " ", p.dtype);
}

}  // namespace

struct LtContext::Plan {
  Plan(const LtProduct& p, bool tf32, int multiprocessors)
      : description(p, tf32, multiprocessors),
        a(p.a, p.dtype, p.batch),
        b(p.b, p.dtype, p.batch),
        d(p.d, p.dtype, p.batch) {}
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

// NVIDIA's advice: 32 MiB from Hopper on, 4 MiB before.
std::size_t LtContext::workspace_bytes() const {
  return std::size_t{device_.capability() >= 90 ? 32U : 4U} << 20;
}

void* LtContext::workspace() {
  if (workspace_ == nullptr) workspace_ = device_.allocate(workspace_bytes());
  return workspace_;
}

int LtContext::multiprocessors() const {
  const int reserved = device_.reserved_multiprocessors();
  return reserved <= 0 ? 0 : std::max(1, device_.multiprocessors() - reserved);
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
          p.aux != nullptr ? 1 : 0,
          multiprocessors()};
}

void LtContext::choose_algorithm(Plan& plan, const LtProduct& p) const {
  const Preference preference;
  set(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes());
  set(preference.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.a.data));
  set(preference.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.b.data));
  set(preference.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.d.data));
  set(preference.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.d.data));
  std::array<cublasLtMatmulHeuristicResult_t, 4> results{};
  int count = 0;
  const cublasStatus_t status = cublas_lt().MatmulAlgoGetHeuristic(
      handle_, plan.description.get(), plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(),
      preference.get(), static_cast<int>(results.size()), results.data(), &count);
  if (!succeeded(status) && status != CUBLAS_STATUS_NOT_SUPPORTED)
    fail(ErrorKind::DeviceFailed,
         cat(name_of("cublasLtMatmulAlgoGetHeuristic", p), ": ", text_of(status)));
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
  auto plan = std::make_unique<Plan>(p, device_.tf32(), multiprocessors());
  choose_algorithm(*plan, p);
  return *plans_.emplace(key, std::move(plan)).first->second;
}

bool LtContext::run(const LtProduct& p) {
  CS_REQUIRE(p.batch <= INT32_MAX, name_of("matmul", p), ": the batch is too large");
  device_.make_current();
  Plan& plan = plan_of(p);
  if (!plan.possible) return false;
  plan.description.point_to(p);
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  const bool wide = p.dtype == DType::F64;
  void* space = plan.workspace_bytes > 0 ? workspace() : nullptr;
  const cublasStatus_t status = cublas_lt().Matmul(
      handle_, plan.description.get(), wide ? static_cast<const void*>(&p.alpha) : &alpha, p.a.data,
      plan.a.get(), p.b.data, plan.b.get(), wide ? static_cast<const void*>(&p.beta) : &beta,
      p.d.data, plan.d.get(), const_cast<void*>(p.d.data), plan.d.get(), &plan.algorithm, space,
      plan.workspace_bytes, static_cast<cudaStream_t>(device_.compute_stream().native()));
  if (!succeeded(status)) [[unlikely]]
    fail(ErrorKind::DeviceFailed, cat(name_of("cublasLtMatmul", p), ": ", text_of(status)));
  return true;
}

}  // namespace coshard::kernels::cuda
