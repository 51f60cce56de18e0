#include "runtime/comm/local/device/device_op.h"

#include <algorithm>
#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/local/group.h"
#include "runtime/comm/local/host/chunks.h"

namespace coshard {
namespace {

using Sides = std::vector<DeviceSide>;

int ranks_of(const Sides& sides) { return static_cast<int>(sides.size()); }
Stream& stream_of(const DeviceSide& side) { return *side.stream; }
PeerEngine& engine_of(const DeviceSide& side) { return *side.device->peers(); }

const char* at(const void* base, std::int64_t bytes) {
  return static_cast<const char*>(base) + bytes;
}
char* at(void* base, std::int64_t bytes) { return static_cast<char*>(base) + bytes; }

std::int64_t width_of(const Collective& c) { return static_cast<std::int64_t>(size_of(c.dtype)); }
std::int64_t plain_bytes(const Collective& c) { return c.outer * c.extent * c.inner * width_of(c); }
bool is_small(const Collective& c, int ranks) {
  return plain_bytes(c) * ranks <= kDeviceOneShotBytes;
}

// Later work on every stream runs after everything the first stream has waited for.
std::shared_ptr<Event> go_on(const Sides& sides) {
  std::shared_ptr<Event> event = stream_of(sides[0]).record();
  for (std::size_t r = 1; r < sides.size(); ++r) stream_of(sides[r]).wait(*event);
  return event;
}

// Later work on every stream runs after what is queued on each of them.
std::shared_ptr<Event> meet(const Sides& sides) {
  for (std::size_t r = 1; r < sides.size(); ++r)
    stream_of(sides[0]).wait(*stream_of(sides[r]).record());
  return go_on(sides);
}

// Later work on every stream runs once the buffers of all ranks are ready.
void meet_when_ready(const Sides& sides) {
  for (const DeviceSide& side : sides) stream_of(sides[0]).wait(*side.ready);
  go_on(sides);
}

void copy(const DeviceSide& on, void* to, const void* from, std::int64_t bytes) {
  if (to == from || bytes == 0) return;
  engine_of(on).copy({to, from, 1, bytes, bytes, bytes}, stream_of(on));
}

// Merges loops with matching strides into one loop over rows, for a single copy.
void copy_block(const DeviceSide& on, const CopyBlock& block, const void* send, void* recv,
                std::int64_t width) {
  struct Loop {
    std::int64_t size, from, to;
  };
  const auto loop = [&](std::size_t i) {
    return Loop{block.size[i], block.from_stride[i], block.to_stride[i]};
  };
  Loop rows = loop(2);
  std::array<Loop, 2> outer{loop(1), loop(0)};
  if (block.row * rows.size * outer[0].size * outer[1].size == 0) return;
  for (Loop& next : outer) {
    if (rows.size == 1) {
      std::swap(rows, next);
    } else if (next.from == rows.size * rows.from && next.to == rows.size * rows.to) {
      rows.size *= next.size;
      next.size = 1;
    }
  }
  for (std::int64_t i = 0; i < outer[0].size; ++i)
    for (std::int64_t j = 0; j < outer[1].size; ++j) {
      const std::int64_t from = block.from + i * outer[0].from + j * outer[1].from;
      const std::int64_t to = block.to + i * outer[0].to + j * outer[1].to;
      engine_of(on).copy({at(recv, to * width), at(send, from * width), rows.size,
                          block.row * width, rows.to * width, rows.from * width},
                         stream_of(on));
    }
}

// Each rank fetches its part from every rank, its own first.
void queue_exchange(const Sides& sides, std::vector<std::shared_ptr<Event>>& parts) {
  const int ranks = ranks_of(sides);
  for (int target = 0; target < ranks; ++target) {
    const DeviceSide& to = sides[static_cast<std::size_t>(target)];
    for (int i = 0; i < ranks; ++i) {
      const int source = (target + i) % ranks;
      const DeviceSide& from = sides[static_cast<std::size_t>(source)];
      copy_block(to, block_of(*from.args, *to.args, ranks, source, target), from.args->send,
                 to.args->recv, width_of(*from.args));
      if (parts.empty()) continue;
      parts[static_cast<std::size_t>(target * ranks + source)] =
          to.timed ? stream_of(to).record_timed() : stream_of(to).record();
    }
  }
}

void queue_from_root(const Sides& sides, bool cuts) {
  const Collective& any = *sides[0].args;
  const DeviceSide& from = sides[static_cast<std::size_t>(any.root)];
  for (int target = 0; target < ranks_of(sides); ++target) {
    const DeviceSide& to = sides[static_cast<std::size_t>(target)];
    if (cuts) {
      copy_block(to, block_of(*from.args, *to.args, ranks_of(sides), any.root, target),
                 from.args->send, to.args->recv, width_of(any));
    } else {
      copy(to, to.args->recv, from.args->send, plain_bytes(any));
    }
  }
}

// Reduces elements [begin, begin + count) of all send buffers into `target`, in rank order.
void reduce(const Sides& sides, const DeviceSide& on, std::int64_t begin, std::int64_t count,
            void* target) {
  if (count == 0) return;
  const Collective& c = *on.args;
  std::vector<const void*> sources;
  for (const DeviceSide& side : sides) sources.push_back(at(side.args->send, begin * width_of(c)));
  engine_of(on).reduce(c.dtype, c.reduce, sources, target, count, stream_of(on));
}

// Every rank reduces the whole buffer; in-place results are written after all ranks have read.
void queue_small_all_reduce(const Sides& sides) {
  const std::int64_t bytes = plain_bytes(*sides[0].args);
  for (const DeviceSide& side : sides)
    reduce(sides, side, 0, bytes / width_of(*side.args),
           side.scratch != nullptr ? side.scratch : side.args->recv);
  const auto in_place = [](const DeviceSide& side) { return side.scratch != nullptr; };
  if (std::none_of(sides.begin(), sides.end(), in_place)) return;
  meet(sides);
  for (const DeviceSide& side : sides)
    if (in_place(side)) copy(side, side.args->recv, side.scratch, bytes);
}

// Each rank reduces one slice, then fetches the other slices from its peers. No peer accesses that
// slice of this rank's buffers during the reduction, so it also works in place.
void queue_large_all_reduce(const Sides& sides) {
  const Collective& c = *sides[0].args;
  const std::int64_t all = c.outer * c.extent * c.inner;
  const std::size_t n = sides.size();
  const auto begin = [&](std::size_t r) {
    return all / static_cast<std::int64_t>(n) * static_cast<std::int64_t>(r) +
           std::min<std::int64_t>(static_cast<std::int64_t>(r), all % static_cast<std::int64_t>(n));
  };
  for (std::size_t r = 0; r < n; ++r)
    reduce(sides, sides[r], begin(r), begin(r + 1) - begin(r),
           at(sides[r].args->recv, begin(r) * width_of(c)));
  meet(sides);
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t i = 1; i < n; ++i) {
      const std::size_t peer = (r + i) % n;
      const std::int64_t offset = begin(peer) * width_of(c);
      copy(sides[r], at(sides[r].args->recv, offset), at(sides[peer].args->recv, offset),
           begin(peer + 1) * width_of(c) - offset);
    }
}

// A non-contiguous shard is first fetched from all ranks, then reduced.
void queue_reduce_scatter(const Sides& sides) {
  const int ranks = ranks_of(sides);
  for (int rank = 0; rank < ranks; ++rank) {
    const DeviceSide& mine = sides[static_cast<std::size_t>(rank)];
    const Collective& c = *mine.args;
    const ShardExtent cut = shard_extent(c.counts, c.extent, ranks, rank);
    const std::int64_t row = cut.size * c.inner, count = c.outer * row;
    if (mine.scratch == nullptr) {
      reduce(sides, mine, cut.offset * c.inner, count, c.recv);
      continue;
    }
    std::vector<const void*> fetched;
    for (const DeviceSide& side : sides) {
      void* to = at(mine.scratch, static_cast<std::int64_t>(fetched.size()) * count * width_of(c));
      engine_of(mine).copy(
          {to, at(side.args->send, cut.offset * c.inner * width_of(c)), c.outer, row * width_of(c),
           row * width_of(c), cut.total * c.inner * width_of(c)},
          stream_of(mine));
      fetched.push_back(to);
    }
    engine_of(mine).reduce(c.dtype, c.reduce, fetched, c.recv, count, stream_of(mine));
  }
}

void queue_work(const Sides& sides, std::vector<std::shared_ptr<Event>>& parts) {
  const Collective& any = *sides[0].args;
  meet_when_ready(sides);
  switch (any.kind) {
    case CollectiveKind::AllGather:
      if (recv_elements(any, ranks_of(sides), 0) * width_of(any) > kDeviceOneShotBytes)
        parts.resize(sides.size() * sides.size());
      return queue_exchange(sides, parts);
    case CollectiveKind::AllToAll: return queue_exchange(sides, parts);
    case CollectiveKind::Scatter: return queue_from_root(sides, true);
    case CollectiveKind::Broadcast: return queue_from_root(sides, false);
    case CollectiveKind::Send:
    case CollectiveKind::Recv:
      return copy(sides[1], sides[1].args->recv, sides[0].args->send, plain_bytes(*sides[1].args));
    case CollectiveKind::Barrier: return;
    case CollectiveKind::AllReduce:
      return is_small(any, ranks_of(sides)) ? queue_small_all_reduce(sides)
                                            : queue_large_all_reduce(sides);
    case CollectiveKind::ReduceScatter: return queue_reduce_scatter(sides);
  }
}

}  // namespace

