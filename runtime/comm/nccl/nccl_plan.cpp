#include "runtime/comm/nccl/nccl_plan.h"

#include <algorithm>

#include "runtime/comm/collective.h"

namespace coshard {
namespace {

// A piece of a buffer: `rows` runs of `run` elements, `pitch` elements apart.
struct Piece {
  std::int64_t offset = 0, rows = 0, run = 0, pitch = 0;
  std::int64_t count() const { return rows * run; }
  bool dense() const { return rows <= 1 || run == pitch || run == 0; }
};

// The shard `cut` of a dimension, with `before` outer rows and `inner` elements per position.
Piece piece_of(const ShardExtent& cut, std::int64_t before, std::int64_t inner) {
  return {cut.offset * inner, before, cut.size * inner, cut.total * inner};
}

class Planner {
 public:
  Planner(const Collective& c, int ranks, int rank, bool one_all_to_all,
          const std::function<void*(std::size_t)>& scratch)
      : c_(c), ranks_(ranks), rank_(rank), one_all_to_all_(one_all_to_all), scratch_(scratch) {
    dtype_ = nccl_type(c.dtype);
    reduce_ = nccl_reduction(c.reduce);
    bytes_ = static_cast<std::int64_t>(size_of(c.dtype));
  }

  NcclPlan make() {
    switch (c_.kind) {
      case CollectiveKind::AllReduce:
        call(NcclCallKind::AllReduce, c_.send, c_.recv, whole());
        break;
      case CollectiveKind::Broadcast:
        call(NcclCallKind::Broadcast, c_.root == rank_ ? c_.send : c_.recv, c_.recv, whole(),
             c_.root);
        break;
      case CollectiveKind::Send:
        call(NcclCallKind::Send, c_.send, nullptr, whole(), c_.root);
        break;
      case CollectiveKind::Recv:
        call(NcclCallKind::Recv, nullptr, c_.recv, whole(), c_.root);
        break;
      case CollectiveKind::Barrier: barrier(); break;
      case CollectiveKind::AllGather: gather(); break;
      case CollectiveKind::ReduceScatter: reduce_scatter(); break;
      case CollectiveKind::Scatter: scatter(); break;
      case CollectiveKind::AllToAll: all_to_all(); break;
    }
    return std::move(plan_);
  }

 private:
  std::int64_t whole() const { return c_.outer * c_.extent * c_.inner; }
  ShardExtent cut(int rank) const { return shard_extent(c_.counts, c_.extent, ranks_, rank); }
  // The size to which shards are padded for a collective of equal parts: that of the largest; 0 if
  // that would double the data or more. Ranks agree, since it depends on the cuts alone.
  std::int64_t padded_size() const {
    std::int64_t most = 0;
    for (int r = 0; r < ranks_; ++r) most = std::max(most, cut(r).size);
    return most * ranks_ < 2 * cut(0).total ? most : 0;
  }
  // Whether each rank's part is in the whole as it is in a collective of equal parts.
  bool in_place(std::int64_t size) const { return c_.outer == 1 && size * ranks_ == cut(0).total; }
  const char* at(const void* base, std::int64_t element) const {
    return static_cast<const char*>(base) + element * bytes_;
  }
  char* at(void* base, std::int64_t element) const {
    return static_cast<char*>(base) + element * bytes_;
  }

  NcclRound& round() {
    if (plan_.rounds.empty()) plan_.rounds.emplace_back();
    return plan_.rounds.back();
  }
  // Ranks agree on the count, so all of them omit an empty call.
  void call(NcclCallKind kind, const void* send, void* recv, std::int64_t count, int peer = 0) {
    if (count == 0) return;
    round().calls.push_back({kind, send, recv, count, peer, dtype_, reduce_});
  }

  StridedCopy copy(void* to, std::int64_t to_pitch, const void* from, std::int64_t from_pitch,
                   const Piece& piece) const {
    return {to, from, piece.rows, piece.run * bytes_, to_pitch * bytes_, from_pitch * bytes_};
  }

  // Where `piece` of `buffer` can be sent from: in place, or packed in scratch memory.
  const void* packed(const void* buffer, const Piece& piece) {
    const void* from = at(buffer, piece.offset);
    if (piece.dense()) return from;
    void* to = scratch_(static_cast<std::size_t>(piece.count() * bytes_));
    plan_.before.push_back(copy(to, piece.run, from, piece.pitch, piece));
    return to;
  }
  // Where `piece` of `buffer` can be received: in place, or in scratch memory and unpacked after the
  // round.
  void* unpacked(void* buffer, const Piece& piece) {
    void* to = at(buffer, piece.offset);
    if (piece.dense()) return to;
    void* from = scratch_(static_cast<std::size_t>(piece.count() * bytes_));
    round().after.push_back(copy(to, piece.pitch, from, piece.run, piece));
    return from;
  }
  // The local part is copied, not sent. Both pieces have the same elements in the same order.
  void keep(void* recv, const Piece& to, const void* send, const Piece& from) {
    if (from.count() == 0) return;
    const char* source = at(send, from.offset);
    if (from.dense() && !to.dense()) {
      plan_.before.push_back(copy(at(recv, to.offset), to.pitch, source, to.run, to));
    } else {
      plan_.before.push_back(copy(unpacked(recv, to), from.run, source, from.pitch, from));
    }
  }

