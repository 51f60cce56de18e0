#include "runtime/comm/mpi/mpi_ranks.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/mpi/mpi_op.h"

namespace coshard {

MpiEngine::Memory memory_of(const std::shared_ptr<Buffer>& buffer, bool is_tensor) {
  return {buffer, is_tensor, buffer != nullptr && !buffer->owned() && buffer->bytes() > 0};
}

MpiRanks::MpiRanks(std::shared_ptr<MpiEngine> engine, int per_process, std::uint64_t run)
    : engine_(std::move(engine)), per_process_(per_process), run_(run) {}

void MpiRanks::tell(Hooks hooks) {
  hooks_ = std::move(hooks);
  engine_->on_in_flight(hooks_.in_flight);
  engine_->on_notice(
      [this](int from, std::span<const std::byte> bytes) { return heard(from, bytes); });
  send_to_all(RunNotice{run_, per_process_ * engine_->processes()});
}

void MpiRanks::stop(bool is_latest) {
  if (is_latest) {
    engine_->on_notice(nullptr);
    engine_->on_in_flight(nullptr);
  }
  hooks_ = {};
}

void MpiRanks::send_to_all(const Notice& notice) {
  for (int process = 0; process < engine_->processes(); ++process)
    if (process != engine_->process()) engine_->send_notice(process, to_bytes(notice));
}

std::shared_ptr<const Spread> MpiRanks::spread_of(const LocalGroup& group) const {
  std::vector<Spread::Process> all;
  for (int r = 0; r < group.size(); ++r) {
    const int process = process_of(group, r);
    auto found = std::ranges::find(all, process, &Spread::Process::process);
    if (found == all.end()) found = all.insert(found, {process, {}, 0});
    found->ranks.push_back(r);
  }
  auto spread = std::make_shared<Spread>();
  int before = 0;
  for (Spread::Process& one : all) {
    one.before = before;
    before += static_cast<int>(one.ranks.size());
    if (one.process == engine_->process())
      spread->here = std::move(one);
    else
      spread->elsewhere.push_back(std::move(one));
  }
  return spread;
}

std::shared_ptr<RemoteState> MpiRanks::new_state(const LocalGroup& group, const RemoteState* last) {
  const auto* before = static_cast<const MpiOp*>(last);
  return std::make_shared<MpiOp>(group.size(),
                                 before != nullptr ? before->spread : spread_of(group));
}

void MpiRanks::made(const std::shared_ptr<LocalGroup>& group) {
  std::string cause;
  {
    const std::scoped_lock in_order(order_);
    {
      const std::scoped_lock lock(mutex_);
      std::erase_if(groups_, [](const auto& known) { return known.second.expired(); });
      groups_[group->key()] = group;
      if (const auto found = poisoned_.find(group->key()); found != poisoned_.end())
        cause = found->second;
    }
    if (const auto waiting = unclaimed_.extract(group->key()); !waiting.empty())
      for (IssuedNotice& notice : waiting.mapped()) heard(std::move(notice));
  }
  if (!cause.empty()) group->poisoned_elsewhere(cause);
}

void MpiRanks::poison_group(std::uint64_t key, const std::string& cause) {
  std::shared_ptr<LocalGroup> group;
  {
    const std::scoped_lock lock(mutex_);
    poisoned_.try_emplace(key, cause);
    if (const auto found = groups_.find(key); found != groups_.end()) group = found->second.lock();
  }
  if (group != nullptr) group->poisoned_elsewhere(cause);
}

bool MpiRanks::heard(int from, std::span<const std::byte> bytes) {
  if (ahead_.contains(from)) return false;
  Notice notice = notice_of(bytes);
  if (const auto* left = std::get_if<LeftNotice>(&notice)) {
    if (left->run == run_) hooks_.left(left->rank);
  } else if (const auto* begun = std::get_if<RunNotice>(&notice)) {
    if (begun->run > run_) return ahead_.insert(from), false;
    if (begun->run < run_) return true;  // of one that failed
    const int ranks = per_process_ * engine_->processes();
    if (begun->ranks != ranks)
      hooks_.failed(str_cat("process ", from, " runs ", begun->ranks, " ranks, process ",
                            engine_->process(), " runs ", ranks));
  } else if (auto* issued = std::get_if<IssuedNotice>(&notice)) {
    if (!issued->data.empty()) engine_->note_moved(from);
    const std::scoped_lock in_order(order_);
    heard(std::move(*issued));
  } else {
    return false;
  }
  return true;
}

// With order_ held, and mutex_ not: a mismatch poisons the group, which notifies other processes.
void MpiRanks::heard(IssuedNotice notice) {
  std::shared_ptr<LocalGroup> group;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = groups_.find(notice.group);
    if (found == groups_.end()) return unclaimed_[notice.group].push_back(std::move(notice));
    group = found->second.lock();
  }
  if (group == nullptr || group->poisoned()) return;
  if (is_point_to_point(notice.args.kind))
    return group->post_elsewhere(notice.args, notice.rank, notice.tag);
  CollectiveOp& op = group->join(notice.sequence, notice.args.kind);
  MpiOp::Source& source = MpiOp::of(op).from[static_cast<std::size_t>(notice.rank)];
  source.tag = notice.tag;
  source.told = notice.told;
  source.data = std::move(notice.data);
  group->announce(op, notice.rank, std::move(notice.args), notice.print);
  receive(*group, op);
}