void DeviceOp::reset() {
  for (DeviceSide& side : sides) side = DeviceSide();
  over_.reset();
  parts_.clear();
  started_ = false;
}

std::int64_t scratch_bytes(const Collective& c, int ranks, int rank) {
  if (c.kind == CollectiveKind::AllReduce && c.send == c.recv && is_small(c, ranks))
    return plain_bytes(c);
  if (c.kind == CollectiveKind::ReduceScatter && c.outer > 1)
    return recv_elements(c, ranks, rank) * width_of(c) * ranks;
  return 0;
}

void DeviceOp::queue(std::weak_ptr<LocalGroup> group, const CollectiveInfo& what,
                     std::int64_t timeout_ns) {
  group_ = std::move(group);
  what_ = what;
  timeout_ns_ = timeout_ns;
  started_ = true;
  for (DeviceSide& side : sides) {
    if (!side.timed) continue;
    stream_of(side).wait(*side.ready);
    side.begin = stream_of(side).record_timed();
  }
  std::shared_ptr<Stream> of_first = sides[0].stream;
  // A message is fetched by its receiver.
  if (is_point_to_point(what.kind)) sides[0].stream = sides[1].stream;
  queue_work(sides, parts_);
  over_ = meet(sides);  // later work on any of the streams runs after the whole op
  sides[0].stream = std::move(of_first);  // which goes before its device
  for (DeviceSide& side : sides) {
    if (side.timed) {
      stream_of(side).wait(*over_);
      side.over = stream_of(side).record_timed();
    }
    for (auto& buffer : side.kept)
      if (auto kept = std::move(buffer)) kept->used_until(over_);
    side.known = side.device;
    side.stream.reset();
    side.device.reset();
  }
}

