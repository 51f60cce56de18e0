#pragma once
// Whether operators are recorded, and a log of the tensors they read. Rank's thread.
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// While one is alive, operators in this branch are recorded, even under a NoGradGuard (tape.h):
// recomputation records again while backward runs.
class RecordGuard {
 public:
  RecordGuard();
  ~RecordGuard();
  RecordGuard(const RecordGuard&) = delete;
  RecordGuard& operator=(const RecordGuard&) = delete;

 private:
  bool before_;
};

// Under a NoGradGuard, what a view operator that changes nothing returns: x itself, or a view of it
// off the tape if it has a gradient.
inline Tensor untaped(const Tensor& x) {
  if (x.is_current() && !x.requires_grad()) return x;
  Tensor view = x.with_spec(x.spec());
  view.set_base(x);
  return view;
}

// Which tensors the operators of this branch read, from the constructor to stop().
class ReadLog {
 public:
  ReadLog();
  ~ReadLog() { stop(); }
  ReadLog(const ReadLog&) = delete;
  ReadLog& operator=(const ReadLog&) = delete;
  void stop();
  void read(const Tensor& tensor);
  // Drops the reads of a tensor that was created since the constructor.
  void forget(const Tensor& tensor);
  // Error{BadInput} "who: ..." if a tensor that still exists was written to since it was first
  // read.
  void require_unchanged(std::string_view who) const;
  // The gradient slots of tensors that were read and existed before the log.
  const std::vector<std::shared_ptr<GradMeta>>& wanted() const { return wanted_; }

 private:
  struct Read {
    std::weak_ptr<Buffer> buffer;
    std::uint32_t changes;
    Shape shape;
    DType dtype;
    std::shared_ptr<const Spec> spec;
  };
  bool is_from_before(const Tensor& tensor) const;

  std::vector<Read> reads_;
  std::unordered_set<const Buffer*> known_;
  std::vector<std::shared_ptr<GradMeta>> wanted_;
  std::uint64_t since_;  // the newest record that existed before the log
  ReadLog* outer_;
  bool stopped_ = false;
};

}  // namespace coshard
