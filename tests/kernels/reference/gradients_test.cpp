#include <functional>

#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::reference {
namespace {
using namespace testing;

constexpr DType kF64 = DType::F64;

// Checks d(sum_i weight[i] * y[i])/dx against central differences; forward() fills y from x.
void expect_gradient(Data& x, const Data& gradient, const Data& weight, Data& y,
                     const std::function<void()>& forward, const std::string& what) {
  constexpr double kStep = 1e-5;
  const auto loss = [&] {
    forward();
    double sum = 0;
    for (std::int64_t i = 0; i < y.count(); ++i) sum += weight.get(i) * y.get(i);
    return sum;
  };
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double old = x.get(i);
    x.set(i, old + kStep);
    const double up = loss();
    x.set(i, old - kStep);
    const double down = loss();
    x.set(i, old);
    const double want = (up - down) / (2 * kStep);
    ASSERT_NEAR(gradient.get(i), want, 1e-7 * (1 + std::abs(want))) << what << " element " << i;
  }
  forward();
}

TEST(Gradients, OfUnaryFunctionsAreTheirSlopes) {
  for (const UnaryOp op : every_unary_op()) {
    const bool positive = op == UnaryOp::Sqrt || op == UnaryOp::Rsqrt || op == UnaryOp::Log ||
                          op == UnaryOp::Log1p || op == UnaryOp::PowScalar ||
                          op == UnaryOp::Reciprocal;
    Data x = Data::normal(kF64, 20, 1, 2);
    if (positive)
      for (int i = 0; i < 20; ++i) x.set(i, 0.5 + std::abs(x.get(i)));
    const Data dy = Data::normal(kF64, 20, 2);
    Data y(kF64, 20);
    Data dx(kF64, 20);
    const auto forward = [&] { run(Unary{op, kF64, 20, x.ptr(), y.ptr(), 0.3, 1.1}); };
    forward();
    const void* from = is_from_result(op) ? y.ptr() : x.ptr();
    run(UnaryGrad{op, kF64, 20, dy.ptr(), from, dx.ptr(), 0.3, 1.1});
    expect_gradient(x, dx, dy, y, forward, std::string(to_string(op)));
  }
}

TEST(Gradients, OfSwiGluAreItsSlopes) {
  Data a = Data::normal(kF64, 20, 1, 2);
  Data b = Data::normal(kF64, 20, 2);
  const Data dy = Data::normal(kF64, 20, 3);
  Data y(kF64, 20);
  Data da(kF64, 20);
  Data db(kF64, 20);
  run(SwiGluGrad{kF64, 20, dy.ptr(), a.ptr(), b.ptr(), da.ptr(), db.ptr()});
  const auto forward = [&] { run(SwiGlu{kF64, 20, a.ptr(), b.ptr(), y.ptr()}); };
  expect_gradient(a, da, dy, y, forward, "a");
  expect_gradient(b, db, dy, y, forward, "b");
}

TEST(Gradients, OfSoftmaxAreItsSlopes) {
  for (bool log : {false, true}) {
    Data x = Data::normal(kF64, 2 * 5 * 3, 1);
    const Data dy = Data::normal(kF64, 30, 2);
    Data y(kF64, 30);
    Data dx(kF64, 30);
    const auto forward = [&] { run(Softmax{kF64, log, 2, 5, 3, x.ptr(), y.ptr()}); };
    forward();
    run(SoftmaxGrad{kF64, log, 2, 5, 3, dy.ptr(), y.ptr(), dx.ptr()});
    expect_gradient(x, dx, dy, y, forward, "softmax");
  }
}

TEST(Gradients, OfLayerNormAreItsSlopes) {
  Data x = Data::normal(kF64, 4 * 7, 1, 2);
  Data w = Data::normal(kF64, 7, 2);
  Data b = Data::normal(kF64, 7, 3);
  const Data dy = Data::normal(kF64, 28, 4);
  Data y(kF64, 28);
  Data mean(kF64, 4);
  Data rstd(kF64, 4);
  Data dx(kF64, 28);
  Data dw(kF64, 7);
  Data db(kF64, 7);
  const auto forward = [&] {
    run(LayerNorm{kF64, 4, 7, 1e-5, x.ptr(), w.ptr(), b.ptr(), y.ptr(), mean.ptr(), rstd.ptr()});
  };
  forward();
  run(LayerNormGrad{kF64, 4, 7, dy.ptr(), x.ptr(), w.ptr(), mean.ptr(), rstd.ptr(), dx.ptr(),
                    dw.ptr(), db.ptr()});
  expect_gradient(x, dx, dy, y, forward, "x");
  expect_gradient(w, dw, dy, y, forward, "weight");
  expect_gradient(b, db, dy, y, forward, "bias");
}

