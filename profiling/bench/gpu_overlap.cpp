// How much of an all_gather between ranks hides under products on the GPUs: measured as wall time
// of the same work with the await after the products, and before them.
#include <algorithm>
#include <cmath>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "profiling/bench/gpu_cases.h"
#include "profiling/bench/schedules.h"

namespace coshard::bench {
namespace {

class Overlapped {
 public:
  Overlapped(World& world, const GpuSizes& sizes)
      : device_(*world.device()),
        sizes_(sizes),
        mesh_(init_device_mesh(world, {world.size()}, {"tp"})),
        sent_(randn(mesh_, Shard(0), Shape{sizes.gathered, 1024}, DType::BF16)),
        a_(randn(world.device(), Shape{sizes.product, sizes.product}, DType::BF16)) {}

  double gather_us() const {
    return timed([this] { gather().tensor().wait(); });
  }
  double products_us(int count) const {
    return timed([this, count] { products(count); });
  }
  double awaited_first_us(int count) const {
    return timed([this, count] {
      gather().tensor().wait();
      products(count);
    });
  }
  double awaited_last_us(int count) const {
    return timed([this, count] {
      const Redistribution all = gather();
      products(count);
      all.tensor().wait();
    });
  }

 private:
  Redistribution gather() const { return sent_.redistribute(Replicate()); }
  void products(int count) const {
    for (int i = 0; i < count; ++i) matmul(a_, a_);
  }
  template <class F>
  double timed(const F& call) const {
    return timed_on_device(device_, call, sizes_.steps).median;
  }

  Device& device_;
  const GpuSizes& sizes_;
  DeviceMesh mesh_;
  DTensor sent_;
  Tensor a_;
};

}  // namespace

Task<void> measure_overlap(World& world, const GpuSizes& sizes, GpuResults& results) {
  const NoGradGuard no_grad;
  const Overlapped work(world, sizes);
  const double gather = work.gather_us();
  // As long as the gather; all ranks take rank 0's number.
  Tensor count = Tensor::from_values(world.device(), Shape{1}, DType::F64,
                                     {std::round(gather / std::max(1.0, work.products_us(1)))});
  Collective same;
  same.kind = CollectiveKind::Broadcast;
  same.dtype = DType::F64;
  same.extent = 1;
  same.send = same.recv = count.data();
  same.keep_send = same.keep_recv = count.storage()->buffer;
  world.communicator()->issue(same).wait();
  const int products = std::clamp(static_cast<int>(count.item()), 1, 64);
  const double compute = work.products_us(products);
  const double serial = work.awaited_first_us(products), both = work.awaited_last_us(products);
  const auto add = [&results](const char* name, double value, const char* unit, bool more) {
    results.push_back({name, value, unit, {}, more, {}, {}});
  };
  add("overlap_gather", gather, "us", false);
  add("overlap_products", compute, "us", false);
  add("overlap_awaited_first", serial, "us", false);
  add("overlap_awaited_last", both, "us", false);
  const double efficiency = efficiency_of(serial, both, compute);
  if (!std::isnan(efficiency)) add("overlap_efficiency", efficiency, "E", true);
  co_return;
}

}  // namespace coshard::bench
