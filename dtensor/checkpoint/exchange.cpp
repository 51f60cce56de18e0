#include "dtensor/checkpoint/exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "dtensor/checkpoint/agreement.h"
#include "dtensor/checkpoint/aligned_bytes.h"

namespace coshard {

template <class Each>
void Exchange::each_tensor(int rank, int window, Each&& each) const {
  std::int64_t at = 0;
  for (const FileBytes& part : bands_.window(rank, window)) {
    auto tensor =
        std::ranges::lower_bound(tensors_, std::tuple(part.file, part.begin + 1), {},
                                 [](const PlacedTensor& t) { return std::tuple(t.file, t.end); });
    for (; tensor != tensors_.end() && tensor->file == part.file && tensor->begin < part.end;
         ++tensor) {
      const std::int64_t begin = std::max(tensor->begin, part.begin);
      const std::int64_t end = std::min(tensor->end, part.end);
      if (begin < end)
        each(static_cast<std::size_t>(tensor - tensors_.begin()), begin - tensor->begin,
             end - tensor->begin, at + begin - part.begin);
    }
    at += in_blocks(part.end - part.begin);
  }
}

ByteVector Exchange::room_for(const std::vector<std::int64_t>& counts) const {
  ByteVector room = pool_->take();
  room.clear();
  room.reserve(
      static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})));
  return room;
}

Task<void> Exchange::collect(int window, PartsToSave& parts, std::span<std::byte> bytes) {
  const int me = world_.rank();
  const auto ranks = static_cast<std::size_t>(world_.size());
  std::vector<std::int64_t> send_counts(ranks), recv_counts(ranks);
  const auto each_sent = [&](auto&& take) {
    for (int writer = 0; writer < world_.size(); ++writer)
      each_tensor(writer, window, [&](std::size_t i, std::int64_t begin, std::int64_t end, auto) {
        HeldTensor& held = tensors_[i].held;
        if (writer == me || !held.gives(me, writer)) return;
        take(writer, i, held.part(me).before(begin), held.part(me).before(end));
      });
  };
  each_sent([&](int writer, std::size_t, std::int64_t from, std::int64_t to) {
    send_counts[static_cast<std::size_t>(writer)] += to - from;
  });
  ByteVector sent = room_for(send_counts);
  each_sent([&](int, std::size_t i, std::int64_t from, std::int64_t to) {
    const std::size_t place = sent.size();
    sent.resize(place + static_cast<std::size_t>(to - from));
    if (from < to) parts.read(i, from, std::span(sent).subspan(place));
  });
  for (int giver = 0; giver < world_.size(); ++giver)
    each_tensor(me, window, [&](std::size_t i, std::int64_t begin, std::int64_t end, auto) {
      HeldTensor& held = tensors_[i].held;
      if (giver != me && held.gives(giver, me))
        recv_counts[static_cast<std::size_t>(giver)] +=
            held.part(giver).before(end) - held.part(giver).before(begin);
    });
  Task<ReceivedBytes> exchanged = exchange_bytes(world_, std::move(sent), std::move(send_counts),
                                                 std::move(recv_counts), pool_);
  const ReceivedBytes received = co_await std::move(exchanged);
  place(window, parts, *received, bytes);
}

