#pragma once
// Texts as data: token ids in a file that is mapped into memory, and batches of windows of it that
// depend on a seed and the number of the step alone. Rank's thread.
//
//   cs::TokenBatches batches(cs::TokenFile("kjv.npy"), {.batch = 8, .seq = 512, .vocab = 49152});
//   cs::Tensor rows = batches.batch(step, mesh["dp"]);  // i64 [8 / dp, 513]
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

// Ids in their order. Immutable; copies share them.
class TokenFile {
 public:
  // A file as numpy.save writes an array of one dimension of uint16 or uint32
  // (numpy.lib.format, versions 1 to 3); numpy.load reads it. It is mapped, not read, and must stay
  // as it is. Error{BadInput}: it cannot be opened, or is none such; it has no ids; it is shorter or
  // longer than its header says.
  explicit TokenFile(std::string path);
  // Of ids that are made here, such as of a tokenized text; `name` stands for the path in errors.
  // Error{BadInput}: no ids, or one that is not in [0, 2^32).
  TokenFile(const std::vector<std::int64_t>& ids, std::string name);
  // Writes such a file, of uint16 if all ids fit. Error{BadInput}: as above. Error{DeviceFailed}: the
  // system's error.
  void save(const std::string& path) const;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  std::int64_t operator[](std::int64_t at) const;  // of [0, size())

 private:
  std::string path_;
  std::shared_ptr<const void> ids_;
  std::int64_t size_ = 0;
  bool wide_ = true;  // uint32
};

struct TokenBatchesOptions {
  std::int64_t batch = 1;   // rows of all data-parallel ranks together
  std::int64_t seq = 1024;  // a row has seq + 1 ids: inputs, and targets one further
  std::uint64_t seed = 0;
  std::int64_t vocab = 0;  // ids must be less; 0: not compared
};

// Row i of step s is window number s * batch + i of an endless sequence. An epoch has each window
// once: they lie side by side (the last id of one is the first of the next), are shuffled by a
// permutation of (seed, epoch), and begin at an offset of it, so that ids left over at the ends
// differ. A step is all that a checkpoint needs to go on.
class TokenBatches {
 public:
  // Error{BadInput}: batch or seq < 1; fewer than seq + 1 ids; an id that is not less than vocab, with
  // its position.
  TokenBatches(TokenFile file, TokenBatchesOptions options);

  std::int64_t windows() const { return windows_; }  // of an epoch
  // i64 [batch, seq + 1], on the device of the calling rank. `replicas`: a mesh of one dimension
  // whose ranks train on rows of their own, each on an even part, such as mesh["dp"]; ranks along
  // other dimensions, such as "tp", get the same rows. Error{BadInput}: step < 0; a batch that the
  // replicas do not divide.
  Tensor batch(std::int64_t step, const DeviceMesh& replicas = {}) const;
  // Where window `number` of the endless sequence begins.
  std::int64_t window_begin(std::int64_t number) const;

 private:
  TokenFile file_;
  TokenBatchesOptions options_;
  std::int64_t windows_;
};

}  // namespace coshard
#pragma GCC visibility pop
