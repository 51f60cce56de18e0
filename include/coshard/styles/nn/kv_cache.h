#pragma once
// KvCache: the keys and values of past positions. SequenceScope: what the rows of a batch are, for
// the attention modules of a forward. Owned by the user; rank's thread.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <coshard/dtensor/ops/ops.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

// One K and one V [batch, kv heads of this rank, capacity, head_dim] per attention module of a
// model, in the order in which a forward runs them. They are allocated by the first forward, in the
// layout of its keys, and written in place. In a forward all rows take the same slots: those of
// shorter prompts are padded on the left.
class KvCache {
 public:
  // Error{BadInput}: a capacity below 1.
  explicit KvCache(std::int64_t capacity);

  std::int64_t capacity() const { return capacity_; }  // slots of a row
  std::int64_t size() const { return size_; }          // of which hold keys and values
  std::int64_t bytes() const;                          // allocated on this rank

  struct Entry {
    Tensor keys, values;
  };
  // Called by each attention module once per forward. k, v [batch, heads, seq, head_dim] go behind
  // the slots that are filled; returns all slots up to the new ones, as views.
  // Error{BadInput}: on the tape (NoGradGuard); more slots than there are; another batch, other
  // heads or layouts than those of the slots that are filled; more modules than in the first
  // forward; another seq than the module before.
  Entry append(const Tensor& k, const Tensor& v);
  // A forward begins, called by SequenceScope: what one before appended without advance() is
  // overwritten.
  void begin_forward() { next_ = 0; }
  // After a forward over `seq` positions: its slots are filled. Error{BadInput}: another seq than it
  // appended; fewer modules than in the first forward.
  void advance(std::int64_t seq);
  // No slot is filled. The memory stays, for prompts of the same batch.
  void clear() { size_ = 0, next_ = 0; }

 private:
  std::int64_t capacity_, size_ = 0, seq_ = 0;  // seq_: of this forward
  std::size_t next_ = 0;                        // the module of a forward that appends next
  std::vector<Entry> entries_;
};

// What a forward needs to know where row b of a batch is not the positions 0, 1, … of one sequence.
struct Sequences {
  Tensor positions;  // i64 [batch, seq]
  // The slots that each query sees. Without a cache, slots are the columns of the batch. A layer
  // with a sliding window sees the last of them only.
  KeyRanges keys;
  KvCache* cache = nullptr;
  std::int64_t longest = 0;       // the largest position + 1: rotary positions of type dynamic
  bool last_logits_only = false;  // logits [batch, 1, vocab], of the last column
};

// While one is alive, CausalLM, GPT2, Transformer and Attention use its sequences, in this branch.
// A module of your own calls sequences(), place() and attend().
class [[nodiscard]] SequenceScope {
 public:
  explicit SequenceScope(Sequences sequences);
  // The scope that sequences() was of, again; null: none.
  explicit SequenceScope(std::shared_ptr<const Sequences> of);
  ~SequenceScope();
  SequenceScope(const SequenceScope&) = delete;
  SequenceScope& operator=(const SequenceScope&) = delete;

 private:
  std::shared_ptr<const Sequences> outer_;
};

// Those of the innermost scope; null: none.
const std::shared_ptr<const Sequences>& sequences();

// rotary_embedding of x [batch, seq, heads, head_dim] at the positions of the scope, else at 0, 1, ….
Tensor place(const Tensor& x, const RotaryTable& table);
Tensor place(const Tensor& x, double theta);
// attention() of q, k, v [batch, heads, seq, head_dim]: causal, with a window unless that is 0; or of
// the scope's keys, with those of its cache.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t window = 0,
              std::optional<double> scale = std::nullopt);
// The columns of x [batch, seq, hidden] whose logits are wanted.
Tensor wanted_columns(const Tensor& x);

// Rows that hold several documents each, one after another: lengths[b] of row b, each of which sums
// to the same seq. Positions start at 0 in each document, and queries see their own document alone.
// Error{BadInput}: no row; a length below 1; rows that differ in their sum.
Sequences documents(const std::shared_ptr<Device>& device,
                    const std::vector<std::vector<std::int64_t>>& lengths);

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
