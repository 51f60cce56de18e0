// What observers are told: names of collectives, and kernels that begin and end.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include <coshard/runtime/device/device.h>
#include <coshard/runtime/observer.h>

namespace coshard {
namespace {

TEST(ObserverCalls, EveryCollectiveHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int k = 0; k <= static_cast<int>(CollectiveKind::Recv); ++k)
    names.insert(to_string(static_cast<CollectiveKind>(k)));
  EXPECT_EQ(names.size(), 9U);
  EXPECT_EQ(to_string(CollectiveKind::ReduceScatter), "reduce_scatter");
}

TEST(ObserverCalls, AKernelEndsAlsoWhenItFails) {
  struct Seen final : Observer {
    void computing(std::string_view op, ComputeClass, const DescribeInputs& inputs) override {
      begun += op;
      worked_on = inputs();
    }
    void computed(std::string_view op, ComputeClass what, std::int64_t begin,
                  std::int64_t end) override {
      ended += op;
      in_order = begin <= end && what == ComputeClass::Gemm;
    }
    std::string begun, ended, worked_on;
    bool in_order = false;
  } seen;
  EXPECT_THROW(
      {
        const auto device = make_cpu_device(1);
        const Computing matmul(seen, *device, "matmul", ComputeClass::Gemm,
                               [] { return "f32[2,3]"; });
        EXPECT_EQ(seen.worked_on, "f32[2,3]");
        EXPECT_EQ(seen.begun, "matmul");
        EXPECT_EQ(seen.ended, "");
        throw 1;
      },
      int);
  EXPECT_EQ(seen.ended, "matmul");
  EXPECT_TRUE(seen.in_order);
}

}  // namespace
}  // namespace coshard
