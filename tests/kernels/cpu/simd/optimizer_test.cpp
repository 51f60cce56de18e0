#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/iota.hpp>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;
namespace views = ranges::views;

template <class Run>
std::vector<Data> adam_steps(DType dtype, std::int64_t count, bool with_master, bool amsgrad,
                             Run run) {
  const DType s = statistic(dtype);
  std::vector<Data> state = {Data::normal(dtype, count, 1), Data(s, count), Data(s, count),
                             Data::normal(s, count, 1), Data(s, count)};
  for (int step = 1; step <= 3; ++step) {
    const Data grad = Data::normal(dtype, count, 10 + step);
    const AdamWTensor of{count,
                         state[0].ptr(),
                         grad.ptr(),
                         state[1].ptr(),
                         state[2].ptr(),
                         with_master ? state[3].ptr() : nullptr,
                         amsgrad ? state[4].ptr() : nullptr};
    run(AdamW{dtype, {&of, 1}, 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, step});
  }
  return state;
}

TEST(AdamW, MatchesTheReferenceOverSteps) {
  for (const auto& [dtype, count, variant] :
       views::cartesian_product(kFloating, kCounts, views::iota(0, 4))) {
    const bool with_master = (variant & 1) != 0;
    const bool amsgrad = (variant & 2) != 0;
    const auto got =
        adam_steps(dtype, count, with_master, amsgrad, [](const auto& args) { cpu::run(args); });
    const auto want = adam_steps(dtype, count, with_master, amsgrad,
                                 [](const auto& args) { reference::run(args); });
    for (int i = 0; i < 5; ++i) expect_close(got[i], want[i], "adamw " + std::to_string(i));
  }
}

TEST(AdamW, MovesByTheLearningRateAtTheFirstStep) {
  Data param = Data::filled(DType::F32, 1, 1);
  const Data grad = Data::filled(DType::F32, 1, 3);
  Data m(DType::F32, 1);
  Data v(DType::F32, 1);
  const AdamWTensor of{1, param.ptr(), grad.ptr(), m.ptr(), v.ptr(), nullptr};
  cpu::run(AdamW{DType::F32, {&of, 1}, 0.1, 0.9, 0.95, 1e-12, 0.5, 1, 1});
  EXPECT_NEAR(param.get(0), 1 * (1 - 0.1 * 0.5) - 0.1, 1e-6);
}

template <class Run>
std::vector<Data> sgd_steps(DType dtype, std::int64_t count, int variant, Run run) {
  const bool with_momentum = variant > 0;
  const bool nesterov = variant == 2;
  const double dampening = variant == 3 ? 0.3 : 0;
  std::vector<Data> state = {Data::normal(dtype, count, 1), Data::normal(dtype, count, 2)};
  for (int step = 0; step < 3; ++step) {
    const Data grad = Data::normal(dtype, count, 10 + step);
    run(Sgd{dtype, count, state[0].ptr(), grad.ptr(), with_momentum ? state[1].ptr() : nullptr, 0.1,
            0.9, 0.01, 0.5, step == 0, dampening, nesterov});
  }
  return state;
}

TEST(Sgd, MatchesTheReferenceOverSteps) {
  // plain, momentum, nesterov, dampening
  for (const auto& [dtype, count, variant] :
       views::cartesian_product(kFloating, kCounts, views::iota(0, 4))) {
    const auto got = sgd_steps(dtype, count, variant, [](const auto& args) { cpu::run(args); });
    const auto want =
        sgd_steps(dtype, count, variant, [](const auto& args) { reference::run(args); });
    for (int i = 0; i < 2; ++i) expect_close(got[i], want[i], "sgd " + std::to_string(i));
  }
}

}  // namespace
}  // namespace coshard::kernels
