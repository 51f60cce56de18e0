#pragma once
// The memory of one graph: chunks of plain device memory, cut into pieces that are given out again
// as soon as they are given back, since the graph runs in the order of the compute stream. Plain,
// and not the nodes that cudaMallocAsync would record: addresses and pages then stay from replay to
// replay, what outlives the step needs no care, and the graph may be launched again at once (CUDA
// programming guide, "Graph Memory Nodes": not while an allocation of it is alive). The owner
// locks.
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include <coshard/runtime/device/device.h>

namespace coshard {

class GraphMemory {
 public:
  struct Chunk {
    char* data;
    std::size_t bytes;
  };
  // The smallest free piece that is large enough; null: there is none.
  void* take(std::size_t bytes);
  void add(Chunk chunk);
  bool owns(const void* data) const;
  // `again`: other streams are past it.
  void give(void* data, bool again);
  // How large the next chunk is to be for a request of so many bytes: each about as large as all
  // before it.
  std::size_t chunk_for(std::size_t bytes) const;
  static std::size_t smallest_chunk_for(std::size_t bytes);
  std::size_t bytes() const { return bytes_; }
  std::size_t in_use() const { return in_use_; }
  std::vector<Chunk> chunks;

  // What was there before, and was given back while the graph was recorded: the graph may use it.
  struct Outside {
    void* data;
    std::size_t bytes;
    std::vector<std::shared_ptr<Event>> uses;
  };
  std::vector<Outside> outside;
  bool graph_alive = true;

 private:
  struct Piece {
    std::size_t bytes;
    bool free;
    bool first;  // of its chunk
  };
  using Pieces = std::map<char*, Piece>;  // every byte of the chunks
  void merge_with_next(Pieces::iterator piece);

  Pieces pieces_;
  std::size_t bytes_ = 0, in_use_ = 0;
};

}  // namespace coshard