  void barrier() {
    void* word = scratch_(sizeof(std::int32_t));
    dtype_ = ncclInt32;
    reduce_ = ncclMax;
    call(NcclCallKind::AllReduce, word, word, 1);
  }

  void gather() {
    const Piece mine{0, 1, c_.outer * cut(rank_).size * c_.inner, 0};
    if (c_.by_shards && ranks_ > 1) return gather_by_shards(mine);
    if (const std::int64_t size = padded_size(); size > 0) return gather_padded(mine, size);
    for (int r = 0; r < ranks_; ++r) {
      const Piece piece = piece_of(cut(r), c_.outer, c_.inner);
      if (piece.count() == 0) continue;
      void* to = unpacked(c_.recv, piece);
      call(NcclCallKind::Broadcast, r == rank_ ? c_.send : to, to, piece.count(), r);
    }
  }

  void gather_padded(const Piece& mine, std::int64_t size) {
    const std::int64_t count = c_.outer * size * c_.inner;
    if (in_place(size) || count == 0) return call(NcclCallKind::AllGather, c_.send, c_.recv, count);
    void* all = scratch_(static_cast<std::size_t>(count * ranks_ * bytes_));
    const void* send = c_.send;
    // All ranks alike: NCCL wants registered buffers of all of them or of none. What follows a
    // smaller shard there is sent too, and unpacked by no rank.
    if (size * ranks_ > cut(0).total) {
      send = at(all, rank_ * count);
      if (mine.count() > 0)
        plan_.before.push_back(copy(at(all, rank_ * count), mine.run, c_.send, mine.run, mine));
    }
    call(NcclCallKind::AllGather, send, all, count);
    for (int r = 0; r < ranks_; ++r) {
      const Piece piece = piece_of(cut(r), c_.outer, c_.inner);
      if (piece.count() > 0)
        round().after.push_back(
            copy(at(c_.recv, piece.offset), piece.pitch, at(all, r * count), piece.run, piece));
    }
  }

  // Round k: this rank sends to the one k before it and receives from the one k after it.
  void gather_by_shards(const Piece& mine) {
    plan_.round_of.assign(static_cast<std::size_t>(ranks_), -1);
    keep(c_.recv, piece_of(cut(rank_), c_.outer, c_.inner), c_.send, mine);
    for (int k = 1; k < ranks_; ++k) {
      const int source = (rank_ + k) % ranks_, target = (rank_ + ranks_ - k) % ranks_;
      plan_.rounds.emplace_back();
      call(NcclCallKind::Send, c_.send, nullptr, mine.count(), target);
      const Piece theirs = piece_of(cut(source), c_.outer, c_.inner);
      if (theirs.count() > 0)
        call(NcclCallKind::Recv, nullptr, unpacked(c_.recv, theirs), theirs.count(), source);
      plan_.round_of[static_cast<std::size_t>(source)] = k - 1;
    }
  }

  void reduce_scatter() {
    if (const std::int64_t size = padded_size(); size > 0) return reduce_scatter_padded(size);
    for (int r = 0; r < ranks_; ++r) {
      const Piece piece = piece_of(cut(r), c_.outer, c_.inner);
      if (piece.count() == 0) continue;
      const void* from = packed(c_.send, piece);
      call(NcclCallKind::Reduce, from, r == rank_ ? c_.recv : nullptr, piece.count(), r);
    }
  }

  // A smaller shard is padded with its neighbours, so that only values of the program are reduced:
  // from begin(r) on, `size` positions include those of rank r.
  void reduce_scatter_padded(std::int64_t size) {
    const std::int64_t count = c_.outer * size * c_.inner, total = cut(0).total;
    if (in_place(size) || count == 0)
      return call(NcclCallKind::ReduceScatter, c_.send, c_.recv, count);
    const auto begin = [&](int r) { return std::min(cut(r).offset, total - size); };
    void* all = scratch_(static_cast<std::size_t>(count * ranks_ * bytes_));
    for (int r = 0; r < ranks_; ++r) {
      const Piece piece = piece_of({size, begin(r), total}, c_.outer, c_.inner);
      plan_.before.push_back(
          copy(at(all, r * count), piece.run, at(c_.send, piece.offset), piece.pitch, piece));
    }
    const ShardExtent mine = cut(rank_);
    const bool even = size * ranks_ == total;
    void* recv = even ? c_.recv : at(all, rank_ * count);
    call(NcclCallKind::ReduceScatter, all, recv, count);
    if (even || mine.size == 0) return;
    const Piece piece = piece_of({mine.size, mine.offset - begin(rank_), size}, c_.outer, c_.inner);
    round().after.push_back(copy(c_.recv, piece.run, at(recv, piece.offset), piece.pitch, piece));
  }