int MpiRanks::posted(LocalGroup& group, const Collective& args, int rank) {
  const int process = process_of(group, args.root);
  const int tag = args.kind == CollectiveKind::Send ? engine_->next_tag(process) : 0;
  const IssuedNotice notice{group.key(), 0, rank, tag, {}, {}, false, {}};
  engine_->send_notice(process, to_bytes(notice, args));
  return tag;
}

std::function<void()> MpiRanks::carrier(LocalGroup& group,
                                        const std::shared_ptr<Message>& message) {
  return [this, &group, known = std::weak_ptr(message)] {
    const auto held = known.lock();
    const auto over = [held, kept = group.shared_from_this()] {
      held->moved();
      kept->ring(held->has_dependents);
    };
    const std::size_t bytes = bytes_of(*held);
    if (bytes == 0) return over();
    if (group.is_here(held->source)) {
      const int borrows = held->send.keep_send == nullptr ? 1 : 0;
      borrowed_.fetch_add(borrows);
      return engine_->send(
          held->send.send, bytes, process_of(group, held->target), held->tag,
          [this, borrows, over] {
            borrowed_.fetch_sub(borrows);
            over();
          },
          memory_of(held->send.keep_send, false));
    }
    held->memory.resize(bytes);
    engine_->receive(held->memory.data(), bytes, process_of(group, held->source), held->tag, over,
                     {held});
  };
}

// Waits until peers have received what was announced to them, unless they have given up too.
void MpiRanks::abandon(const LocalGroup& group) {
  constexpr std::int64_t kMost = 100'000'000, kLookAgainNs = 50'000;
  struct AfterCopies {
    const std::atomic<int>& copying;
    ~AfterCopies() {
      while (copying.load() > 0) std::this_thread::yield();
    }
  } const end{copying_};
  Parker& parker = RankContext::current().parker();
  const std::int64_t latest = parker.now() + kMost;
  try {
    while (borrowed_.load() > 0 && !engine_->halted() && parker.now() < latest) {
      if (engine_->drive()) continue;
      if (!parker.shares_its_thread()) {
        std::this_thread::yield();
        continue;
      }
      parker.park(parker.now() + kLookAgainNs);
    }
    if (parker.shares_its_thread())
      parker.ring();        // a ring during the park must not be lost: poll again
  } catch (const Error&) {  // this rank's thread is being abandoned
    engine_->halt();
    throw;
  }
  if (borrowed_.load() == 0 || engine_->halted()) return;
  engine_->halt();
  if (hooks_.failed) hooks_.failed(group.cause());
}

void MpiRanks::poisoned(const LocalGroup& group, const std::string& cause) {
  if (hooks_.tell_all) hooks_.tell_all({run_, group.key(), cause});
}

}  // namespace coshard
