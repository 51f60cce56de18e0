// The values of the elementwise functions, computed elsewhere: all back ends share their bodies.
#include <limits>

#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::reference {
namespace {
using namespace testing;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
struct Known {
  UnaryOp op;
  double of[3];  // -1.75, 0.6, 3, with the parameters 0.25 and 1.5
};

TEST(UnaryValues, AreThoseOfPythonsMath) {
  // clang-format off
  const std::vector<Known> known = {
      {UnaryOp::Neg, {1.75, -0.6, -3.0}},
      {UnaryOp::Abs, {1.75, 0.6, 3.0}},
      {UnaryOp::Sign, {-1.0, 1.0, 1.0}},
      {UnaryOp::Floor, {-2.0, 0.0, 3.0}},
      {UnaryOp::Relu, {0.0, 0.6, 3.0}},
      {UnaryOp::LeakyRelu, {-0.4375, 0.6, 3.0}},
      {UnaryOp::Clamp, {0.25, 0.6, 1.5}},
      {UnaryOp::AddScalar, {-1.5, 0.85, 3.25}},
      {UnaryOp::MulScalar, {-0.4375, 0.15, 0.75}},
      {UnaryOp::PowScalar, {kNan, 0.8801117367933934, 1.3160740129524924}},
      {UnaryOp::Square, {3.0625, 0.36, 9.0}},
      {UnaryOp::Reciprocal, {-0.5714285714285714, 1.6666666666666667, 0.3333333333333333}},
      {UnaryOp::Sqrt, {kNan, 0.7745966692414834, 1.7320508075688772}},
      {UnaryOp::Rsqrt, {kNan, 1.2909944487358056, 0.5773502691896258}},
      {UnaryOp::Exp, {0.17377394345044514, 1.8221188003905089, 20.085536923187668}},
      {UnaryOp::Expm1, {-0.8262260565495549, 0.8221188003905089, 19.085536923187668}},
      {UnaryOp::Log, {kNan, -0.5108256237659907, 1.0986122886681098}},
      {UnaryOp::Log1p, {kNan, 0.4700036292457356, 1.3862943611198906}},
      {UnaryOp::Sin, {-0.9839859468739369, 0.5646424733950354, 0.1411200080598672}},
      {UnaryOp::Cos, {-0.17824605564949209, 0.8253356149096783, -0.9899924966004454}},
      {UnaryOp::Tanh, {-0.9413755384972874, 0.5370495669980353, 0.9950547536867305}},
      {UnaryOp::Erf, {-0.9866716712191824, 0.6038560908479259, 0.9999779095030014}},
      {UnaryOp::Sigmoid, {0.14804719803168948, 0.6456563062257954, 0.9525741268224334}},
      {UnaryOp::Softplus, {0.16022415043808724, 1.0374879504858856, 3.048587351573742}},
      {UnaryOp::Silu, {-0.25908259655545657, 0.3873937837354772, 2.8577223804672998}},
      {UnaryOp::Gelu, {-0.07010352451167991, 0.43544812934995586, 2.99595030590511}},
      {UnaryOp::GeluTanh, {-0.0702046176587487, 0.43541519923081473, 2.996362607918227}},
  };
  // clang-format on
  ASSERT_EQ(known.size(), every_unary_op().size());
  for (const Known& k : known) {
    Data x(DType::F64, 3), y(DType::F64, 3), want(DType::F64, 3);
    const double at[] = {-1.75, 0.6, 3};
    for (int i = 0; i < 3; ++i) x.set(i, at[i]), want.set(i, k.of[i]);
    run(Unary{k.op, DType::F64, 3, x.ptr(), y.ptr(), 0.25, 1.5});
    expect_close(y, want, 1e-14, std::string(to_string(k.op)));
  }
}

}  // namespace
}  // namespace coshard::kernels::reference
