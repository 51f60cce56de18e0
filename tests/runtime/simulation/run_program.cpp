#include "tests/runtime/simulation/run_program.h"

#include <algorithm>
#include <map>
#include <memory>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/in_order.h>
#include <coshard/runtime/coro/when_all.h>

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;

Counts counts_of(std::vector<std::int64_t> counts) {
  return std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
}

// One rank that runs a program.
class Rank {
 public:
  Rank(World& world, const RandomProgram& program, const std::optional<Difference>& difference,
       RankReport& report)
      : world_(world), program_(program), report_(report) {
    if (difference && difference->rank == world.rank()) difference_ = *difference;
    for (std::size_t g = 0; g < program.groups.size(); ++g)
      communicators_.push_back(world.group(program.groups[g], str_cat("g", g)));
  }
  Task<void> sequence(const std::vector<Node>& steps);

 private:
  // What an Issue gave. The memory goes after the work that uses it.
  struct Flight {
    const Node* node = nullptr;
    std::shared_ptr<Buffer> send, recv;
    Work work;
  };

  bool differs(const Node& node, Differs how) {
    if (!difference_ || difference_->how != how || difference_->number != node.number) return false;
    if (Branch::current().cancelled()) return false;
    report_.different = true;
    return true;
  }
  void log(const Node& node) { report_.log.push_back(node.number); }
  int me(const Node& node) const {
    return rank_in(program_.groups[static_cast<std::size_t>(node.group)], world_.rank());
  }

  void issue(const Node& node);
  std::shared_ptr<Buffer> buffer_with(const std::vector<double>& values);
  void describe(const Node& node, Collective& c);
  void check(const Flight& flight);
  Task<void> step(const Node& node);
  Task<void> await(const Node& node);
  Task<void> throw_after_a_turn();
  Task<void> await_one(const Node& node);
  Task<void> give_up(const Node& node);
  Task<void> wait_for_none();
  Task<void> all(const Node& node);
  Task<void> bounded(const Node& node);

  World& world_;
  const RandomProgram& program_;
  std::optional<Difference> difference_;
  RankReport& report_;
  std::vector<std::shared_ptr<Communicator>> communicators_;  // null: this rank is not in it
  std::map<int, Flight> flights_;
};

std::shared_ptr<Buffer> Rank::buffer_with(const std::vector<double>& values) {
  auto buffer = world_.device()->make_buffer(values.size() * sizeof(double));
  std::ranges::copy(values, static_cast<double*>(buffer->data()));
  return buffer;
}

void Rank::describe(const Node& node, Collective& c) {
  c.kind = node.kind;
  c.dtype = DType::F64;
  c.reduce = node.reduce;
  c.root = node.root;
  for (const std::int64_t count : node.counts) c.extent += count;
  c.counts = counts_of(node.counts);
  if (node.kind == CollectiveKind::AllToAll) {
    std::vector<std::int64_t> sends, recvs;
    for (int m = 0; m < static_cast<int>(node.counts.size()); ++m) {
      sends.push_back(block(node, me(node), m));
      recvs.push_back(block(node, m, me(node)));
    }
    c.send_counts = counts_of(std::move(sends));
    c.recv_counts = counts_of(std::move(recvs));
  } else if (node.kind == CollectiveKind::Send) {
    c.kind = me(node) == node.root ? CollectiveKind::Send : CollectiveKind::Recv;
    c.root = me(node) == node.root ? node.to : node.root;
  }
}

void Rank::issue(const Node& node) {
  // Who has nothing to issue in a branch that was cancelled notices that at the next await.
  if (!Branch::current().cancelled()) log(node);
  const std::shared_ptr<Communicator>& group = communicators_[static_cast<std::size_t>(node.group)];
  Flight& flight = flights_[node.number];
  flight.node = &node;
  const bool message = node.kind == CollectiveKind::Send;
  if (group == nullptr || differs(node, Differs::Skips)) return;
  if (message && (node.root == node.to || (me(node) != node.root && me(node) != node.to))) return;
  const std::size_t results = expected(program_, node, world_.rank()).size();
  flight.send = buffer_with(contribution(program_, node, world_.rank()));
  flight.recv = buffer_with(std::vector<double>(results, -1));
  Collective c;
  describe(node, c);
  if (differs(node, Differs::OtherCount)) {
    flight.send = flight.recv = buffer_with(std::vector<double>(results + 1));
    ++c.extent;
  }
  if (!message || c.kind == CollectiveKind::Send) c.send = flight.send->data();
  if (!message || c.kind == CollectiveKind::Recv) c.recv = flight.recv->data();
  if (node.owned) {
    c.keep_send = flight.send;
    c.keep_recv = flight.recv;
  }
  flight.work = group->issue(std::move(c));
}

void Rank::check(const Flight& flight) {
  if (flight.recv == nullptr || !report_.wrong.empty()) return;
  const std::vector<double> right = expected(program_, *flight.node, world_.rank());
  const double* got = static_cast<const double*>(flight.recv->data());
  for (std::size_t i = 0; i < right.size(); ++i)
    if (got[i] != right[i]) {
      report_.wrong =
          str_cat(to_string(flight.node->kind), " of step ", flight.node->number, " on rank ",
                  world_.rank(), ": element ", i, " is ", got[i], ", not ", right[i]);
      return;
    }
}

