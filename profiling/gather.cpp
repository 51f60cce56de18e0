#include <coshard/profiling/gather.h>

#include <limits>
#include <utility>

#include "profiling/json.h"
#include "profiling/observer_json.h"
#include "runtime/launch/host.h"

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

// On rank 0 the texts of all ranks.
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

// What a rank adds to its clock to have that of rank 0; on rank 0 of each rank, elsewhere none.
Task<std::vector<std::int64_t>> clock_offsets(World& world) {
  constexpr int kRounds = 8;
  std::vector<std::int64_t> offsets;
  Communicator& comm = *world.communicator();
  std::int64_t theirs = 0;
  if (world.rank() != 0) {
    for (int round = 0; round < kRounds; ++round) {
      const Parcel ask(world, sizeof theirs);
      const Collective asked = ask.received(0);
      co_await comm.issue(asked);
      theirs = now_ns();
      const Parcel answer(world, &theirs, sizeof theirs);
      const Collective answered = answer.sent(0);
      co_await comm.issue(answered);
    }
    co_return offsets;
  }
  offsets.push_back(0);
  for (int rank = 1; rank < world.size(); ++rank) {
    std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
    std::int64_t& offset = offsets.emplace_back(0);
    for (int round = 0; round < kRounds; ++round) {
      const Parcel ask(world, &theirs, sizeof theirs), answer(world, sizeof theirs);
      const std::int64_t begin = now_ns();
      const Collective asked = ask.sent(rank), answered = answer.received(rank);
      co_await comm.issue(asked);
      co_await comm.issue(answered);
      const std::int64_t took = now_ns() - begin;
      answer.take(&theirs);
      if (took >= shortest) continue;
      shortest = took;
      offset = begin + took / 2 - theirs;
    }
  }
  co_return offsets;
}

// Equal for processes that have the same steady clock.
std::string clock_id() {
  const std::string id = host_id();
  return id.substr(0, id.find(':'));
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
  Json own = ObserverJson::of(mine);
  own["clock"] = clock_id();
  Task<std::vector<std::string>> gathered = gather_texts(world, json_text(own));
  const std::vector<std::string> texts = co_await std::move(gathered);
  Task<std::vector<std::int64_t>> measured = clock_offsets(world);
  const std::vector<std::int64_t> offsets = co_await std::move(measured);
  std::vector<ChromeTrace> all;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const Json theirs = Json::parse(texts[rank]);
    const bool same = theirs["clock"] == own["clock"];
    all.push_back(ObserverJson::trace(theirs, same ? 0 : offsets[rank]));
  }
  co_return all;
}

}  // namespace coshard
