#include <random>

#include <coshard/runtime/error.h>
#include "kernels/cuda/lt_api.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/kernels/cuda/products.h"

namespace coshard::kernels {
namespace {

using namespace testing;

struct Product {
  std::int64_t batch, m, n, k;  // batch 0: two dimensions
  int turns;                    // bits: a, b, out are transposed in memory
};

std::string to_text(const Product& c) {
  return str_cat(c.batch, "x", c.m, "x", c.n, "x", c.k, " turns ", c.turns, " ");
}

View matrix_view(Data& data, std::int64_t batch, std::int64_t rows, std::int64_t columns,
                 bool turn) {
  if (batch == 0)
    return data.view({rows, columns}, turn ? std::vector<int>{1, 0} : std::vector<int>{});
  return data.view({batch, rows, columns}, turn ? std::vector<int>{0, 2, 1} : std::vector<int>{});
}

Data filled_matrix(DType dtype, std::int64_t count, unsigned seed) {
  return is_floating(dtype) ? Data::normal(dtype, count, seed)
                            : Data::integers(dtype, count, seed, -9, 9);
}

// Arrays and arguments of one product, on the host.
struct Problem {
  Problem(DType dtype, const Product& c)
      : batch(c.batch == 0 ? 1 : c.batch),
        a(filled_matrix(dtype, batch * c.m * c.k, 1)),
        b(filled_matrix(dtype, batch * c.k * c.n, 2)),
        out(filled_matrix(dtype, batch * c.m * c.n, 3)),
        bias(filled_matrix(dtype, c.n, 4)),
        aux(filled_matrix(dtype, batch * c.m * std::max(c.n, std::int64_t{1}), 5)) {
    args.out = matrix_view(out, c.batch, c.m, c.n, (c.turns & 4) != 0);
    args.a = matrix_view(a, c.batch, c.m, c.k, (c.turns & 1) != 0);
    args.b = matrix_view(b, c.batch, c.k, c.n, (c.turns & 2) != 0);
  }

  std::int64_t batch;
  Data a, b, out, bias, aux;
  Matmul args;
  bool with_bias = false;
};

// Runs the problem here and there, and compares what both leave in `out` and `aux`.
void compare(OnDevice& on, Problem& p, double close, const std::string& what) {
  Data want = p.out, want_aux = p.aux;
  Matmul here = p.args;
  here.out.data = want.ptr();
  here.bias = p.with_bias ? p.bias.ptr() : nullptr;
  here.aux = want_aux.ptr();
  reference::run(here);
  Matmul there = p.args;
  there.out = on.put(p.args.out, p.out);
  there.a = on.put(p.args.a, p.a);
  there.b = on.put(p.args.b, p.b);
  there.bias = p.with_bias ? on.put(p.bias) : nullptr;
  there.aux = p.args.epilogue == Epilogue::None ? nullptr : on.put(p.aux);
  on.run(there);
  expect_close(on.get(p.out), want, close, what);
  if (there.aux != nullptr) expect_close(on.get(p.aux), want_aux, close, what + " aux");
}

void check(DType dtype, const Product& c, double alpha = 1, double beta = 0) {
  Problem p(dtype, c);
  p.args.alpha = alpha;
  p.args.beta = beta;
  OnDevice on;
  compare(on, p, product_tolerance(dtype, c.k),
          str_cat("matmul ", to_text(c), "alpha ", alpha, " beta ", beta));
}

const std::vector<DType> kAllProducts = {DType::F32, DType::F64, DType::BF16,
                                         DType::F16, DType::I64, DType::I32};

// --- plans ---

// The table in use with two calls looked at on their way.
class WatchedLt {
 public:
  WatchedLt() : below_(&cublas_lt()), table_(*below_) {
    current_ = this;
    table_.MatmulAlgoGetHeuristic = [](cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       cublasLtMatmulPreference_t preference, int wanted,
                                       cublasLtMatmulHeuristicResult_t* results, int* count) {
      ++current_->heuristics;
      return current_->below_->MatmulAlgoGetHeuristic(handle, desc, a, b, c, d, preference, wanted,
                                                      results, count);
    };
    table_.MatmulDescCreate = [](cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                 cudaDataType_t scale) {
      current_->compute = compute;
      return current_->below_->MatmulDescCreate(desc, compute, scale);
    };
    use_cublas_lt(&table_);
  }
  ~WatchedLt() { use_cublas_lt(below_); }
  WatchedLt(const WatchedLt&) = delete;
  WatchedLt& operator=(const WatchedLt&) = delete;
  CublasLtApi& table() { return table_; }

