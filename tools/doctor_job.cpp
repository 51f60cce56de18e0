#include "tools/doctor_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <coshard/dtensor/calibration/calibrate.h>
#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/host.h"

namespace coshard::tools {
namespace {

struct Host {
  std::string id, name;
  std::vector<int> ranks;
};

// In the order of their first ranks.
Task<std::vector<Host>> hosts_of(World& world) {
  constexpr std::size_t kMost = 256;  // bytes of each rank: id, 0, name, 0
  const auto size = static_cast<std::size_t>(world.size());
  std::string mine = host_id() + '\0' + host_name();
  mine.resize(kMost);
  std::string all(size * kMost, '\0');
  Collective gather;
  gather.kind = CollectiveKind::AllGather;
  gather.dtype = DType::Bool;
  gather.extent = static_cast<std::int64_t>(all.size());
  gather.send = mine.data();
  gather.recv = all.data();
  co_await world.communicator()->issue(gather);
  std::vector<Host> hosts;
  for (std::size_t r = 0; r < size; ++r) {
    const char* text = all.data() + r * kMost;
    const std::string id(text, ::strnlen(text, kMost - 1));
    auto known = std::ranges::find(hosts, id, &Host::id);
    if (known == hosts.end())
      known = hosts.insert(hosts.end(), {id, std::string(text + id.size() + 1), {}});
    known->ranks.push_back(static_cast<int>(r));
  }
  co_return hosts;
}

// One dimension for the hosts and one for the ranks of each, if all have equally many.
DeviceMesh mesh_of(World& world, const std::vector<Host>& hosts) {
  const auto each = hosts[0].ranks.size();
  bool regular = hosts.size() > 1 && each > 1;
  for (const Host& host : hosts) regular = regular && host.ranks.size() == each;
  if (!regular) return init_device_mesh(world, {world.size()}, {"ranks"});
  return init_device_mesh(world, {static_cast<int>(hosts.size()), static_cast<int>(each)},
                          {"hosts", "ranks"});
}

std::string list(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

Task<void> examine(World& world, const DoctorOptions& options, std::ostream& out, int& code) {
  if (world.rank() == 0) code = doctor(options, out);
  Task<std::vector<Host>> found = hosts_of(world);
  const std::vector<Host> hosts = co_await std::move(found);
  Task<DeviceMesh> measured = measure_links(mesh_of(world, hosts));
  const DeviceMesh mesh = co_await std::move(measured);
  if (world.rank() != 0) co_return;
  out << fmt::format("{:<14} {} on {} host{}\n", "processes", world.size(), hosts.size(),
                     hosts.size() == 1 ? "" : "s");
  for (std::size_t h = 0; h < hosts.size(); ++h)
    out << fmt::format("{:<14} {}, {}\n", fmt::format("host {}", h), hosts[h].name,
                       list(hosts[h].ranks));
  for (int m = 0; m < mesh.ndim(); ++m) {
    const Link& link = mesh.links()[static_cast<std::size_t>(m)];
    out << fmt::format("{:<14} {:g} us, {:g} GB/s, measured between {}\n", "link", link.latency,
                       link.bytes_per_us * 1e-3, mesh.names()[static_cast<std::size_t>(m)]);
  }
}

}  // namespace

int doctor_of_job(const DoctorOptions& options, std::ostream& out) {
  int code = 0;
  run_ranks({}, [&](World& world) { return examine(world, options, out, code); });
  return code;
}

}  // namespace coshard::tools
