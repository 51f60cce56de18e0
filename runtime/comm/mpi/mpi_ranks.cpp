#include "runtime/comm/mpi/mpi_ranks.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/mpi/mpi_op.h"
#include "runtime/coro/fault_switch.h"

namespace coshard {
namespace {

// Whether a notice is for a group that may not have been made here yet.
template <class N>
constexpr bool kIsOfGroup = requires(N notice) {
  notice.group, notice.rank;
};

}  // namespace

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
      for (Notice& notice : waiting.mapped())
        std::visit(
            [this](auto& one) {
              if constexpr (kIsOfGroup<decltype(one)>) heard_of_group(std::move(one));
            },
            notice);
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
  } else {
    return std::visit(
        [&](auto& one) {
          if constexpr (kIsOfGroup<decltype(one)>) {
            if constexpr (requires { one.data; })
              if (!one.data.empty()) engine_->note_moved(from);
            const std::scoped_lock in_order(order_);
            heard_of_group(std::move(one));
          }
          return kIsOfGroup<decltype(one)>;
        },
        notice);
  }
  return true;
}

// With order_ held, and mutex_ not: a mismatch poisons the group, which notifies other processes.
template <class OfGroup>
void MpiRanks::heard_of_group(OfGroup notice) {
  std::shared_ptr<LocalGroup> group;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = groups_.find(notice.group);
    if (found == groups_.end())
      return unclaimed_[notice.group].push_back(Notice(std::move(notice)));
    group = found->second.lock();
  }
  if (group == nullptr || group->poisoned()) return;
  if constexpr (std::is_same_v<OfGroup, IssuedNotice>)
    heard(*group, std::move(notice));
  else
    group->announcements().heard(std::move(notice));
}

