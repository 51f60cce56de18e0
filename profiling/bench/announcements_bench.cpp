// What it costs processes to compare their collectives, which NCCL performs (announcements.h): as
// torchrun starts them, over TCP through process 0, here all on this host.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <coshard/runtime/error.h>
#include "profiling/bench/benches.h"
#include "runtime/launch/job.h"
#include "runtime/launch/rank_directory.h"
#include "runtime/launch/store.h"

namespace coshard::bench {
namespace {

constexpr std::chrono::seconds kDeadline{60};

std::atomic<std::int64_t> messages{0};  // sent by this process

MpiApi counting_api() {
  MpiApi api = Store::api();
  api.send = [](const void* data, std::size_t bytes, int to, int tag, std::uint64_t cookie) {
    messages.fetch_add(1);
    return Store::api().send(data, bytes, to, tag, cookie);
  };
  return api;
}

std::int64_t cpu_ns() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto ns = [](const timeval& t) {
    return std::int64_t{t.tv_sec} * 1'000'000'000 + std::int64_t{t.tv_usec} * 1000;
  };
  return ns(used.ru_utime) + ns(used.ru_stime);
}

// Totals of one process, or of all.
struct Cost {
  std::int64_t messages = 0, cpu_ns = 0;
};

Cost announce(Communicator& all, int collectives, bool to_all) {
  Collective c;
  c.control_only = !to_all;
  c.label = "bench";
  const auto issue = [&](int times) {
    for (int i = 0; i + 1 < times; ++i) {
      Work work = all.issue(c);
      if (to_all) work.wait();
    }
    all.issue(c).wait();
    all.issue(Collective()).wait();  // a barrier
  };
  issue(300);
  const Cost before{messages.load(), cpu_ns()};
  issue(collectives);
  return {messages.load() - before.messages, cpu_ns() - before.cpu_ns};
}

struct Pipe {
  Pipe() { CS_REQUIRE(::pipe(ends) == 0, "bench processes: no pipe"); }
  ~Pipe() {
    ::close(ends[0]);
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_write() {
    if (ends[1] >= 0) ::close(ends[1]);
    ends[1] = -1;
  }
  int ends[2] = {-1, -1};
};

struct Setting {
  int processes = 2, collectives = 0;
  bool to_all = false;
  std::uint16_t port = 0;
};

// One of the processes.
void be_process(int process, const Setting& setting, const Pipe& told) {
  Launched launched{.launcher = "bench", .said = "coshard bench processes"};
  launched.processes = setting.processes;
  launched.process = process;
  const MeetingPoint where{{{"127.0.0.1"}, setting.port, "bench"}, false};
  static const MpiApi api = counting_api();
  Job job(api, launched, kDeadline, std::make_unique<Store>(launched, where, kDeadline));
  const auto directory =
      make_process_directory({.ranks = setting.processes, .timeout = kDeadline}, job);
  auto all = directory->control(process);
  all->set_timeout(std::chrono::nanoseconds(kDeadline).count());
  const Cost cost = announce(*all, setting.collectives, setting.to_all);
  (void)!::write(told.ends[1], &cost, sizeof cost);
  all.reset();
  directory->leave(process);
  directory->end();
}

std::uint16_t free_port() {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor any(io, {boost::asio::ip::address_v4::loopback(), 0});
  return any.local_endpoint().port();
}

Cost cost_of(Setting setting) {
  setting.port = free_port();
  Pipe told;
  std::vector<pid_t> children;
  for (int process = 0; process < setting.processes; ++process) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    try {
      be_process(process, setting, told);
      ::_exit(0);
    } catch (const std::exception& error) {
      fmt::print(stderr, "process {}: {}\n", process, error.what());
    }
    ::_exit(1);
  }
  told.close_write();
  Cost total, one;
  int heard = 0;
  while (::read(told.ends[0], &one, sizeof one) == sizeof one) {
    total = {total.messages + one.messages, total.cpu_ns + one.cpu_ns};
    if (++heard == setting.processes) break;
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  CS_REQUIRE(heard == setting.processes, "bench processes: ", setting.processes - heard, " of ",
             setting.processes, " processes failed");
  return total;
}

}  // namespace

Report bench_announcements(const AnnouncementsOptions& options) {
  Report report("processes");
  double first_us = 0;
  for (int processes = 2; processes <= options.most; processes *= 2)
    for (const bool to_all : {false, true}) {
      const int collectives = to_all ? std::max(1, options.collectives / 50) : options.collectives;
      const Cost cost = cost_of({processes, collectives, to_all});
      const double all = static_cast<double>(processes) * collectives;
      const double us = static_cast<double>(cost.cpu_ns) / all / 1000;
      const auto add = [&](const char* what, double value, const char* unit,
                           std::optional<double> target = {}) {
        const std::string name =
            fmt::format("{}_{}_{}", to_all ? "barrier" : "announced", what, processes);
        report.results.push_back({name, value, unit, target, false, {}, {}});
      };
      if (processes == 2 && !to_all) first_us = us;
      const auto target = [to_all](double most) {
        return to_all ? std::nullopt : std::optional(most);
      };
      add("messages", static_cast<double>(cost.messages) / all, "per process and collective",
          target(1.02));
      add("cpu", us, "us per process and collective", target(2 * first_us));
    }
  return report;
}

}  // namespace coshard::bench
