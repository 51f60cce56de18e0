#include <coshard/styles/nn/kv_cache.h>

#include <algorithm>
#include <numeric>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/branch.h>

namespace coshard::nn {
namespace {

using Shared = std::shared_ptr<const Sequences>;

const BranchLocal<Shared>& innermost() {
  static const BranchLocal<Shared> local;
  return local;
}

Shared checked(Sequences sequences) {
  const KeyRanges& keys = sequences.keys;
  CS_REQUIRE(sequences.positions.defined() && keys.first.defined() && keys.last.defined(),
             "SequenceScope: positions, keys.first and keys.last are needed, i64 [batch, seq]");
  CS_REQUIRE(sequences.positions.ndim() == 2 && keys.first.shape() == sequences.positions.shape() &&
                 keys.last.shape() == sequences.positions.shape(),
             "SequenceScope: positions ", sequences.positions.shape(), ", keys.first ",
             keys.first.shape(), " and keys.last ", keys.last.shape(), " are not all [batch, seq]");
  if (sequences.cache != nullptr) sequences.cache->begin_forward();
  return std::make_shared<const Sequences>(std::move(sequences));
}

// Memory like x [batch, heads, seq, head_dim], with `capacity` for seq.
Tensor room_for(const Tensor& x, std::int64_t capacity) {
  Shape shape = x.shape();
  shape[2] = capacity;
  if (x.is_distributed()) return empty(x.mesh(), x.layout(), shape, x.dtype());
  return Tensor::empty(x.device(), shape, x.dtype());
}

bool fits(const Tensor& room, const Tensor& x) {
  if (!room.defined()) return false;
  if (room.dtype() != x.dtype() || room.is_distributed() != x.is_distributed()) return false;
  if (x.is_distributed() && room.layout() != x.layout()) return false;
  Shape shape = x.shape();
  shape[2] = room.size(2);
  return room.shape() == shape;
}

// The slots [0, end) of `room`, after x was written to the last of them.
Tensor filled_with(const Tensor& room, const Tensor& x, std::int64_t begin) {
  const std::int64_t seq = x.size(2);
  copy_(narrow(room, 2, begin, seq), x);
  return narrow(room, 2, 0, begin + seq);
}

// The keys that are left by a window.
KeyRanges within(const KeyRanges& keys, std::int64_t window) {
  if (window == 0) return keys;
  return {maximum(keys.first, keys.last - (window - 1)), keys.last};
}

}  // namespace

KvCache::KvCache(std::int64_t capacity) : capacity_(capacity) {
  CS_REQUIRE(capacity >= 1, "KvCache: capacity ", capacity, " is below 1");
}

std::int64_t KvCache::bytes() const {
  std::int64_t sum = 0;
  for (const Entry& entry : entries_)
    for (const Tensor* room : {&entry.keys, &entry.values})
      sum += room->local_numel() * static_cast<std::int64_t>(size_of(room->dtype()));
  return sum;
}

KvCache::Entry KvCache::append(const Tensor& k, const Tensor& v) {
  CS_REQUIRE(k.ndim() == 4 && v.ndim() == 4 && k.size(2) == v.size(2), "KvCache: keys ", k,
             " and values ", v, " are not [batch, heads, seq, head_dim]");
  CS_REQUIRE(!grad_enabled(), "KvCache: keys on the tape; hold a NoGradGuard while it is in use");
  CS_REQUIRE(size_ + k.size(2) <= capacity_, "KvCache: ", size_, " slots are filled, and ",
             k.size(2), " more do not fit into its capacity of ", capacity_);
  CS_REQUIRE(next_ == 0 || k.size(2) == seq_, "KvCache: keys of ", k.size(2),
             " positions after those of ", seq_, " in one forward");
  if (size_ == 0 && next_ == entries_.size()) entries_.emplace_back();
  CS_REQUIRE(next_ < entries_.size(), "KvCache: more attention modules than the ", entries_.size(),
             " of the first forward append keys");
  Entry& entry = entries_[next_];
  if (size_ == 0 && !(fits(entry.keys, k) && fits(entry.values, v)))
    entry = {room_for(k, capacity_), room_for(v, capacity_)};
  CS_REQUIRE(fits(entry.keys, k) && fits(entry.values, v), "KvCache: keys ", k, " and values ", v,
             " do not fit the cache ", entry.keys,
             "; make another cache for another batch or plan");
  ++next_;
  seq_ = k.size(2);
  return {filled_with(entry.keys, k, size_), filled_with(entry.values, v, size_)};
}

void KvCache::advance(std::int64_t seq) {
  CS_REQUIRE(next_ == 0 || seq == seq_, "KvCache: advance(", seq, ") after a forward over ", seq_,
             " positions");
  if (size_ == 0) entries_.resize(next_);
  CS_REQUIRE(next_ == entries_.size(), "KvCache: ", next_, " of ", entries_.size(),
             " attention modules appended keys in this forward; run all of them, once");
  size_ += seq;
  next_ = 0;
}

SequenceScope::SequenceScope(Sequences sequences) : SequenceScope(checked(std::move(sequences))) {}
SequenceScope::SequenceScope(Shared of) : outer_(innermost().get()) {
  innermost().own() = std::move(of);
}
SequenceScope::~SequenceScope() { innermost().own() = outer_; }

const Shared& sequences() { return innermost().get(); }

Tensor place(const Tensor& x, const RotaryTable& table) {
  const Shared& of = sequences();
  return of == nullptr ? rotary_embedding(x, table) : rotary_embedding(x, table, of->positions);
}

Tensor place(const Tensor& x, double theta) {
  const Shared& of = sequences();
  return of == nullptr ? rotary_embedding(x, theta) : rotary_embedding(x, theta, of->positions);
}

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t window,
              std::optional<double> scale) {
  const Shared& of = sequences();
  if (of == nullptr) return attention(q, k, v, true, scale, window);
  CS_REQUIRE(of->positions.shape() == Shape({q.size(0), q.size(2)}), "attend: q ", q,
             " is not of the positions of its SequenceScope, [batch, seq] ", of->positions.shape());
  const KeyRanges keys = within(of->keys, window);
  if (of->cache == nullptr) return attention(q, k, v, keys, scale);
  const KvCache::Entry all = of->cache->append(k, v);
  return attention(q, all.keys, all.values, keys, scale);
}