void MpiRanks::heard(LocalGroup& group, IssuedNotice notice) {
  if (is_point_to_point(notice.args.kind))
    return group.post_elsewhere(notice.args, notice.rank, notice.tag);
  CollectiveOp& op = group.join(notice.sequence, notice.args.kind);
  const OpReference used(op);
  MpiOp::Source& source = MpiOp::of(op).from[static_cast<std::size_t>(notice.rank)];
  source.tag = notice.tag;
  source.told = notice.told;
  source.data = std::move(notice.data);
  group.announce(op, notice.rank, std::move(notice.args), notice.print);
  receive(group, op);
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
      kept->wake_waiters(held->has_dependents);
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
      parker.unpark();      // a wake-up during the park must not be lost: poll again
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

namespace {

// Data up to this size go with the notice; a block would need a second message, and a second poll.
constexpr std::size_t kMostTold = 8 * 1024;

Entry& entry_at(const CollectiveOp& op, int rank) {
  return op.entries[static_cast<std::size_t>(rank)];
}
MpiOp::Source& source_at(const CollectiveOp& op, int rank) {
  return MpiOp::of(op).from[static_cast<std::size_t>(rank)];
}

std::byte* at(void* base, std::int64_t elements, DType dtype) {
  return static_cast<std::byte*>(base) + elements * static_cast<std::int64_t>(size_of(dtype));
}
const std::byte* at(const void* base, std::int64_t elements, DType dtype) {
  return at(const_cast<void*>(base), elements, dtype);
}

// A callback that calls `over` on its `times`-th call.
template <class Over>
auto after(std::size_t times, Over over) {
  const auto left = std::make_shared<std::atomic<std::size_t>>(times);
  return [left, over = std::move(over)] {
    if (left->fetch_sub(1) == 1) over();
  };
}

// The owner of an all_reduce's result; null: the rank keeps it.
std::shared_ptr<Buffer> kept_result(const Collective& c) {
  return c.keep_recv == nullptr && is_in_place(c) ? c.keep_send : c.keep_recv;
}

// The result buffers of an all_reduce's ranks here.
struct Results {
  std::vector<void*> data;
  std::vector<std::shared_ptr<Buffer>> kept;
  bool borrowed = false;  // some rank keeps its own alive
};

Results results_of(const CollectiveOp& op, const std::vector<int>& ranks) {
  Results results;
  for (const int rank : ranks) {
    const Collective& c = entry_at(op, rank).args;
    results.data.push_back(c.recv);
    results.kept.push_back(kept_result(c));
    results.borrowed |= results.kept.back() == nullptr;
  }
  return results;
}

struct Block {
  int target;
  CopyBlock block;
};

// The blocks of a rank here for the ranks of another process, in order.
std::vector<Block> blocks_to(const CollectiveOp& op, int ranks, int rank,
                             const Spread::Process& process) {
  const Collective& c = entry_at(op, rank).args;
  std::vector<Block> blocks;
  for (const int target : process.ranks) {
    CopyBlock block = block_for(c, ranks, rank, target);
    if (is_sharded(c)) {
      const ShardOf shard = shard_of(c, ranks, process);
      block.from = shard.first, block.row = shard.last - shard.first;
    }
    if (elements_of(block) > 0) blocks.push_back({target, block});
    if (is_shared(c.kind)) break;
  }
  return blocks;
}

std::size_t bytes_of(const Block& block, const Collective& c) {
  return static_cast<std::size_t>(elements_of(block.block)) * size_of(c.dtype);
}
std::size_t bytes_of(const ShardOf& shard, const Collective& c) {
  return static_cast<std::size_t>(shard.last - shard.first) * size_of(c.dtype);
}

}  // namespace

void MpiRanks::issued(LocalGroup& group, CollectiveOp& op, int rank) {
  const Entry& entry = entry_at(op, rank);
  const Collective& c = entry.args;
  IssuedNotice notice{group.key(), op.sequence, rank, 0, entry.print, {}, false, {}};
  for (const Spread::Process& process : MpiOp::of(op).spread->elsewhere) {
    notice.told = false;
    notice.data.clear();
    if (!sends_nothing(c, rank)) {
      const auto blocks = blocks_to(op, group.size(), rank, process);
      std::size_t bytes = 0;
      for (const Block& b : blocks) bytes += bytes_of(b, c);
      notice.told = c.after == nullptr && bytes <= kMostTold && !is_sharded(c);
      if (notice.told) {
        notice.data.resize(bytes);
        std::byte* to = notice.data.data();
        for (const Block& b : blocks) {
          pack(b.block, c.send, to, size_of(c.dtype));
          to += bytes_of(b, c);
        }
      } else {
        notice.tag = engine_->next_tag(process.process);
        source_at(op, rank).tags.emplace_back(&process, notice.tag);
      }
    }
    engine_->send_notice(process.process, to_bytes(notice, c));
  }
}

void MpiRanks::send_block(const std::shared_ptr<LocalGroup>& group, CollectiveOp& op,
                          const Sent& sent, std::function<void()> over) {
  const int borrows = sent.memory.owner == nullptr ? 1 : 0;
  borrowed_.fetch_add(borrows);
  std::atomic<int>& unsent = source_at(op, sent.target).unsent;
  unsent.fetch_add(1);
  engine_->send(
      sent.data, sent.bytes, process_of(*group, sent.target), sent.tag,
      [this, borrows, group, held = op.remote, &unsent, over = std::move(over)] {
        borrowed_.fetch_sub(borrows);
        unsent.fetch_sub(1);
        over();
      },
      sent.memory);
}

void MpiRanks::arrived(LocalGroup& group, CollectiveOp& op, int rank) {
  const Collective& c = entry_at(op, rank).args;
  std::vector<Sent> sends;
  for (const auto& [process, tag] : source_at(op, rank).tags)
    for (const Block& b : blocks_to(op, group.size(), rank, *process)) {
      const auto& [target, block] = b;
      const std::size_t bytes = bytes_of(b, c);
      if (is_contiguous(block, block.from_stride)) {
        sends.push_back(
            {target, tag, at(c.send, block.from, c.dtype), bytes, memory_of(c.keep_send, false)});
      } else {
        const std::shared_ptr<std::byte[]> packed(new std::byte[bytes]);
        pack(block, c.send, packed.get(), size_of(c.dtype));
        sends.push_back({target, tag, packed.get(), bytes, {packed}});
      }
    }
  if (sends.empty()) return group.sent(op, rank);
  const auto over =
      after(sends.size(), [held = group.shared_from_this(), &op, rank] { held->sent(op, rank); });
  for (const Sent& sent : sends) send_block(group.shared_from_this(), op, sent, over);
}

void MpiRanks::receive(LocalGroup& group, CollectiveOp& op) {
  int here = -1;
  for (int r = 0; r < group.size() && here < 0; ++r)
    if (group.is_here(r) && entry_at(op, r).issued()) here = r;
  if (here < 0) return;
  for (int r = 0; r < group.size(); ++r) {
    if (entry_at(op, r).stage.load() != Stage::Announced) continue;
    be_slow(2);
    {
      const std::scoped_lock lock(MpiOp::of(op).mutex);
      if (std::exchange(source_at(op, r).received, true)) continue;
    }
    if (!group.agrees(op, here, r)) return;
    receive_from(group, op, r);
  }
}

// Where to receive the data of `source` for `target`, which is here; null: not contiguous, or not
// known yet.
void* MpiRanks::place_for(const LocalGroup& group, const CollectiveOp& op, int source,
                          int target) const {
  const Entry& wants = entry_at(op, target);
  const Collective& from = entry_at(op, source).args;
  const Collective& to = wants.args;
  // Data received after a failure must not be written to freed memory.
  if (!wants.issued() || to.keep_recv == nullptr || to.recv == nullptr) return nullptr;
  if (from.kind == CollectiveKind::AllReduce || from.kind == CollectiveKind::ReduceScatter)
    return nullptr;
  // Other ranks may still read the data when `target`'s own collective is complete.
  if (is_shared(from.kind) && MpiOp::of(op).spread->here.ranks.size() > 1) return nullptr;
  if (from.kind == CollectiveKind::Broadcast) return wants.arrived() ? to.recv : nullptr;
  if (from.kind != CollectiveKind::AllGather && !wants.arrived()) return nullptr;
  const CopyBlock block = block_of(from, to, group.size(), source, target);
  return is_contiguous(block, block.to_stride) ? at(to.recv, block.to, to.dtype) : nullptr;
}

void MpiRanks::receive_from(LocalGroup& group, CollectiveOp& op, int source) {
  Entry& entry = entry_at(op, source);
  const Collective& c = entry.args;
  MpiOp::Source& from = source_at(op, source);
  struct Received {
    void* data;
    std::size_t bytes;
    MpiEngine::Memory memory;
  };
  std::vector<Received> receives;
  std::byte* told = from.told ? from.data.data() : nullptr;
  entry.packed.assign(static_cast<std::size_t>(group.size()), nullptr);
  const Spread::Process& here = MpiOp::of(op).spread->here;
  for (const int target : here.ranks) {
    if (sends_nothing(c, source)) break;
    std::size_t bytes = bytes_for(c, group.size(), source, target);
    if (is_sharded(c)) bytes = bytes_of(shard_of(c, group.size(), here), c);
    void* data = told;
    if (told != nullptr) {
      told += bytes;
    } else if ((data = place_for(group, op, source, target)) != nullptr) {
      if (bytes > 0)
        receives.push_back({data, bytes, memory_of(entry_at(op, target).args.keep_recv, true)});
    } else {
      from.memory.push_back(
          std::make_unique_for_overwrite<std::byte[]>(std::max<std::size_t>(bytes, 1)));
      data = from.memory.back().get();
      if (bytes > 0) receives.push_back({data, bytes, {op.remote}});
    }
    if (is_shared(c.kind)) {
      std::ranges::fill(entry.packed, data);
      break;
    }
    entry.packed[static_cast<std::size_t>(target)] = data;
  }
  if (is_shared(c.kind)) entry.args.send = entry.packed[0];
  if (receives.empty()) return group.received(op, source);
  const auto over = after(receives.size(), [held = group.shared_from_this(), &op, source,
                                            state = op.remote] { held->received(op, source); });
  const int process = process_of(group, source);
  for (const Received& r : receives)
    engine_->receive(r.data, r.bytes, process, from.tag, over, r.memory);
}

bool MpiRanks::armed(LocalGroup& group, CollectiveOp& op) {
  const Collective& c = op.entries[0].args;
  if (!is_sharded(c)) return false;
  const ShardOf shard = shard_of(c, group.size(), MpiOp::of(op).spread->here);
  cut_to(op, shard.first, shard.last);
  return true;
}

// This process's shard is in the results of its ranks: sends it to all other processes, and
// receives each of theirs once.
void MpiRanks::summed(LocalGroup& group, CollectiveOp& op) {
  const Spread::Process& here = MpiOp::of(op).spread->here;
  const int rank = here.ranks[0];
  const Collective& c = entry_at(op, rank).args;
  const auto held = group.shared_from_this();
  const auto& others = source_at(op, rank).tags;
  const auto over =
      after(2 * others.size(), [held, &op, state = op.remote] { held->sent(op, -1); });
  const ShardOf mine = shard_of(c, group.size(), here);
  const auto results = std::make_shared<const Results>(results_of(op, here.ranks));
  const int borrows = results->borrowed ? 1 : 0;
  for (const auto& [process, tag] : std::vector(others)) {
    const int peer = process->ranks[0];
    const ShardOf theirs = shard_of(c, group.size(), *process);
    const std::size_t bytes = bytes_of(theirs, c);
    std::atomic<int>& unsummed = source_at(op, peer).unsummed;
    borrowed_.fetch_add(borrows);
    unsummed.fetch_add(1);
    engine_->receive(
        at(c.recv, theirs.first, c.dtype), bytes, process->process, source_at(op, peer).tag,
        [this, borrows, results, over, bytes, &unsummed, first = theirs.first, dtype = c.dtype] {
          copy_to_others(results->data, first, dtype, bytes);
          borrowed_.fetch_sub(borrows);
          unsummed.fetch_sub(1);
          over();
        },
        borrows > 0 ? MpiEngine::Memory() : memory_of(kept_result(c), true));
    send_block(held, op,
               {peer, tag, at(c.recv, mine.first, c.dtype), bytes_of(mine, c),
                memory_of(kept_result(c), false)},
               over);
  }
}

// Unwinding ranks wait for this to finish; once the engine is halted it writes nothing.
void MpiRanks::copy_to_others(const std::vector<void*>& results, std::int64_t first, DType dtype,
                              std::size_t bytes) {
  copying_.fetch_add(1);
  for (std::size_t r = 1; r < results.size() && !engine_->halted(); ++r)
    std::memcpy(at(results[r], first, dtype), at(results[0], first, dtype), bytes);
  copying_.fetch_sub(1);
}

}  // namespace coshard
