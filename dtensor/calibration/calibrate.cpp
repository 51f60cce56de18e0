// Measures a calibration or reads it from a file; the result is the same on all ranks.
#include <coshard/dtensor/calibration/calibrate.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/calibration/calibration_file.h"
#include "dtensor/calibration/measure_links.h"
#include "dtensor/mesh/calibration.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/products.h"
#include "runtime/comm/transport.h"
#include "runtime/coro/user_call.h"
#include "runtime/device/describe.h"
#include "runtime/host.h"
#include "runtime/launch/rank_directory.h"

namespace coshard {
namespace {

// Floats from each rank: 256 B, 64 KiB, 2 MiB.
constexpr std::int64_t kSmall = 1 << 6, kMiddle = 1 << 14, kLarge = 1 << 19;
constexpr std::int64_t kGpuScale = 4;
// Larger GEMMs are extrapolated from smaller ones: 3 ms on a core, 30 us on a GPU.
constexpr std::int64_t kMostFlops = 1 << 28;

// GEMMs of any size up to the largest of a grid, in the same memory.
class Products {
 public:
  Products(const std::shared_ptr<Device>& device, DType dtype) {
    const bool cpu = device->kind() == DeviceKind::Cpu;
    table_.dtype = dtype;
    table_.scale = cpu ? 1 : kGpuScale;
    const auto found = cpu ? BackendDescription() : describe_backend(device->kind());
    if (!cpu)
      table_.multiprocessors =
          found.devices.empty() ? 1 : std::max(1, found.devices[0].multiprocessors);
    const std::int64_t rows = GemmTable::kRows.back() * table_.scale,
                       side = GemmTable::kSides.back() * table_.scale;
    x_ = zeros(device, Shape{rows * side}, dtype);
    weight_ = zeros(device, Shape{side * side}, dtype);
    y_ = zeros(device, Shape{rows * side}, dtype);
  }

  void run(const GemmTable::Point& p, std::int64_t times) const {
    const auto part = [](const Tensor& memory, std::int64_t rows, std::int64_t columns) {
      return view_of(memory, Shape{rows, columns}, row_major(Shape{rows, columns}));
    };
    const kernels::Matmul product{part(y_, p.rows, p.n), part(x_, p.rows, p.k),
                                  transposed(part(weight_, p.n, p.k))};
    for (std::int64_t i = 0; i < times; ++i) kernels::run(*x_.device(), product);
    x_.device()->synchronize();
  }
  std::int64_t time(const GemmTable::Point& p, std::int64_t times) const {
    const std::int64_t begin = now_ns();
    run(p, times);
    return now_ns() - begin;
  }
  // The best of as many rounds over the grid as the budget allows. The first round visits all
  // points, unless it exceeds three times the budget, or one point would by the rate of another.
  const GemmTable& measured(std::int64_t budget_ns) {
    const std::int64_t begin = now_ns(), times = table_.multiprocessors > 0 ? 8 : 1;
    double ns_per_flop = 0;  // 0: not known yet
    for (int round = 0; round == 0 || now_ns() - begin < budget_ns; ++round)
      for (std::size_t i = 0; i < GemmTable::kPoints; ++i) {
        if (!worth_measuring(i) || ns_per_flop * flops(i) > static_cast<double>(budget_ns))
          continue;
        if (round == 0) run(table_.point(i), 1);  // warm-up: what a first call sets up
        const std::int64_t ns = time(table_.point(i), times) / times;
        std::int64_t& best = table_.ns[i];
        best = best == 0 ? ns : std::min(best, ns);
        const double found = static_cast<double>(ns) / flops(i);
        ns_per_flop = ns_per_flop == 0 ? found : std::min(ns_per_flop, found);
        if (now_ns() - begin > (round == 0 ? 3 : 1) * budget_ns) return table_;
      }
    return table_;
  }

 private:
  double flops(std::size_t i) const {
    const GemmTable::Point p = table_.point(i);
    return 2.0 * static_cast<double>(p.rows * p.n * p.k);
  }
  bool worth_measuring(std::size_t i) const {
    return flops(i) <= static_cast<double>(kMostFlops * table_.scale * table_.scale * table_.scale);
  }