TEST(Gradients, OfRmsNormAreItsSlopes) {
  Data x = Data::normal(kF64, 4 * 7, 1, 2);
  Data w = Data::normal(kF64, 7, 2);
  const Data dy = Data::normal(kF64, 28, 4);
  Data y(kF64, 28);
  Data rstd(kF64, 4);
  Data dx(kF64, 28);
  Data dw(kF64, 7);
  const auto forward = [&] {
    run(RmsNorm{kF64, 4, 7, 1e-5, x.ptr(), w.ptr(), y.ptr(), rstd.ptr()});
  };
  forward();
  run(RmsNormGrad{kF64, 4, 7, dy.ptr(), x.ptr(), w.ptr(), rstd.ptr(), dx.ptr(), dw.ptr()});
  expect_gradient(x, dx, dy, y, forward, "x");
  expect_gradient(w, dw, dy, y, forward, "weight");
}

TEST(Gradients, OfEmbeddingAreItsSlopes) {
  const Data ids = Data::integers(DType::I64, 9, 1, 0, 5);
  Data weight = Data::normal(kF64, 4 * 3, 2);
  const Data dout = Data::normal(kF64, 27, 3);
  Data out(kF64, 27);
  Data dw(kF64, 12);
  run(EmbeddingGrad{kF64, DType::I64, 9, 4, 3, 1, -1, ids.ptr(), dout.ptr(), dw.ptr()});
  const auto forward = [&] {
    run(Embedding{kF64, DType::I64, 9, 4, 3, 1, ids.ptr(), weight.ptr(), out.ptr()});
  };
  expect_gradient(weight, dw, dout, out, forward, "weight");
}

TEST(Gradients, OfRopeAreItsInverse) {
  Data x = Data::normal(kF64, 2 * 3 * 2 * 6, 1);
  const std::vector<std::int64_t> shape = {2, 3, 2, 6};
  Data dy = Data::normal(kF64, 72, 2);
  Data y(kF64, 72);
  Data dx(kF64, 72);
  run(Rope{dx.view(shape), dy.view(shape), 4, 100, true});
  const auto forward = [&] { run(Rope{y.view(shape), x.view(shape), 4, 100, false}); };
  expect_gradient(x, dx, dy, y, forward, "x");
}

TEST(Gradients, OfAttentionAreItsSlopes) {
  for (bool causal : {false, true}) {
    const std::vector<std::int64_t> wide = {1, 4, 3, 5};
    const std::vector<std::int64_t> narrow = {1, 2, 6, 5};
    Data q = Data::normal(kF64, 60, 1);
    Data k = Data::normal(kF64, 60, 2);
    Data v = Data::normal(kF64, 60, 3);
    Data dout = Data::normal(kF64, 60, 4);
    Data out(kF64, 60);
    Data lse(kF64, 12);
    Data dq(kF64, 60);
    Data dk(kF64, 60);
    Data dv(kF64, 60);
    Data mask = Data::normal(kF64, 4 * 3 * 6, 5);
    Data dmask(kF64, 4 * 3 * 6);
    const View bias = mask.view({1, 4, 3, 6});
    const auto forward = [&] {
      run(Attention{out.view(wide), q.view(wide), k.view(narrow), v.view(narrow), lse.ptr(), 0.4,
                    causal, 3, bias});
    };
    forward();
    run(AttentionGrad{dq.view(wide), dk.view(narrow), dv.view(narrow), dout.view(wide),
                      out.view(wide), q.view(wide), k.view(narrow), v.view(narrow), lse.ptr(), 0.4,
                      causal, 3, bias, dmask.view({1, 4, 3, 6})});
    expect_gradient(q, dq, dout, out, forward, "q");
    expect_gradient(k, dk, dout, out, forward, "k");
    expect_gradient(v, dv, dout, out, forward, "v");
    expect_gradient(mask, dmask, dout, out, forward, "mask");
  }
}

// The loss that the pieces make on one rank: max + log(sum) - (1-s) picked - s/classes total, times
// scale.
TEST(Gradients, OfCrossEntropyAreItsSlopes) {
  for (double smoothing : {0.0, 0.2}) {
    Data logits = Data::normal(kF64, 3 * 6, 1);
    Data target = Data::integers(DType::I64, 3, 2, 0, 5);
    target.set(1, -100);
    const Data scale = Data::normal(kF64, 3, 3);
    Data max(kF64, 3);
    Data sum(kF64, 3);
    Data picked(kF64, 3);
    Data total(kF64, 3);
    Data loss(kF64, 3);
    Data dlogits(kF64, 18);
    const auto forward = [&] {
      run(CrossEntropyStats{kF64, 3, 6, 0, -100, logits.ptr(), target.ptr(), max.ptr(), sum.ptr(),
                            picked.ptr(), total.ptr()});
      for (int r = 0; r < 3; ++r) {
        const double value = max.get(r) + std::log(sum.get(r)) - (1 - smoothing) * picked.get(r) -
                             smoothing / 6 * total.get(r);
        loss.set(r, target.get(r) == -100 ? 0 : value);
      }
    };
    forward();
    run(CrossEntropyGrad{kF64, 3, 6, 0, -100, smoothing, 6, logits.ptr(), target.ptr(), max.ptr(),
                         sum.ptr(), scale.ptr(), dlogits.ptr()});
    expect_gradient(logits, dlogits, scale, loss, forward, "logits");
  }
}

}  // namespace
}  // namespace coshard::kernels::reference