  int heuristics = 0;
  cublasComputeType_t compute = CUBLAS_COMPUTE_16F;

 private:
  inline static WatchedLt* current_ = nullptr;
  const CublasLtApi* below_;
  CublasLtApi table_;
};

void run_once(OnDevice& on, Problem& p) {
  on.run(Matmul{on.put(p.args.out, p.out), on.put(p.args.a, p.a), on.put(p.args.b, p.b)});
}

TEST(CudaMatmul, MatchesTheReferenceForEveryTransposition) {
  const std::int64_t sizes[][3] = {{1, 1, 1},   {3, 17, 5},  {64, 64, 64}, {40, 1, 63},
                                   {1, 40, 17}, {17, 33, 1}, {30, 57, 100}};
  for (const DType dtype : kAllProducts)
    for (const auto& s : sizes)
      for (int turns = 0; turns < 8; ++turns) {
        check(dtype, {0, s[0], s[1], s[2], turns});
        check(dtype, {0, s[0], s[1], s[2], turns}, 2, 1);
      }
}

TEST(CudaMatmul, TakesRandomShapes) {
  std::mt19937 engine(7);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  };
  for (int i = 0; i < 60; ++i) {
    const DType dtype = kFloating[static_cast<std::size_t>(i) % kFloating.size()];
    const Product c{draw(0, 4), draw(1, 40), draw(1, 40), draw(1, 90),
                    static_cast<int>(draw(0, 7))};
    check(dtype, c, 0.5, static_cast<double>(draw(0, 2)) / 2);
  }
}

TEST(CudaMatmul, RunsBatches) {
  for (const DType dtype : kAllProducts)
    for (int turns = 0; turns < 8; ++turns) {
      check(dtype, {3, 17, 20, 9, turns});
      check(dtype, {3, 17, 20, 9, turns}, -2, 2);
      check(dtype, {1, 4, 5, 6, turns}, 1, 1);
    }
}

TEST(CudaMatmul, TakesEmptyOperands) {
  for (const DType dtype : kAllProducts) {
    for (const double beta : {0.0, 2.0}) {
      check(dtype, {0, 0, 3, 4, 0}, 1, beta);
      check(dtype, {0, 3, 0, 4, 0}, 1, beta);
      check(dtype, {0, 3, 4, 0, 0}, 1, beta);
      check(dtype, {2, 3, 4, 0, 5}, 1, beta);
      check(dtype, {2, 0, 4, 3, 0}, 1, beta);
    }
  }
}

// --- epilogues ---

TEST(CudaMatmul, AddsABiasToEachRow) {
  for (const DType dtype : kFloating)
    for (const std::int64_t n : {1, 16, 21})
      for (const std::int64_t batch : {0, 3})
        for (int turns = 0; turns < 8; ++turns)
          for (const std::int64_t k : {0, 11}) {
            const Product c{batch, 13, n, k, turns};
            Problem p(dtype, c);
            p.with_bias = true;
            p.args.beta = turns % 2;
            OnDevice on;
            compare(on, p, product_tolerance(dtype, k), "bias " + to_text(c));
          }
}

TEST(CudaMatmul, GivesGeluAndItsGradient) {
  for (const DType dtype : kFloating)
    for (const Epilogue epilogue : {Epilogue::Gelu, Epilogue::GeluGrad})
      for (const std::int64_t n : {16, 21})
        for (const std::int64_t batch : {0, 2})
          for (int turns = 0; turns < 4; ++turns)
            for (const bool bias : {false, true}) {
              const Product c{batch, 6, n, 9, turns};
              Problem p(dtype, c);
              p.with_bias = bias;
              p.args.epilogue = epilogue;
              OnDevice on;
              // where the two do not round the product alike, the function follows
              compare(on, p, 2 * product_tolerance(dtype, 9), "gelu " + to_text(c));
            }
}

TEST(CudaMatmul, SumsTheRowsOfAForAGradientOfABias) {
  for (const DType dtype : kFloating)
    for (const bool bias : {false, true})
      for (int turns = 0; turns < 8; ++turns)
        for (const std::int64_t k : {0, 30}) {
          const Product c{0, 7, 12, k, turns};
          Problem p(dtype, c);
          p.aux = Data(dtype, 7);
          p.with_bias = bias;
          p.args.epilogue = Epilogue::BiasGrad;
          OnDevice on;
          compare(on, p, product_tolerance(dtype, k), "bias gradient " + to_text(c));
        }
}

TEST(CudaMatmul, RefusesWhatItDoesNotTake) {
  Problem ints(DType::I32, {0, 2, 2, 2, 0});
  OnDevice on;
  Matmul args = ints.args;
  args.bias = on.put(ints.bias);
  EXPECT_THROW(on.run(args), Error);
  Problem turned(DType::F32, {0, 2, 3, 2, 4});
  args = turned.args;
  args.epilogue = Epilogue::Gelu;
  args.aux = on.put(turned.aux);
  EXPECT_THROW(on.run(args), Error);
  args.epilogue = Epilogue::None;
  args.a.dtype = DType::F64;
  EXPECT_THROW(on.run(args), Error);
}

TEST(CudaMatmul, AsksForAnAlgorithmOnceForEachKindOfProduct) {
  WatchedLt watched;
  OnDevice on;
  watched.heuristics = 0;  // after that of the device's own
  Problem first(DType::F32, {0, 8, 16, 24, 0}), same = first, other(DType::F32, {0, 8, 16, 24, 1});
  for (int i = 0; i < 3; ++i) run_once(on, first);
  run_once(on, same);
  EXPECT_EQ(watched.heuristics, 1);
  run_once(on, other);
  EXPECT_EQ(watched.heuristics, 2);
  Problem narrow(DType::BF16, {0, 8, 16, 24, 0});
  run_once(on, narrow);
  EXPECT_EQ(watched.heuristics, 3);
  EXPECT_EQ(watched.compute, CUBLAS_COMPUTE_32F);
  on.device().synchronize();
}

TEST(CudaMatmul, RoundsF32OnlyWhereTheCallerAsksForIt) {
  for (const bool asked : {false, true}) {
    WatchedLt watched;
    CudaOptions options;
    options.tf32 = asked;
    const auto device = std::static_pointer_cast<CudaDevice>(make_cuda_device(std::move(options)));
    const auto memory = device->make_buffer(3 * 64 * sizeof(float));
    auto* at = static_cast<float*>(memory->data());
    const std::vector<float> ones(3 * 64, 1);
    device->upload(at, ones.data(), memory->bytes());
    const View a = {at, DType::F32, 2, {8, 8}, {8, 1}};
    View b = a, out = a;
    b.data = at + 64;
    out.data = at + 128;
    cuda::run(*device, Matmul{out, a, b});
    EXPECT_EQ(watched.compute, asked ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
    device->synchronize();
  }
}

TEST(CudaMatmul, NamesTheProductThatFails) {
  WatchedLt watched;
  OnDevice on;  // which makes a product of its own
  watched.table().Matmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                              cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t,
                              const void*, const void*, cublasLtMatrixLayout_t, void*,
                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*, void*,
                              std::size_t, cudaStream_t) { return CUBLAS_STATUS_EXECUTION_FAILED; };
  Problem p(DType::BF16, {0, 8, 16, 24, 0});
  try {
    run_once(on, p);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::DeviceFailed);
    EXPECT_NE(std::string(error.what())
                  .find("cublasLtMatmul m=16 n=8 k=24 bf16: "
                        "CUBLAS_STATUS_EXECUTION_FAILED"),
              std::string::npos)
        << error.what();
  }
  on.device().synchronize();
}

}  // namespace
}  // namespace coshard::kernels
