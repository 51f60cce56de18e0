#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/iota.hpp>
#include <thread>

#include <coshard/runtime/error.h>
#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;
namespace views = ranges::views;

struct Product {
  std::int64_t batch, m, n, k;
  bool turn_a, turn_b, turn_out;
};

std::vector<std::int64_t> product_shape(std::int64_t batch, std::int64_t rows,
                                        std::int64_t columns) {
  if (batch == 0) return {rows, columns};
  return {batch, rows, columns};
}

View turned_view(Data& data, const std::vector<std::int64_t>& shape, bool turn) {
  if (!turn) return data.view(shape);
  return data.view(shape, shape.size() == 2 ? std::vector<int>{1, 0} : std::vector<int>{0, 2, 1});
}

void check(DType dtype, const Product& c, double alpha, double beta) {
  const std::int64_t batch = c.batch == 0 ? 1 : c.batch;
  Data a = Data::normal(dtype, batch * c.m * c.k, 1);
  Data b = Data::normal(dtype, batch * c.k * c.n, 2);
  Data got = Data::normal(dtype, batch * c.m * c.n, 3);
  Data want = got;
  Matmul args{turned_view(got, product_shape(c.batch, c.m, c.n), c.turn_out),
              turned_view(a, product_shape(c.batch, c.m, c.k), c.turn_a),
              turned_view(b, product_shape(c.batch, c.k, c.n), c.turn_b), alpha, beta};
  cpu::run(args);
  args.out.data = want.ptr();
  reference::run(args);
  const double size = dtype == DType::F64 ? 1 : 1 + std::sqrt(double(c.k));
  expect_close(got, want, tolerance(dtype) * size,
               str_cat("matmul ", c.batch, " ", c.m, " ", c.n, " ", c.k, " ", c.turn_a, c.turn_b,
                       c.turn_out, " alpha ", alpha, " beta ", beta));
}

TEST(Matmul, MatchesTheReferenceForEveryTransposition) {
  const std::int64_t sizes[][3] = {{1, 1, 1},      {3, 17, 5},   {64, 64, 64},
                                   {100, 1, 63},   {1, 100, 17}, {17, 33, 1},
                                   {70, 257, 100}, {1, 1, 300},  {2, 2, 2}};
  for (const auto& [dtype, s, turns] :
       views::cartesian_product(kFloating, sizes, views::iota(0, 8))) {
    const Product c{0, s[0], s[1], s[2], (turns & 1) != 0, (turns & 2) != 0, (turns & 4) != 0};
    check(dtype, c, 1, 0);
    check(dtype, c, 0.5, 1);
  }
}

TEST(Matmul, RunsBatches) {
  for (const auto& [dtype, turns] : views::cartesian_product(kFloating, views::iota(0, 8))) {
    check(dtype, {3, 17, 20, 9, (turns & 1) != 0, (turns & 2) != 0, (turns & 4) != 0}, 1, 0);
    check(dtype, {3, 17, 20, 9, (turns & 1) != 0, (turns & 2) != 0, (turns & 4) != 0}, -2, 0.5);
    check(dtype, {1, 4, 5, 6, (turns & 1) != 0, (turns & 2) != 0, false}, 1, 1);
  }
}

TEST(Matmul, TakesEmptyOperands) {
  for (DType dtype : kFloating) {
    check(dtype, {0, 0, 3, 4}, 1, 0);
    check(dtype, {0, 3, 0, 4}, 1, 0);
    check(dtype, {0, 3, 4, 0}, 1, 0);
    check(dtype, {2, 3, 4, 0}, 1, 0.5);
    check(dtype, {2, 0, 4, 3}, 1, 0);
  }
}