const std::shared_ptr<Event>& DeviceOp::end_of_part(int source, int target) const {
  const auto ranks = static_cast<int>(sides.size());
  return parts_.empty() ? over_ : parts_[static_cast<std::size_t>(target * ranks + source)];
}

void DeviceOp::keep(std::size_t side, Kept&& buffers, bool poisoned) {
  if (over_ != nullptr) {
    for (auto& buffer : buffers)
      if (buffer != nullptr) buffer->used_until(over_);
  } else if (started_ || !poisoned) {
    sides[side].kept = std::move(buffers);
  }
}

bool DeviceOp::over() {
  try {
    return over_->query();
  } catch (const Error&) {  // a wait for this device gets the error from its own query
    return false;
  }
}

void DeviceOp::check(std::int64_t waited_ns) {
  if (timeout_ns_ == 0 || waited_ns < timeout_ns_) return;
  const auto group = group_.lock();
  if (group == nullptr) return;
  if (group->poisoned()) throw group->poisoned(*what_);
  const std::string message = what_->timeout_text(group->title(), waited_ns, late_text());
  if (!group->poison(message)) throw group->poisoned(*what_);
  throw Error(ErrorKind::Timeout, message);
}

// Names the ranks whose compute stream has not reached the collective that all have issued.
std::string DeviceOp::late_text() const {
  std::string text;
  for (const DeviceSide& side : sides) {
    bool ready = false;
    try {
      ready = side.ready->query();
    } catch (const Error&) {  // a failed device never gets there
    }
    const auto device = side.known.lock();
    if (!ready)
      text += str_cat(text.empty() ? "" : ", ", side.rank,
                      device != nullptr ? str_cat(" (", device->name(), ")") : "");
  }
  return str_cat(
      "issued by all ranks; ",
      text.empty() ? "the transfer has not finished" : "not reached on its stream: ", text);
}

}  // namespace coshard
