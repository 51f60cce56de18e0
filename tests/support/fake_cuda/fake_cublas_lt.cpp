#include "tests/support/fake_cuda/fake_cublas_lt.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "kernels/cuda/lt_api.h"
#include "tests/support/fake_cuda/fake_driver.h"
#include "tests/support/fake_cuda/fake_product.h"

namespace coshard::testing {
namespace {

#define ENTER(name) \
  if (const int fault = driver().enter(name); fault != 0) return static_cast<cublasStatus_t>(fault)

FakeDriver& driver() { return FakeDriver::get(); }
constexpr const char* kProduct = "cublasLtMatmul";

struct FakeHandle {
  int device;
};
struct FakePreference {
  std::uint64_t workspace = 0;
  std::uint32_t aligned[4] = {256, 256, 256, 256};  // a, b, c, d
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};

FakeLayout& of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<FakeLayout*>(layout); }
FakeDesc& of(cublasLtMatmulDesc_t desc) { return *reinterpret_cast<FakeDesc*>(desc); }
FakePreference& of(cublasLtMatmulPreference_t p) { return *reinterpret_cast<FakePreference*>(p); }

cublasStatus_t waited(bool over) {
  return over ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

// cuBLAS, cublasLtCreate: it allocates resources of the device.
cublasStatus_t create(cublasLtHandle_t* handle) {
  ENTER("cublasLtCreate");
  const int device = FakeDriver::current_device();
  *handle = reinterpret_cast<cublasLtHandle_t>(new FakeHandle{device});
  return waited(driver().may_wait_for_device(device, "cublasLtCreate"));
}
// cuBLAS, cublasLtDestroy: it calls cudaDeviceSynchronize.
cublasStatus_t destroy(cublasLtHandle_t handle) {
  ENTER("cublasLtDestroy");
  const int device = reinterpret_cast<FakeHandle*>(handle)->device;
  delete reinterpret_cast<FakeHandle*>(handle);
  return waited(driver().wait_for_device(device, "cublasLtDestroy"));
}

const char* status_name(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}
std::size_t library_version() { return 130000; }

// --- descriptors ---

// Copies an attribute of the given size into a field; false for another size.
template <class Field>
bool put(Field& field, const void* from, std::size_t bytes) {
  if (bytes != sizeof field) return false;
  std::memcpy(&field, from, bytes);
  return true;
}
cublasStatus_t status_of(bool valid) {
  return valid ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t layout_create(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                             std::uint64_t rows, std::uint64_t columns, std::int64_t ld) {
  ENTER("cublasLtMatrixLayoutCreate");
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new FakeLayout{
      type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t layout_destroy(cublasLtMatrixLayout_t layout) {
  ENTER("cublasLtMatrixLayoutDestroy");
  delete &of(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t layout_set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
                          const void* value, std::size_t bytes) {
  ENTER("cublasLtMatrixLayoutSetAttribute");
  FakeLayout& to = of(layout);
  if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    return status_of(put(to.stride, value, bytes));
  std::int32_t batch = 0;
  if (which != CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT || !put(batch, value, bytes))
    return CUBLAS_STATUS_INVALID_VALUE;
  to.batch = batch;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t desc_create(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                           cudaDataType_t scale) {
  ENTER("cublasLtMatmulDescCreate");
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new FakeDesc{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t desc_destroy(cublasLtMatmulDesc_t desc) {
  ENTER("cublasLtMatmulDescDestroy");
  delete &of(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t desc_set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
                        const void* value, std::size_t bytes) {
  ENTER("cublasLtMatmulDescSetAttribute");
  FakeDesc& to = of(desc);
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return status_of(put(to.transpose_a, value, bytes));
    case CUBLASLT_MATMUL_DESC_TRANSB: return status_of(put(to.transpose_b, value, bytes));
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return status_of(put(to.epilogue, value, bytes));
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return status_of(put(to.bias, value, bytes));
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return status_of(put(to.aux, value, bytes));
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return status_of(put(to.aux_ld, value, bytes));
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return status_of(put(to.aux_stride, value, bytes));
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return status_of(put(to.multiprocessors, value, bytes));
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t preference_create(cublasLtMatmulPreference_t* preference) {
  ENTER("cublasLtMatmulPreferenceCreate");
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new FakePreference());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t preference_destroy(cublasLtMatmulPreference_t preference) {
  ENTER("cublasLtMatmulPreferenceDestroy");
  delete &of(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t preference_set(cublasLtMatmulPreference_t preference,
                              cublasLtMatmulPreferenceAttributes_t which, const void* value,
                              std::size_t bytes) {
  ENTER("cublasLtMatmulPreferenceSetAttribute");
  FakePreference& to = of(preference);
  if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return status_of(put(to.workspace, value, bytes));
  if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    return status_of(put(to.reductions, value, bytes));
  const int operand = which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (operand < 0 || operand > 3) return CUBLAS_STATUS_NOT_SUPPORTED;
  return status_of(put(to.aligned[operand], value, bytes));
}

// --- the product ---

bool is_in_memory(const FakeLayout& m) {
  return m.rows > 0 && m.columns > 0 && m.ld >= m.rows && m.batch > 0 && m.stride >= 0;
}

bool fits(const FakeProduct& call) {
  const bool ta = call.desc.transpose_a != CUBLAS_OP_N, tb = call.desc.transpose_b != CUBLAS_OP_N;
  const FakeLayout &a = call.a, &b = call.b, &d = call.d;
  for (const FakeLayout* m : {&a, &b, &call.c, &d})
    if (!is_in_memory(*m) || m->type != d.type || m->batch != d.batch) return false;
  if (d.batch > 1 && d.stride < d.ld * (d.columns - 1) + d.rows) return false;  // they overlap
  const bool wide = d.type == CUDA_R_64F;
  if (wide != (call.desc.compute == CUBLAS_COMPUTE_64F)) return false;
  if (call.desc.scale != (wide ? CUDA_R_64F : CUDA_R_32F)) return false;
  return (ta ? a.columns : a.rows) == d.rows && (tb ? b.rows : b.columns) == d.columns &&
         (tb ? b.columns : b.rows) == call.depth() && call.c.ld == d.ld &&
         call.c.stride == d.stride;
}

// The library rejects epilogues in f64, and a gelu aux matrix of another layout.
bool supports(const FakeProduct& call) {
  if (call.desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
  if (call.d.type == CUDA_R_64F) return false;
  if (!call.has(128)) return call.desc.bias != nullptr;
  return call.desc.aux != nullptr && call.desc.aux_ld % 8 == 0 && call.desc.aux_ld >= call.d.rows &&
         call.desc.aux_stride % 8 == 0;
}

// Of the whole problem: an algorithm is valid only for the one it was chosen for.
std::uint64_t fingerprint(const FakeProduct& call) {
  std::uint64_t hash = call.desc.epilogue;
  const auto mix = [&](std::int64_t word) {
    hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x9e3779b97f4a7c15U;
  };
  mix(call.desc.transpose_a * 2 + call.desc.transpose_b);
  mix(call.desc.compute);
  mix(call.desc.multiprocessors);
  for (const FakeLayout* m : {&call.a, &call.b, &call.d})
    for (const std::int64_t word :
         {m->rows, m->columns, m->ld, m->batch, m->stride, static_cast<std::int64_t>(m->type)})
      mix(word);
  return hash;
}

// The alignments that an algorithm may rely on, one byte per operand.
std::uint64_t word_of(const FakePreference& preference) {
  std::uint64_t word = 0;
  for (const std::uint32_t aligned : preference.aligned)
    word = word << 8 | static_cast<std::uint64_t>(std::countr_zero(aligned));
  return word;
}
bool are_aligned(const FakeProduct& call, std::uint64_t word) {
  const void* operands[] = {call.left, call.right, call.old, call.result};
  for (int i = 0; i < 4; ++i)
    if (std::countr_zero(reinterpret_cast<std::uintptr_t>(operands[i])) <
        static_cast<int>(word >> (24 - 8 * i) & 255))
      return false;
  return true;
}

// Into how many slices the algorithm splits its sums; depends on all inputs of the heuristic.
std::uint64_t slices_of(const FakeProduct& call, const FakePreference& preference) {
  std::uint64_t hash = fingerprint(call);
  for (const std::uint32_t aligned : preference.aligned)
    hash = (hash ^ (aligned >= 16 ? 1 : 0)) * 0x9e3779b97f4a7c15U;
  hash = (hash ^ std::bit_width(preference.workspace)) * 0x9e3779b97f4a7c15U;
  return 1 + (hash >> 33) % 4;
}

std::size_t workspace_of(const FakeProduct& call) { return call.depth() > 64 ? 4096 : 0; }

cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                         cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                         int wanted, cublasLtMatmulHeuristicResult_t* results, int* count) {
  ENTER("cublasLtMatmulAlgoGetHeuristic");
  const FakeProduct call{of(desc), of(a), of(b), of(c), of(d)};
  *count = 0;
  if (!fits(call)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supports(call)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const std::uint32_t aligned : of(preference).aligned)
    if (aligned < 4) return CUBLAS_STATUS_NOT_SUPPORTED;
  // Sometimes more than one, and the first is not always one that can run.
  const auto number = static_cast<std::uint64_t>(call.d.rows % 3);
  for (std::uint64_t i = 0; i <= number && *count < wanted; ++i) {
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    const bool broken = i == 0 && number > 0;
    result.state = broken ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    result.algo.data[0] = broken ? 0 : fingerprint(call);
    result.algo.data[1] = slices_of(call, of(preference));
    result.algo.data[2] = word_of(of(preference));
    result.algo.data[3] = of(preference).reductions & (CUBLASLT_REDUCTION_SCHEME_INPLACE |
                                                       CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
    result.workspaceSize = workspace_of(call);
  }
  return CUBLAS_STATUS_SUCCESS;
}

double scalar(const void* value, cudaDataType_t type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(value)
                            : *static_cast<const float*>(value);
}

// Whether all operands are in memory of the device.
bool in_reach(const FakeProduct& call) {
  for (const void* data : {call.left, call.right, call.old, static_cast<const void*>(call.result)})
    if (!driver().knows(data)) return false;
  for (const void* data : {call.desc.bias, call.desc.aux})
    if (data != nullptr && !driver().knows(data)) return false;
  return true;
}

std::size_t width_of(cudaDataType_t type) {
  if (type == CUDA_R_64F) return 8;
  return type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 4;
}

// A column is contiguous.
void note(const void* data, const FakeLayout& m, bool writes) {
  const std::size_t width = width_of(m.type);
  for (std::int64_t g = 0; g < m.batch; ++g) {
    for (std::int64_t j = 0; j < m.columns; ++j) {
      const auto* at = static_cast<const char*>(data) +
                       static_cast<std::size_t>(g * m.stride + j * m.ld) * width;
      const std::size_t bytes = static_cast<std::size_t>(m.rows) * width;
      writes ? driver().writes(kProduct, at, bytes) : driver().reads(kProduct, at, bytes);
    }
  }
}

void note_accesses(const FakeProduct& call) {
  note(call.left, call.a, false);
  note(call.right, call.b, false);
  if (call.beta != 0) note(call.old, call.c, false);
  note(call.result, call.d, true);
  const bool left = call.has(CUBLASLT_EPILOGUE_BGRADA);
  const bool sums = left || call.has(CUBLASLT_EPILOGUE_BGRADB);
  const std::int64_t biases = sums && !left ? call.d.columns : call.d.rows;
  if (sums || call.has(CUBLASLT_EPILOGUE_BIAS))
    note(call.desc.bias, {call.d.type, biases, 1, biases}, sums);
  const bool kept = call.has(CUBLASLT_EPILOGUE_GELU_AUX);
  if (!kept && !call.has(CUBLASLT_EPILOGUE_DGELU)) return;
  note(call.desc.aux,
       {call.d.type, call.d.rows, call.d.columns, call.desc.aux_ld, call.d.batch,
        call.desc.aux_stride},
       kept);
}

cublasStatus_t multiply(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                        const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                        cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                        cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                        const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t bytes,
                        cudaStream_t stream) {
  ENTER("cublasLtMatmul");
  FakeProduct call{of(desc), of(a_layout), of(b_layout), of(c_layout), of(d_layout)};
  call.alpha = scalar(alpha, call.desc.scale);
  call.beta = scalar(beta, call.desc.scale);
  call.left = a;
  call.right = b;
  call.old = c;
  call.result = d;
  const std::size_t needed = workspace_of(call);
  call.slices = static_cast<int>(algorithm->data[1]);
  call.rounds = algorithm->data[3] != 0;
  const int device = reinterpret_cast<FakeHandle*>(handle)->device;
  const bool here = device == FakeDriver::current_device() &&
                    device == driver().stream(stream).device;  // cuBLAS, "cuBLASLt context"
  const bool room = needed == 0 || (bytes >= needed && driver().knows(workspace) &&
                                    reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0);
  if (!here || !room || !fits(call) || !supports(call) || !in_reach(call) ||
      !are_aligned(call, algorithm->data[2]) || algorithm->data[0] != fingerprint(call)) {
    driver().complain("cublasLtMatmul: wrong arguments");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  // The first matmul loads the library's kernels (XLA#38932).
  static const char library = 0;
  if (driver().first_use(device, &library) &&
      !driver().may_wait_for_device(device, "the first cublasLtMatmul"))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  driver().enqueue(driver().queue_on(stream), [call, workspace, needed] {
    if (needed > 0) driver().writes(kProduct, workspace, needed);
    if (needed > 0) std::memset(workspace, 0xff, needed);  // only this matmul may use it
    note_accesses(call);
    compute(call);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

void install_cublas_lt() {
  static const CublasLtApi table = [] {
    CublasLtApi api{};
    api.Create = create;
    api.Destroy = destroy;
    api.GetStatusName = status_name;
    api.GetStatusString = status_name;
    api.GetVersion = library_version;
    api.Matmul = multiply;
    api.MatmulAlgoGetHeuristic = heuristic;
    api.MatmulDescCreate = desc_create;
    api.MatmulDescDestroy = desc_destroy;
    api.MatmulDescSetAttribute = desc_set;
    api.MatmulPreferenceCreate = preference_create;
    api.MatmulPreferenceDestroy = preference_destroy;
    api.MatmulPreferenceSetAttribute = preference_set;
    api.MatrixLayoutCreate = layout_create;
    api.MatrixLayoutDestroy = layout_destroy;
    api.MatrixLayoutSetAttribute = layout_set;
    return api;
  }();
  use_cublas_lt(&table);
}

}  // namespace coshard::testing