  void scatter() {
    if (rank_ != c_.root)
      return call(NcclCallKind::Recv, nullptr, c_.recv, c_.outer * cut(rank_).size * c_.inner,
                  c_.root);
    for (int r = 0; r < ranks_; ++r) {
      const Piece piece = piece_of(cut(r), c_.outer, c_.inner);
      if (piece.count() == 0) continue;
      if (r == rank_) {
        keep(c_.recv, {0, 1, piece.count(), 0}, c_.send, piece);
      } else {
        call(NcclCallKind::Send, packed(c_.send, piece), nullptr, piece.count(), r);
      }
    }
  }

  // The block of `send` for `peer`, and the block of `recv` from it.
  Piece outgoing(int peer) const {
    if (c_.send_counts != nullptr) return flat(*c_.send_counts, peer);
    const ShardExtent b = shard_extent(c_.scatter_counts, c_.scatter_extent, ranks_, peer);
    const std::int64_t a = cut(rank_).size;
    return c_.gather_first ? piece_of(b, c_.outer * a * c_.middle, c_.inner)
                           : piece_of(b, c_.outer, c_.middle * a * c_.inner);
  }
  Piece incoming(int peer) const {
    if (c_.recv_counts != nullptr) return flat(*c_.recv_counts, peer);
    const std::int64_t b = shard_extent(c_.scatter_counts, c_.scatter_extent, ranks_, rank_).size;
    return c_.gather_first ? piece_of(cut(peer), c_.outer, c_.middle * b * c_.inner)
                           : piece_of(cut(peer), c_.outer * b * c_.middle, c_.inner);
  }
  static Piece flat(const std::vector<std::int64_t>& counts, int peer) {
    Piece piece{0, 1, counts[static_cast<std::size_t>(peer)], 0};
    for (int r = 0; r < peer; ++r) piece.offset += counts[static_cast<std::size_t>(r)];
    return piece;
  }

  // Whether blocks are of equal size and contiguous on both sides.
  bool one_call() const {
    const std::int64_t count = outgoing(0).count();
    for (int r = 0; r < ranks_; ++r) {
      const Piece out = outgoing(r), in = incoming(r);
      if (!out.dense() || !in.dense() || out.count() != count || in.count() != count) return false;
      if (out.offset != r * count || in.offset != r * count) return false;
    }
    return true;
  }

  void all_to_all() {
    // With flat counts a rank knows only its own, so ranks could choose differently: stays grouped.
    if (one_all_to_all_ && c_.send_counts == nullptr && one_call())
      return call(NcclCallKind::AllToAll, c_.send, c_.recv, outgoing(0).count());
    keep(c_.recv, incoming(rank_), c_.send, outgoing(rank_));
    for (int k = 1; k < ranks_; ++k) {
      const int target = (rank_ + k) % ranks_, source = (rank_ + ranks_ - k) % ranks_;
      const Piece out = outgoing(target), in = incoming(source);
      if (out.count() > 0)
        call(NcclCallKind::Send, packed(c_.send, out), nullptr, out.count(), target);
      if (in.count() > 0)
        call(NcclCallKind::Recv, nullptr, unpacked(c_.recv, in), in.count(), source);
    }
  }

  const Collective& c_;
  int ranks_, rank_;
  bool one_all_to_all_;
  const std::function<void*(std::size_t)>& scratch_;
  std::int64_t bytes_ = 0;
  ncclDataType_t dtype_{};
  ncclRedOp_t reduce_{};
  NcclPlan plan_;
};

}  // namespace

NcclPlan plan_nccl(const Collective& collective, int ranks, int rank, bool all_to_all,
                   const std::function<void*(std::size_t)>& scratch) {
  return Planner(collective, ranks, rank, all_to_all, scratch).make();
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::F32: return ncclFloat32;
    case DType::F64: return ncclFloat64;
    case DType::BF16: return ncclBfloat16;
    case DType::F16: return ncclFloat16;
    case DType::I64: return ncclInt64;
    case DType::I32: return ncclInt32;
    case DType::Bool: return ncclUint8;  // 0 or 1: min is and, max is or
    case DType::F8E4M3:
    case DType::F8E5M2: return ncclUint8;  // only moved
  }
  return ncclUint8;
}

ncclRedOp_t nccl_reduction(Reduce reduce) {
  switch (reduce) {
    case Reduce::Sum: return ncclSum;
    case Reduce::Avg: return ncclAvg;
    case Reduce::Min: return ncclMin;
    case Reduce::Max: return ncclMax;
    case Reduce::Product: return ncclProd;
  }
  return ncclSum;
}

const char* to_string(NcclCallKind kind) {
  switch (kind) {
    case NcclCallKind::AllReduce: return "ncclAllReduce";
    case NcclCallKind::AllGather: return "ncclAllGather";
    case NcclCallKind::ReduceScatter: return "ncclReduceScatter";
    case NcclCallKind::AllToAll: return "ncclAlltoAll";
    case NcclCallKind::Broadcast: return "ncclBroadcast";
    case NcclCallKind::Reduce: return "ncclReduce";
    case NcclCallKind::Send: return "ncclSend";
    case NcclCallKind::Recv: return "ncclRecv";
  }
  return "nccl";
}

}  // namespace coshard