  GemmTable table_;
  Tensor x_, weight_, y_;
};

// The share of overlapped time that GEMMs and an all_gather of equal duration lose to each other.
Task<double> contention_of(DeviceMesh line, std::shared_ptr<Products> products, double alone_ns,
                           int runs) {
  const GemmTable::Point p{128, 512, 512};
  World& world = line.world();
  const auto spec = make_spec(line, Layout(Shard(0)), Shape{kLarge * line.size()});
  const Tensor part = Tensor::empty(world.device(), spec, DType::F32);
  products->run(p, 1);
  const auto one = static_cast<double>(std::max<std::int64_t>(products->time(p, 4) / 4, 1));
  const auto times = static_cast<std::int64_t>(std::clamp(alone_ns / one, 1.0, 1'000.0));
  double least = 1;
  for (int run = 0; run < runs; ++run) {
    const auto compute = static_cast<double>(products->time(p, times));
    const std::int64_t begin = world.executor().now();
    const Redistribution gathered = part.redistribute(Replicate());
    products->run(p, times);
    co_await gathered.host();
    const auto both = static_cast<double>(world.executor().now() - begin);
    const double lost = both - std::max(compute, alone_ns);
    least = std::min(least, lost / std::max(std::min(compute, alone_ns), 1.0));
  }
  co_return line.contains_this_rank() ? std::max(least, 0.0) : 0;
}

// Measures one mesh dimension, in as many runs as `budget_ns` allows.
Task<Calibration::Times> measured_line(DeviceMesh line, std::shared_ptr<Products> products,
                                       double budget_ns) {
  Calibration::Times times;
  if (line.size() == 1) co_return times;
  Task<double> first = time_to_gather(line, kLarge, 1, 1);  // a shaper passes the first at once
  const double first_ns = co_await std::move(first);
  std::vector<double> found(1, first_ns);
  Task<std::vector<double>> agreeing = largest_of_all(line.world(), found);
  found = co_await std::move(agreeing);
  const int runs = static_cast<int>(std::clamp(budget_ns / std::max(found[0], 1.0) - 2, 1.0, 9.0));
  Task<double> small = time_to_gather(line, kSmall, 9, 2);
  const double small_ns = co_await std::move(small);
  Task<double> middle = time_to_gather(line, kMiddle, 9, 1);
  const double middle_ns = co_await std::move(middle);
  Task<double> large = time_to_gather(line, kLarge, runs, 0);
  const double large_ns = co_await std::move(large);
  Task<double> contention =
      contention_of(line, products, std::max(large_ns, 1.0), std::clamp(runs, 2, 5));
  const double lost = co_await std::move(contention);
  times.small_ns = std::llround(small_ns), times.middle_ns = std::llround(middle_ns);
  times.large_ns = std::llround(large_ns);
  times.middle_bytes = (kMiddle - kSmall) * 4 * (line.size() - 1);
  times.large_bytes = (kLarge - kSmall) * 4 * (line.size() - 1);
  times.contention_x1024 = std::llround(lost * 1024);
  co_return times;
}

// Measures one round of a gather by shards along a mesh dimension, where there are some.
Task<Calibration::Times> measured_round(DeviceMesh line, Calibration::Times of_line,
                                        double budget_ns) {
  Calibration::Times times;
  const int rounds = line.size() - 1;
  if (rounds == 0 || line.world().communicator()->gathers_by_shards()) co_return times;
  const double large_ns = std::max(static_cast<double>(of_line.large_ns), 1.0);
  const int runs = static_cast<int>(std::clamp(budget_ns / large_ns, 1.0, 3.0));
  Task<double> small = time_to_gather(line, kSmall, 9, 1, true);
  times.small_ns = std::llround(co_await std::move(small) / rounds);
  Task<double> middle = time_to_gather(line, kMiddle, 9, 1, true);
  times.middle_ns = std::llround(co_await std::move(middle) / rounds);
  Task<double> large = time_to_gather(line, kLarge, runs, 1, true);
  times.large_ns = std::llround(co_await std::move(large) / rounds);
  times.middle_bytes = (kMiddle - kSmall) * 4, times.large_bytes = (kLarge - kSmall) * 4;
  times.contention_x1024 = of_line.contention_x1024;
  co_return times;
}

// On which ranks agree.
constexpr std::array kTimes{&Calibration::Times::small_ns, &Calibration::Times::middle_ns,
                            &Calibration::Times::large_ns, &Calibration::Times::contention_x1024};

// All its times as one list; ranks agree on the element-wise maximum.
std::vector<double> figures(const Calibration& c) {
  std::vector<double> all;
  for (const auto* list : {&c.links, &c.rounds})
    for (const Calibration::Times& t : *list)
      for (const auto time : kTimes) all.push_back(static_cast<double>(t.*time));
  for (const GemmTable& t : c.products)
    for (const std::int64_t ns : t.ns) all.push_back(static_cast<double>(ns));
  return all;
}

void set_figures(Calibration& c, const std::vector<double>& all) {
  std::size_t i = 0;
  for (auto* list : {&c.links, &c.rounds})
    for (Calibration::Times& t : *list)
      for (const auto time : kTimes) t.*time = std::llround(all[i++]);
  for (GemmTable& t : c.products) {
    for (std::int64_t& ns : t.ns) ns = std::llround(all[i++]);
    t.complete();
  }
}

Task<Calibration> measure(DeviceMesh mesh, CalibrateOptions options, std::string about) {
  const NoGradGuard no_grad;
  const std::int64_t begin = now_ns();
  const auto budget = static_cast<double>(std::chrono::nanoseconds(options.budget).count());
  World& world = mesh.world();
  Calibration c;
  c.about = std::move(about);
  auto products = std::make_shared<Products>(world.device(), options.dtypes[0]);
  for (const std::string& name : mesh.names()) {
    Task<Calibration::Times> line = measured_line(mesh[name], products, budget / 4 / mesh.ndim());
    c.links.push_back(co_await std::move(line));
    Task<Calibration::Times> round =
        measured_round(mesh[name], c.links.back(), budget / 4 / mesh.ndim());
    c.rounds.push_back(co_await std::move(round));
  }
  // Even if the links were slow, a third of the budget remains.
  const std::int64_t until = std::max(begin + static_cast<std::int64_t>(0.9 * budget),
                                      now_ns() + static_cast<std::int64_t>(budget / 3));
  const auto kinds = static_cast<std::int64_t>(options.dtypes.size());
  for (std::int64_t i = 0; i < kinds; ++i) {
    if (i > 0)
      products =
          std::make_shared<Products>(world.device(), options.dtypes[static_cast<std::size_t>(i)]);
    c.products.push_back(products->measured((until - now_ns()) / (kinds - i)));
  }
  Task<std::vector<double>> agreeing = largest_of_all(world, figures(c));
  const std::vector<double> agreed = co_await std::move(agreeing);
  set_figures(c, agreed);
  co_return c;
}

std::string of_this_rank(const World& world) {
  const WorldOptions& options = world.options();
  std::string text = str_cat(host_id(), ' ', options.threads, ' ', options.rank_threads, ' ',
                             options.progress_threads);
  for (const std::string& setting : transport_settings()) text += ' ' + setting;
  for (const DeviceDescription& device : describe_backend(world.device()->kind()).devices)
    text += str_cat(' ', device.name, ' ', device.multiprocessors);
  return text;
}

// Describes what a calibration measures, in one line.
std::string described(const DeviceMesh& mesh, const CalibrateOptions& options,
                      const std::vector<double>& machines) {
  const World& world = mesh.world();
  std::string all, ranks, dtypes;
  for (const double machine : machines) all += str_cat(machine, ' ');
  for (const int rank : mesh.ranks()) ranks += str_cat(rank, ' ');
  for (const DType dtype : options.dtypes) dtypes += str_cat(' ', dtype);
  const auto& link = world.options().link;
  const Processes job = processes(world.options());
  const std::string between =
      job.all == 1 ? ""
                   : str_cat(", ", job.all, " processes", job.mpi.empty() ? "" : ", ", job.mpi);
  return str_cat(mesh, " of ", world.size(), " ranks, ", world.device()->kind().name(), ", ",
                 world.options().communicator, between, link ? ", link " : "",
                 link ? to_string(*link) : "", ",", dtypes, ", machines ", text_hash(all),
                 ", order ", text_hash(ranks));
}

// A simulation measures its virtual clock, which is not saved.
bool in_real_time(const World& world) {
  return std::abs(world.executor().now() - now_ns()) < 1'000'000'000;
}

void check(const CalibrateOptions& options) {
  CS_REQUIRE(!options.dtypes.empty(), "calibrate: name at least one dtype");
  for (const DType dtype : options.dtypes)
    CS_REQUIRE(is_floating(dtype), "calibrate: ", dtype, " is not a floating dtype");
  CS_REQUIRE(options.budget.count() > 0, "calibrate: the budget must be above 0 ms, got ",
             options.budget.count());
}

}  // namespace

Task<DeviceMesh> calibrate(DeviceMesh mesh, CalibrateOptions options, CallSite site) {
  const UserCall user(site);
  if (mesh.calibration()) co_return mesh;
  check(options);
  World& world = mesh.world();
  const auto rank = static_cast<std::size_t>(world.rank());
  std::vector<double> machines(static_cast<std::size_t>(world.size()));
  machines[rank] = static_cast<double>(text_hash(of_this_rank(world)));
  Task<std::vector<double>> meeting = largest_of_all(world, machines);
  machines = co_await std::move(meeting);
  const std::string about = described(mesh, options, machines);
  const CalibrationFile file(options.cache, about);
  std::optional<Calibration> kept;
  if (in_real_time(world)) kept = file.read(about);
  const double hash = kept ? static_cast<double>(text_hash(kept->text())) : 0;
  const std::vector<double> both{hash, -hash};
  Task<std::vector<double>> comparing = largest_of_all(world, both);
  const std::vector<double> bounds = co_await std::move(comparing);
  if (!kept || bounds[0] != -bounds[1]) {
    Task<Calibration> measuring = measure(mesh, options, about);
    kept = co_await std::move(measuring);
    const bool first =
        std::ranges::find(machines, machines[rank]) == machines.begin() + world.rank();
    if (first && in_real_time(world)) file.write(*kept);
  }
  const auto shared = std::make_shared<const Calibration>(std::move(*kept));
  co_return mesh.with_calibration(shared).with_links(shared->costs());
}

Task<DeviceMesh> calibrate(DeviceMesh mesh, CallSite site) {
  return calibrate(std::move(mesh), CalibrateOptions(), site);
}

}  // namespace coshard
