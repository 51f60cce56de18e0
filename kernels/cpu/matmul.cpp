// Matmul of f32 and bf16 through oneDNN; the rest is packed (simd/matmul.cpp). Primitives are created
// once per thread and per shape, strides, dtype, scales and thread count.
#include <omp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include <coshard/runtime/error.h>
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/scratch.h"
#include "kernels/epilogue.h"
#include "kernels/libraries.h"
#include "kernels/matrix.h"

namespace coshard::kernels::cpu {
namespace {

using Dims = dnnl::memory::dims;

// About 30 KB each; cached per thread, and the cache is cleared when full. Also the capacity of
// oneDNN's global cache.
constexpr std::size_t kMaxPrimitives = 64;

struct Product {
  Matrix out, a, b;
  DType dtype;
  float alpha, beta;
};

// A contiguous copy in scratch memory, for operands with broadcast rows or columns or without a
// unit stride.
Matrix packed(const View& v, int slot) {
  View copy = v;
  std::int64_t count = 1;
  for (int d = v.ndim - 1; d >= 0; --d) {
    copy.strides[d] = count;
    count *= v.shape[d];
  }
  copy.data = scratch(slot, count);
  run(Copy{copy, v});
  return matrix_of(copy);
}

struct Key {
  std::array<std::int64_t, 17> words;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    std::uint64_t hash = 0;
    for (const std::int64_t word : key.words) {
      hash = (std::rotl(hash, 5) ^ static_cast<std::uint64_t>(word)) * 0x517cc1b727220a95U;
    }
    return hash ^ (hash >> 32);
  }
};

Key key_of(const Product& p) {
  return {{p.out.batch, p.out.rows, p.out.columns, p.a.columns, p.out.batch_stride,
           p.a.batch_stride, p.b.batch_stride, p.out.row_stride, p.a.row_stride, p.b.row_stride,
           p.a.column_stride, p.b.column_stride, p.out.column_stride,
           static_cast<std::int64_t>(p.dtype), std::bit_cast<std::int32_t>(p.alpha),
           std::bit_cast<std::int32_t>(p.beta), omp_get_max_threads()}};
}

dnnl::engine& cpu_engine() {
  static dnnl::engine engine = [] {
    dnnl::set_primitive_cache_capacity(kMaxPrimitives);  // oneDNN's process-wide cache
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

dnnl::memory::desc desc_of(const Matrix& m, DType dtype) {
  const auto type =
      dtype == DType::BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  const std::int64_t batch = m.batch_stride == 0 ? 1 : m.batch;
  return {Dims{batch, m.rows, m.columns}, type,
          Dims{m.batch_stride == 0 ? m.rows * m.columns : m.batch_stride, m.row_stride,
               m.column_stride}};
}

dnnl::memory::desc flat_desc_of(const Matrix& m, DType dtype) {
  const auto type =
      dtype == DType::BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  return {Dims{m.rows, m.columns}, type, Dims{m.row_stride, m.column_stride}};
}

dnnl::matmul::primitive_desc describe(const Product& p) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.alpha != 1) attr.set_output_scales(0, {p.alpha});
  if (p.beta != 0) {
    dnnl::post_ops sum;
    sum.append_sum(p.beta);
    attr.set_post_ops(sum);
  }
  const auto desc = p.out.batch == 1 ? flat_desc_of : desc_of;
  const dnnl::matmul::desc matmul(desc(p.a, p.dtype), desc(p.b, p.dtype), desc(p.out, p.dtype));
  return {matmul, attr, cpu_engine()};
}

// A primitive and its memory objects, whose addresses are set at each call.
class Planned {
 public:
  explicit Planned(const dnnl::matmul::primitive_desc& desc)
      : primitive_(desc),
        a_(desc.src_desc(), cpu_engine(), DNNL_MEMORY_NONE),
        b_(desc.weights_desc(), cpu_engine(), DNNL_MEMORY_NONE),
        out_(desc.dst_desc(), cpu_engine(), DNNL_MEMORY_NONE),
        scratchpad_(desc.scratchpad_desc(), cpu_engine(), DNNL_MEMORY_NONE),
        scratch_floats_(desc.scratchpad_desc().get_size() / sizeof(float) + 1),
        args_{{{DNNL_ARG_SRC, a_.get()},
               {DNNL_ARG_WEIGHTS, b_.get()},
               {DNNL_ARG_DST, out_.get()},
               {DNNL_ARG_SCRATCHPAD, scratchpad_.get()}}} {}

  void execute(const Product& p, dnnl::stream& stream) {
    dnnl_memory_set_data_handle(a_.get(), p.a.data);
    dnnl_memory_set_data_handle(b_.get(), p.b.data);
    dnnl_memory_set_data_handle(out_.get(), p.out.data);
    dnnl_memory_set_data_handle(scratchpad_.get(), scratch(7, scratch_floats_));
    const dnnl_status_t status = dnnl_primitive_execute(
        primitive_.get(), stream.get(), static_cast<int>(args_.size()), args_.data());
    if (status != dnnl_success) {
      fail(ErrorKind::DeviceFailed, str_cat("oneDNN matmul failed with status ", int(status)));
    }
  }