Task<void> Rank::await(const Node& node) {
  Flight& flight = flights_[node.of];
  if (node.step == Step::AwaitAny) {
    const AsItComes any = as_it_comes(flight.work);
    co_await any;
  } else if (node.step == Step::WaitInPlace) {
    flight.work.wait();
  } else {
    co_await flight.work;
  }
  check(flight);
}

Task<void> Rank::throw_after_a_turn() {
  co_await yield();
  throw PlannedError();
}

Task<void> Rank::await_one(const Node& node) { co_await flights_[node.of].work; }

Task<void> Rank::give_up(const Node& node) {
  Task<void> throwing = throw_after_a_turn();
  Task<void> waiting = await_one(node);
  Task<void> both = when_all(std::move(throwing), std::move(waiting));
  try {
    co_await std::move(both);
  } catch (const PlannedError&) {
  }
}

Task<void> Rank::wait_for_none() {
  Collective c;
  c.kind = CollectiveKind::Recv;
  c.root = (world_.rank() + 1) % world_.size();
  const Work work = world_.communicator()->issue(c);
  co_await work;
}

Task<void> Rank::all(const Node& node) {
  std::vector<Task<void>> tasks;
  for (const std::vector<Node>& branch : node.branches) tasks.push_back(sequence(branch));
  if (differs(node, Differs::SwapsBranches)) std::ranges::reverse(tasks);
  Task<void> joined = when_all(std::move(tasks));
  try {
    co_await std::move(joined);
  } catch (const PlannedError&) {
    if (node.step != Step::TryAll) throw;
    log(node);
  }
}

Task<void> Rank::bounded(const Node& node) {
  const auto work = [this, &node](std::stop_token) { return all(node); };
  const auto limit = node.step == Step::Overdue ? 10s : 100'000s;
  Task<void> bounded = with_deadline(limit, str_cat("step ", node.number), work);
  try {
    co_await std::move(bounded);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Timeout || node.step != Step::Overdue) throw;
    log(node);
  }
}

Task<void> Rank::step(const Node& node) {
  switch (node.step) {
    case Step::Issue: issue(node); break;
    case Step::Yield: co_await yield(); break;
    case Step::Throw: throw PlannedError();
    case Step::Sleep: {
      Task<void> nap = sleep_for(node.nap[static_cast<std::size_t>(world_.rank())]);
      co_await std::move(nap);
      break;
    }
    case Step::Load: {
      auto loaded = in_order(sleep_for(node.nap[static_cast<std::size_t>(world_.rank())]));
      co_await std::move(loaded);
      log(node);
      break;
    }
    case Step::All:
    case Step::TryAll: {
      Task<void> joined = all(node);
      co_await std::move(joined);
      break;
    }
    case Step::Overdue:
    case Step::InTime: {
      Task<void> limited = bounded(node);
      co_await std::move(limited);
      break;
    }
    default: {
      const bool gives_up = differs(node, Differs::GivesUp);
      Task<void> awaited = gives_up ? give_up(node) : await(node);
      co_await std::move(awaited);
      if (node.step == Step::Await) log(node);
    }
  }
}

Task<void> Rank::sequence(const std::vector<Node>& steps) {
  for (const Node& node : steps) {
    if (differs(node, Differs::Throws)) throw Boom();
    if (differs(node, Differs::Leaves)) co_return;
    if (differs(node, Differs::NeverComes)) {
      Task<void> for_ever = sleep_for(1'000'000h);
      co_await std::move(for_ever);
    }
    if (differs(node, Differs::WaitsForNone)) {
      Task<void> none = wait_for_none();
      co_await std::move(none);
    }
    Task<void> next = step(node);
    co_await std::move(next);
  }
}

Task<void> whole(World& world, const RandomProgram& program,
                 const std::optional<Difference>& difference, RankReport& report) {
  report.began = true;
  Rank rank(world, program, difference, report);
  Task<void> body = rank.sequence(program.body);
  co_await std::move(body);
  report.end_ns = world.executor().now();
}

SimOptions sim_options(const std::optional<Difference>& difference,
                       std::vector<std::string>* events, SimOptions sim) {
  sim.most_turns = 1'000'000;
  if (difference && difference->how == Differs::Dies)
    sim.deaths.push_back({difference->rank, difference->number});
  if (events != nullptr)
    sim.on_event = [events](const SimEvent& event) {
      events->push_back(str_cat(event.time_ns, " rank ", event.rank, " ", event.what));
    };
  return sim;
}

}  // namespace

Report run_program(const RandomProgram& program, std::uint64_t seed,
                   const std::optional<Difference>& difference, std::vector<std::string>* events,
                   SimOptions sim) {
  Report report;
  report.ranks.resize(static_cast<std::size_t>(program.ranks));
  WorldOptions options;
  options.ranks = program.ranks;
  options.timeout = difference && difference->how == Differs::WaitsForNone ? 0s : 60s;
  const auto its = [&](int rank) -> RankReport& {
    return report.ranks[static_cast<std::size_t>(rank)];
  };
  static_cast<Simulated&>(report) = simulate_to_the_end(
      options, [&](World& world) { return whole(world, program, difference, its(world.rank())); },
      [&](int rank) -> testing::End& { return its(rank).end; }, seed,
      sim_options(difference, events, std::move(sim)));
  return report;
}

}  // namespace coshard::testing