// The views that a transformer makes: heads of a [b, t, h*d] tensor, a shared weight, a broadcast
// gradient.
TEST(Matmul, TakesStridedAndBroadcastViews) {
  for (DType dtype : kFloating) {
    Data a = Data::normal(dtype, 4 * 12 * 40, 1);
    Data b = Data::normal(dtype, 4 * 20 * 40, 2);
    Data got(dtype, 4 * 12 * 40);
    Data want = got;
    const View heads = {a.ptr(), dtype, 3, {4, 12, 10}, {10, 40, 1}};
    const View shared = {b.ptr(), dtype, 3, {4, 10, 20}, {0, 1, 40}};
    const View same = {a.ptr(), dtype, 3, {4, 12, 10}, {480, 0, 1}};
    const View single = {a.ptr(), dtype, 3, {4, 12, 10}, {0, 0, 0}};
    const View strided = {a.ptr(), dtype, 3, {4, 12, 10}, {480, 40, 3}};
    const View plain = {a.ptr(), dtype, 3, {4, 12, 10}, {120, 10, 1}};
    for (const View& left : {heads, same, single, strided, plain}) {
      Matmul args{{got.ptr(), dtype, 3, {4, 12, 20}, {240, 20, 1}}, left, shared};
      args.beta = 0;
      cpu::run(args);
      args.out.data = want.ptr();
      reference::run(args);
      expect_close(got, want, tolerance(dtype) * 4, "views");
    }
  }
}

TEST(Matmul, FoldsABatchOfSingleColumnsOverASharedMatrix) {
  Data a = Data::normal(DType::F32, 4, 1), b = Data::normal(DType::F32, 5, 2);
  Data got = Data::normal(DType::F32, 20, 3), want = got;
  View column = a.view({2, 2, 1});
  column.strides[2] = 2;  // says nothing: the extent is 1
  View shared = b.view({2, 1, 5});
  shared.strides[0] = 0;
  Matmul args{got.view({2, 2, 5}), column, shared, 1, 0};
  cpu::run(args);
  args.out.data = want.ptr();
  reference::run(args);
  expect_close(got, want, tolerance(DType::F32), "folded columns");
}

TEST(Matmul, TakesABiasAndEpilogues) {
  for (DType dtype : kFloating) {
    for (const Epilogue epilogue :
         {Epilogue::None, Epilogue::Gelu, Epilogue::GeluGrad, Epilogue::BiasGrad}) {
      for (int turns = 0; turns < 8; ++turns) {
        Data a = Data::normal(dtype, 7 * 20, 1), b = Data::normal(dtype, 20 * 9, 2);
        Data bias = Data::normal(dtype, 9, 3);
        Data got = Data::normal(dtype, 7 * 9, 4), aux = Data::normal(dtype, 7 * 9, 5);
        Data want = got, want_aux = aux;
        Matmul args{got.view({7, 9}), turned_view(a, {7, 20}, (turns & 1) != 0),
                    turned_view(b, {20, 9}, (turns & 2) != 0), 0.5, 0};
        args.bias = (turns & 4) != 0 ? bias.ptr() : nullptr;
        args.epilogue = epilogue;
        args.aux = aux.ptr();
        cpu::run(args);
        args.out.data = want.ptr();
        args.aux = want_aux.ptr();
        reference::run(args);
        expect_close(got, want, tolerance(dtype) * 8, "epilogue");
        expect_close(aux, want_aux, tolerance(dtype) * 8, "aux");
      }
    }
  }
}

TEST(Matmul, RefusesEpiloguesOfIntegersAndOfStridedResults) {
  Data ints(DType::I32, 4), data(DType::F32, 6);
  Matmul args{ints.view({2, 2}), ints.view({2, 2}), ints.view({2, 2})};
  args.bias = ints.ptr();
  EXPECT_THROW(cpu::run(args), Error);
  args = {data.view({2, 3}, {1, 0}), data.view({2, 1}), data.view({1, 3})};
  args.epilogue = Epilogue::Gelu;
  args.aux = data.ptr();
  EXPECT_THROW(cpu::run(args), Error);
}

TEST(Matmul, GivesTheSameBitsOnSeveralThreadsAtOnce) {
  Data a = Data::normal(DType::F32, 60 * 50, 1);
  Data b = Data::normal(DType::F32, 50 * 70, 2);
  std::vector<Data> outs(4, Data(DType::F32, 60 * 70));
  std::vector<std::thread> threads;
  for (Data& out : outs) {
    threads.emplace_back([&a, &b, &out] {
      for (int i = 0; i < 50; ++i) {
        cpu::run(Matmul{out.view({60, 70}), a.view({60, 50}), b.view({50, 70}), 1, 0});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Data& out : outs) EXPECT_EQ(out, outs[0]);
}

}  // namespace
}  // namespace coshard::kernels