 private:
  dnnl::matmul primitive_;
  dnnl::memory a_, b_, out_, scratchpad_;
  std::size_t scratch_floats_;
  std::array<dnnl_exec_arg_t, 4> args_;
};

// Whether oneDNN's sgemm is faster for this matmul. Measured on AVX-512, one thread, 2048 and 512
// rows, widths of 128 to 688: it wins by 5 to 35 %, except for a transposed b with k > n, where the
// matmul primitive wins by 20 %.
bool suits_gemm(const Product& p) {
  if (p.dtype != DType::F32 || p.out.batch != 1 || p.out.column_stride != 1) return false;
  if (std::min({p.out.rows, p.out.columns, p.a.columns}) < 16) return false;
  const bool b_transposed = p.b.column_stride != 1;
  return !(b_transposed && p.a.columns > p.out.columns);
}

void run_gemm(const Product& p) {
  const bool ta = p.a.column_stride != 1, tb = p.b.column_stride != 1;
  const dnnl_status_t status =
      dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', p.out.rows, p.out.columns, p.a.columns, p.alpha,
                 static_cast<const float*>(p.a.data), ta ? p.a.column_stride : p.a.row_stride,
                 static_cast<const float*>(p.b.data), tb ? p.b.column_stride : p.b.row_stride,
                 p.beta, static_cast<float*>(p.out.data), p.out.row_stride);
  if (status != dnnl_success)
    fail(ErrorKind::DeviceFailed, str_cat("oneDNN gemm failed with status ", int(status)));
}

struct ThreadCache {
  dnnl::stream stream{cpu_engine()};
  std::unordered_map<Key, std::unique_ptr<Planned>, KeyHash> plans;
};

void execute(const Product& p) {
  thread_local ThreadCache cache;
  const Key key = key_of(p);
  auto found = cache.plans.find(key);
  if (found == cache.plans.end()) {
    if (cache.plans.size() >= kMaxPrimitives) cache.plans.clear();
    try {
      found = cache.plans.emplace(key, std::make_unique<Planned>(describe(p))).first;
    } catch (const dnnl::error& error) {
      fail(ErrorKind::Unsupported,
           str_cat("oneDNN matmul [", p.out.batch, ", ", p.out.rows, ", ", p.out.columns, "] over ",
                   p.a.columns, ": ", error.what()));
    }
  }
  found->second->execute(p, cache.stream);
}

bool has_bf16() {
#if defined(__x86_64__)
  static const bool has = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16;
  return has;
#else
  return false;
#endif
}

// Without an epilogue.
void run_product(const Matmul& args) {
  const DType dtype = args.out.dtype;
  const auto alpha = static_cast<float>(args.alpha), beta = static_cast<float>(args.beta);
  CS_REQUIRE(args.a.dtype == dtype && args.b.dtype == dtype,
             "matmul: dtypes differ: ", args.a.dtype, " and ", args.b.dtype, " into ", dtype);
  if (dtype != DType::F32 && dtype != DType::BF16) return run_packed(args);
  Product p = {matrix_of(args.out), matrix_of(args.a), matrix_of(args.b), dtype, alpha, beta};
  const bool empty = p.out.batch * p.out.rows * p.out.columns * p.a.columns == 0;
  if (empty || !is_plain(p.out)) return run_packed(args);
  if (is_few_rows(p.out, p.a, p.b)) return run(FewRows{p.out, p.a, p.b, dtype, alpha, beta});
  if (dtype == DType::BF16 && !has_bf16()) return run_packed(args);
  if (!is_plain(p.a)) p.a = packed(args.a, 0);
  if (!is_plain(p.b)) p.b = packed(args.b, 1);
  if (p.out.column_stride != 1) {
    p = {p.out.transposed(), p.b.transposed(), p.a.transposed(), dtype, p.alpha, p.beta};
  }
  if (p.out.batch > 1 && p.b.batch_stride == 0 && p.out.folds() && p.a.folds()) {
    p.out = p.out.folded();
    p.a = p.a.folded();
    p.b = p.b.single();
  }
  if (suits_gemm(p)) return run_gemm(p);
  execute(p);
}

}  // namespace

void run(const Matmul& args) {
  check_epilogue(args);
  Matmul product = args;
  product.bias = nullptr;
  product.epilogue = Epilogue::None;
  run_product(product);
  if (has_epilogue(args)) run_epilogue(args, [](const auto& kernel) { run(kernel); });
}

}  // namespace coshard::kernels::cpu

namespace coshard::kernels {

Libraries cpu_libraries() {
  const dnnl_version_t& v = *dnnl_version();
  return {{"oneDNN", str_cat(v.major, ".", v.minor, ".", v.patch)}};
}

}  // namespace coshard::kernels