Tensor wanted_columns(const Tensor& x) {
  const Shared& of = sequences();
  return of == nullptr || !of->last_logits_only ? x : narrow(x, 1, x.size(1) - 1, 1);
}

Sequences documents(const std::shared_ptr<Device>& device,
                    const std::vector<std::vector<std::int64_t>>& lengths) {
  CS_REQUIRE(!lengths.empty(), "documents: no row");
  const std::int64_t seq = std::accumulate(lengths[0].begin(), lengths[0].end(), std::int64_t{0});
  std::vector<std::int64_t> positions, first, last;
  Sequences of;
  for (const std::vector<std::int64_t>& row : lengths) {
    std::int64_t begin = 0;
    for (const std::int64_t length : row) {
      CS_REQUIRE(length >= 1 && length <= seq, "documents: a length of ", length, " in rows of ",
                 seq);
      for (std::int64_t i = 0; i < length; ++i) {
        positions.push_back(i);
        first.push_back(begin);
        last.push_back(begin + i);
      }
      begin += length;
      of.longest = std::max(of.longest, length);
    }
    CS_REQUIRE(begin == seq, "documents: a row of ", begin, " positions beside one of ", seq);
  }
  const Shape shape{static_cast<std::int64_t>(lengths.size()), seq};
  const auto tensor = [&](const std::vector<std::int64_t>& values) {
    return Tensor::from_values(device, shape, DType::I64, values);
  };
  of.positions = tensor(positions);
  of.keys = {tensor(first), tensor(last)};
  return of;
}

}  // namespace coshard::nn
