// A product is the same, to the last bit, whatever collectives are in flight beside it.
#include <atomic>

#include "kernels/cuda/lt_context.h"
#include "tests/runtime/comm/nccl/nccl_ranks.h"

namespace coshard::testing {
namespace {

using kernels::cuda::LtContext;
using kernels::cuda::LtProduct;

std::atomic<int> algorithms_asked_for{0};
const CublasLtApi* below_counting = nullptr;

// The table in use, which counts how often an algorithm is asked for.
class CountingLt {
 public:
  CountingLt() : table_(cublas_lt()) {
    below_counting = &cublas_lt();
    algorithms_asked_for = 0;
    table_.MatmulAlgoGetHeuristic = [](auto... arguments) {
      ++algorithms_asked_for;
      return below_counting->MatmulAlgoGetHeuristic(arguments...);
    };
    use_cublas_lt(&table_);
  }
  ~CountingLt() { use_cublas_lt(below_counting); }
  CountingLt(const CountingLt&) = delete;
  CountingLt& operator=(const CountingLt&) = delete;

 private:
  CublasLtApi table_;
};

TEST(NcclProducts, AreTheSameBesideCollectivesInFlight) {
  const CountingLt counting;
  constexpr std::int64_t kSide = 16;
  on_nccl_ranks({.ranks = 2}, [](NcclRank& mine) {
    std::vector<float> values(kSide * kSide);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0F / static_cast<float>(i + 3);
    const NcclNumbers a(mine, values), b(mine, values), out(mine, values), sum(mine, values);
    const auto product = [&] {
      LtProduct p;
      p.m = p.n = p.k = kSide;
      p.a = {a.buffer->data(), kSide, kSide, kSide, 0};
      p.b = {b.buffer->data(), kSide, kSide, kSide, 0};
      p.d = {out.buffer->data(), kSide, kSide, kSide, 0};
      EXPECT_TRUE(LtContext::of(*mine.device).run(p));
      return out.get();
    };
    const std::vector<float> alone = product();
    for (int i = 0; i < 5; ++i) {
      const Work work = mine.comm->issue(nccl_sum_of(sum));
      EXPECT_EQ(product(), alone);
      work.wait();
      EXPECT_EQ(product(), alone);
    }
  });
  EXPECT_EQ(algorithms_asked_for,
            2 * 4);  // on each rank once for each dtype, when its device is made
}

}  // namespace
}  // namespace coshard::testing
