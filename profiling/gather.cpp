#include <coshard/profiling/gather.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "profiling/json.h"
#include "profiling/observer_json.h"
#include "profiling/rank_clock.h"

namespace coshard {
namespace {

// Bytes that a communicator can move: in the memory of the rank's device.
class Parcel {
 public:
  Parcel(World& world, std::size_t bytes)
      : device_(*world.device()), bytes_(bytes), buffer_(device_.make_buffer(bytes)) {}
  Parcel(World& world, const void* from, std::size_t bytes) : Parcel(world, bytes) {
    device_.upload(buffer_->data(), from, bytes_);
  }
  void take(void* to) const { device_.download(to, buffer_->data(), bytes_); }
  Collective sent(int to) const {
    Collective c = message(CollectiveKind::Send, to);
    c.send = buffer_->data();
    c.keep_send = buffer_;
    return c;
  }
  Collective received(int from) const {
    Collective c = message(CollectiveKind::Recv, from);
    c.recv = buffer_->data();
    c.keep_recv = buffer_;
    return c;
  }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }

 private:
  Collective message(CollectiveKind kind, int peer) const {
    Collective c;
    c.kind = kind;
    c.dtype = DType::Bool;
    c.root = peer;
    c.extent = static_cast<std::int64_t>(bytes_);
    c.label = "gather";
    return c;
  }

  Device& device_;
  std::size_t bytes_;
  std::shared_ptr<Buffer> buffer_;
};

Task<std::vector<std::int64_t>> gather_numbers(World& world, std::int64_t mine) {
  const auto size = static_cast<std::size_t>(world.size());
  const Parcel own(world, &mine, sizeof mine), all(world, size * sizeof mine);
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.dtype = DType::I64;
  c.extent = world.size();
  c.label = "gather";
  c.send = own.buffer()->data();
  c.recv = all.buffer()->data();
  c.keep_send = own.buffer();
  c.keep_recv = all.buffer();
  co_await world.communicator()->issue(c);
  std::vector<std::int64_t> numbers(size);
  all.take(numbers.data());
  co_return numbers;
}

// The texts of all ranks, on rank 0.
Task<std::vector<std::string>> gather_texts(World& world, std::string mine) {
  Task<std::vector<std::int64_t>> counted =
      gather_numbers(world, static_cast<std::int64_t>(mine.size()));
  const std::vector<std::int64_t> sizes = co_await std::move(counted);
  std::vector<std::string> texts;
  if (world.rank() != 0) {
    const Parcel parcel(world, mine.data(), mine.size());
    const Collective c = parcel.sent(0);
    co_await world.communicator()->issue(c);
    co_return texts;
  }
  texts.push_back(std::move(mine));
  for (int rank = 1; rank < world.size(); ++rank) {
    const auto bytes = static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]);
    const Parcel parcel(world, bytes);
    const Collective c = parcel.received(rank);
    co_await world.communicator()->issue(c);
    parcel.take(texts.emplace_back(bytes, '\0').data());
  }
  co_return texts;
}

constexpr int kRounds = 8;

// Rank 0's side: asks a rank for its clock; returns what to add to that to get rank 0's.
Task<std::int64_t> offset_of(World& world, int rank) {
  Communicator& comm = *world.communicator();
  std::int64_t theirs = 0, offset = 0, shortest = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < kRounds; ++round) {
    const Parcel ask(world, &theirs, sizeof theirs), answer(world, sizeof theirs);
    const std::int64_t begin = rank_clock->now();
    const Collective asked = ask.sent(rank), answered = answer.received(rank);
    co_await comm.issue(asked);
    co_await comm.issue(answered);
    const std::int64_t took = rank_clock->now() - begin;
    answer.take(&theirs);
    if (took >= shortest) continue;
    shortest = took;
    offset = begin + took / 2 - theirs;
  }
  const Parcel result(world, &offset, sizeof offset);
  const Collective told = result.sent(rank);
  co_await comm.issue(told);
  co_return offset;
}

// The other rank's side.
Task<std::int64_t> answer_rank_zero(World& world) {
  Communicator& comm = *world.communicator();
  std::int64_t mine = 0, offset = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Parcel ask(world, sizeof mine);
    const Collective asked = ask.received(0);
    co_await comm.issue(asked);
    mine = rank_clock->now();
    const Parcel answer(world, &mine, sizeof mine);
    const Collective answered = answer.sent(0);
    co_await comm.issue(answered);
  }
  const Parcel result(world, sizeof offset);
  const Collective told = result.received(0);
  co_await comm.issue(told);
  result.take(&offset);
  co_return offset;
}

// Of all ranks on rank 0; of this rank only on others.
Task<std::vector<std::int64_t>> clock_offsets(World& world) {
  const auto hash = static_cast<std::int64_t>(std::hash<std::string>()(rank_clock->id));
  Task<std::vector<std::int64_t>> gathered = gather_numbers(world, hash);
  const std::vector<std::int64_t> clocks = co_await std::move(gathered);
  std::vector<std::int64_t> offsets;
  const int last = world.rank() == 0 ? world.size() - 1 : world.rank();
  for (int rank = world.rank(); rank <= last; ++rank) {
    std::int64_t& offset = offsets.emplace_back(0);
    if (clocks[static_cast<std::size_t>(rank)] == clocks[0]) continue;
    Task<std::int64_t> measured =
        world.rank() == 0 ? offset_of(world, rank) : answer_rank_zero(world);
    offset = co_await std::move(measured);
  }
  co_return offsets;
}

}  // namespace

Task<std::vector<CommSummary>> gather_summaries(World& world, const CommSummary& mine) {
  Task<std::vector<std::string>> gathered = gather_texts(world, json_text(ObserverJson::of(mine)));
  const std::vector<std::string> texts = co_await std::move(gathered);
  std::vector<CommSummary> all;
  for (const std::string& text : texts) all.push_back(ObserverJson::summary(Json::parse(text)));
  co_return all;
}

Task<std::vector<ChromeTrace>> gather_traces(World& world, const ChromeTrace& mine) {
  Task<std::vector<std::string>> gathered = gather_texts(world, json_text(ObserverJson::of(mine)));
  const std::vector<std::string> texts = co_await std::move(gathered);
  Task<std::vector<std::int64_t>> measured = clock_offsets(world);
  const std::vector<std::int64_t> offsets = co_await std::move(measured);
  std::vector<ChromeTrace> all;
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    all.push_back(ObserverJson::trace(Json::parse(texts[rank]), offsets[rank]));
  co_return all;
}

Task<std::int64_t> clock_offset(World& world) {
  Task<std::vector<std::int64_t>> measured = clock_offsets(world);
  const std::vector<std::int64_t> offsets = co_await std::move(measured);
  co_return offsets[0];
}

}  // namespace coshard
