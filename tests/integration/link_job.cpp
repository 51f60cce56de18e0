// What a link between hosts costs, for hosts_bench.py; run on two or more processes.
//
//   link_job [run's options]
//
// Prints "all_reduce KIB milliseconds", the median of 11, and of 20 MB "all_reduce, compute,
// serial, overlapped", medians of 11 interleaved rounds, with the share of the shorter that was
// hidden, and by how much the compute of rank 0 took longer beside it: what the protocol cost its
// core. On four processes instead, a mesh dp=2,tp=2: "links PLAN before after", the plan of a sum
// over both dimensions once measure_links has told their links, and milliseconds of a step on the
// mesh without and with them, medians of 15 interleaved pairs: a product, its sum over tp, and a
// gradient of 4 MiB that is summed over both.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include <coshard/coshard.h>
#include <coshard/dtensor/redistribute/explain.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>

namespace cs = coshard;

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 11;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(cs::World& world) : communicator_(world.communicator()) {}

  void agree(const cs::Collective& call) { communicator_->issue(call).wait(); }
  void sum(std::int64_t elements) { issue(elements).wait(); }
  cs::Work issue(std::int64_t elements) {
    data_.resize(static_cast<std::size_t>(elements));
    cs::Collective call;
    call.kind = cs::CollectiveKind::AllReduce;
    call.extent = elements;
    call.send = call.recv = data_.data();
    return communicator_->issue(call);
  }
  // In registers: it takes no memory bandwidth from what moves data.
  void compute(std::int64_t turns) {
    for (std::int64_t i = 0; i < turns; ++i) held_ = held_ * 0.999F + 1.0F;
  }
  // Until all ranks have come through, each of which then knows the time of the slowest.
  template <class F>
  double time(const F& f) {
    meet();
    const Clock::time_point begin = Clock::now();
    f();
    meet();
    return milliseconds_since(begin);
  }
  void meet() {
    const cs::Collective call;
    communicator_->issue(call).wait();
  }

 private:
  std::shared_ptr<cs::Communicator> communicator_;
  std::vector<float> data_;
  volatile float held_ = 1.0F;
};

void say(int rank, const std::string& line) {
  if (rank == 0) std::cout << line + '\n' << std::flush;
}

void sizes(Bench& bench, int rank) {
  for (const std::int64_t kib : {1024, 2048, 4096, 8192, 16384}) {
    std::vector<double> times;
    for (int round = -2; round < kRounds; ++round) {
      const double time = bench.time([&] { bench.sum(kib * 256); });
      if (round >= 0) times.push_back(time);
    }
    say(rank, cs::str_cat("all_reduce ", kib, ' ', median(times)));
  }
}

void overlap(Bench& bench, int rank) {
  constexpr std::int64_t kElements = 5'000'000;  // 20 MB
  std::vector<double> reduce, alone, serial, overlapped, hidden, stretched;
  for (int round = 0; round < 3; ++round)
    reduce.push_back(bench.time([&] { bench.sum(kElements); }));
  constexpr std::int64_t kTurns = 10'000'000;
  // All ranks take as many turns, as rank 0 has found: their clocks differ little.
  const double one = bench.time([&] { bench.compute(kTurns); });
  float turns = static_cast<float>(median(reduce) / one * static_cast<double>(kTurns));
  cs::Collective from_first;
  if (rank != 0) turns = 0;
  from_first.kind = cs::CollectiveKind::AllReduce;
  from_first.extent = 1;
  from_first.send = from_first.recv = &turns;
  bench.agree(from_first);
  const auto compute = [&] { bench.compute(static_cast<std::int64_t>(turns)); };
  reduce.clear();
  for (int round = 0; round < kRounds; ++round) {
    reduce.push_back(bench.time([&] { bench.sum(kElements); }));
    double computing = 0;
    alone.push_back(bench.time([&] {
      const Clock::time_point begin = Clock::now();
      compute();
      computing = milliseconds_since(begin);
    }));
    serial.push_back(bench.time([&] {
      bench.sum(kElements);
      compute();
    }));
    overlapped.push_back(bench.time([&] {
      cs::Work work = bench.issue(kElements);
      const Clock::time_point begin = Clock::now();
      compute();
      stretched.push_back(milliseconds_since(begin) - computing);
      work.wait();
    }));
    hidden.push_back((serial.back() - overlapped.back()) / std::min(reduce.back(), alone.back()));
  }
  say(rank, cs::str_cat("overlap ", median(reduce), ' ', median(alone), ' ', median(serial), ' ',
                        median(overlapped), ' ', median(hidden), ' ', median(stretched)));
}

cs::Task<void> step(const cs::DeviceMesh& mesh) {
  const cs::Tensor x = cs::ones(mesh, cs::Layout(cs::Shard(0), cs::Shard(1)), cs::Shape{512, 512});
  const cs::Tensor w =
      cs::ones(mesh, cs::Layout(cs::Replicate(), cs::Shard(0)), cs::Shape{512, 512});
  const cs::Tensor terms =
      cs::ones(mesh, cs::Layout(cs::Replicate(), cs::Replicate()), cs::Shape{1024, 1024})
          .redistribute(cs::Shard(0), cs::Shard(0))
          .tensor();
  const cs::Tensor gradient = terms.redistribute(cs::Partial(), cs::Partial()).tensor();
  co_await cs::matmul(x, w).redistribute(cs::Shard(0), cs::Replicate());
  co_await gradient.redistribute(cs::Replicate(), cs::Replicate());
}

cs::Task<void> links(cs::World& world, Bench& bench) {
  const cs::DeviceMesh plain = cs::init_device_mesh(world, {2, 2}, {"dp", "tp"});
  cs::Task<cs::DeviceMesh> measuring = cs::measure_links(plain);
  const cs::DeviceMesh measured = co_await std::move(measuring);
  cs::ExplainOptions sum{.mesh_names = measured.names(),
                         .mesh_shape = measured.shape(),
                         .links = measured.links(),
                         .shape = {1024, 1024},
                         .from = {cs::Partial(), cs::Partial()},
                         .to = {cs::Replicate(), cs::Replicate()}};
  std::vector<double> before, after;
  for (int round = -2; round < 15; ++round)
    for (const bool told : {round % 2 == 0, round % 2 != 0}) {
      bench.meet();
      const Clock::time_point begin = Clock::now();
      cs::Task<void> one = step(told ? measured : plain);
      co_await std::move(one);
      bench.meet();
      if (round >= 0) (told ? after : before).push_back(milliseconds_since(begin));
    }
  std::string plan;
  for (const auto& each : cs::explain(sum).steps) plan += each.collective + '/' + each.over + ',';
  say(world.rank(), cs::str_cat("links ", plan, ' ', median(before), ' ', median(after)));
}

cs::Task<void> program(cs::World& world) {
  Bench bench(world);
  if (world.size() == 4) {
    cs::Task<void> compared = links(world, bench);
    co_await std::move(compared);
    co_return;
  }
  sizes(bench, world.rank());
  overlap(bench, world.rank());
  co_return;
}

}  // namespace

int main(int argc, char** argv) { return cs::run(argc, argv, program); }