// What others have sent and what this rank has itself into its window; between tensors: 0.
void Exchange::place(int window, PartsToSave& parts, const ByteVector& received,
                     std::span<std::byte> bytes) {
  const int me = world_.rank();
  ByteVector own;
  std::size_t covered = 0;
  each_tensor(me, window, [&](std::size_t, std::int64_t begin, std::int64_t end, std::int64_t at) {
    std::ranges::fill(bytes.subspan(covered, static_cast<std::size_t>(at) - covered), std::byte{});
    covered = static_cast<std::size_t>(at + end - begin);
  });
  std::ranges::fill(bytes.subspan(covered), std::byte{});
  const std::byte* next = received.data();
  for (int giver = 0; giver < world_.size(); ++giver)
    each_tensor(
        me, window, [&](std::size_t i, std::int64_t begin, std::int64_t end, std::int64_t at) {
          HeldTensor& held = tensors_[i].held;
          if (!held.gives(giver, me)) return;
          const ByteRegion& part = held.part(giver);
          const std::byte* from = next;
          if (giver == me && part.before(end) - part.before(begin) == end - begin)
            return parts.read(
                i, part.before(begin),
                bytes.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(end - begin)));
          if (giver == me) {
            own.resize(static_cast<std::size_t>(part.before(end) - part.before(begin)));
            if (!own.empty()) parts.read(i, part.before(begin), own);
            from = own.data();
          }
          part.each_run(begin, end, [&](std::int64_t run, std::int64_t size) {
            std::memcpy(bytes.data() + at + run - begin, from, static_cast<std::size_t>(size));
            from += size;
          });
          if (giver != me) next = from;
        });
}

Task<void> Exchange::spread(int window, std::span<const std::byte> bytes, PartsToLoad& parts) {
  const int me = world_.rank();
  const auto ranks = static_cast<std::size_t>(world_.size());
  std::vector<std::int64_t> send_counts(ranks), recv_counts(ranks);
  for (int taker = 0; taker < world_.size(); ++taker)
    each_tensor(me, window, [&](std::size_t i, std::int64_t begin, std::int64_t end, auto) {
      const ByteRegion& part = tensors_[i].held.part(taker);
      if (taker != me)
        send_counts[static_cast<std::size_t>(taker)] += part.before(end) - part.before(begin);
    });
  ByteVector sent = room_for(send_counts), own;
  for (int taker = 0; taker < world_.size(); ++taker)
    each_tensor(
        me, window, [&](std::size_t i, std::int64_t begin, std::int64_t end, std::int64_t at) {
          const ByteRegion& part = tensors_[i].held.part(taker);
          if (taker == me && part.before(end) - part.before(begin) == end - begin)
            return parts.write(
                i, part.before(begin),
                bytes.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(end - begin)));
          ByteVector& to = taker == me ? own : sent;
          if (taker == me) own.clear();
          const std::size_t before = to.size();
          to.resize(before + static_cast<std::size_t>(part.before(end) - part.before(begin)));
          std::byte* place = to.data() + before;
          part.each_run(begin, end, [&](std::int64_t run, std::int64_t size) {
            std::memcpy(place, bytes.data() + at + run - begin, static_cast<std::size_t>(size));
            place += size;
          });
          if (taker == me && !own.empty()) parts.write(i, part.before(begin), own);
        });
  const auto each_received = [&](auto&& take) {
    for (int reader = 0; reader < world_.size(); ++reader)
      if (reader != me)
        each_tensor(reader, window, [&](std::size_t i, std::int64_t begin, std::int64_t end, auto) {
          const ByteRegion& part = tensors_[i].held.part(me);
          take(reader, i, part.before(begin), part.before(end));
        });
  };
  each_received([&](int reader, std::size_t, std::int64_t from, std::int64_t to) {
    recv_counts[static_cast<std::size_t>(reader)] += to - from;
  });
  Task<ReceivedBytes> exchanged = exchange_bytes(world_, std::move(sent), std::move(send_counts),
                                                 std::move(recv_counts), pool_);
  const ReceivedBytes received = co_await std::move(exchanged);
  std::span<const std::byte> next = *received;
  each_received([&](int, std::size_t i, std::int64_t from, std::int64_t to) {
    const auto size = static_cast<std::size_t>(to - from);
    if (size > 0) parts.write(i, from, next.first(size));
    next = next.subspan(size);
  });
}

std::vector<int> Exchange::last_windows() const {
  std::vector<int> last(tensors_.size(), -1);
  for (int window = 0; window < bands_.windows(); ++window)
    for (int rank = 0; rank < world_.size(); ++rank)
      each_tensor(rank, window, [&](std::size_t i, auto, auto, auto) { last[i] = window; });
  return last;
}

}  // namespace coshard
