#pragma once
// The memory of one graph: chunks from cudaMalloc, cut into pieces that are reused as soon as they
// are given back, since the graph runs in compute stream order. Not the memory nodes that
// cudaMallocAsync would record: addresses and pages stay the same across replays, buffers that
// outlive the step need no special handling, and the graph may be relaunched at once (CUDA
// programming guide, "Graph Memory Nodes": not while an allocation of the graph is alive). The
// owner locks.
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
  // `again`: no other stream uses it, so it may be reused.
  void give(void* data, bool again);
  // The size of the next chunk for a request of `bytes`: about as large as all chunks so far.
  std::size_t chunk_for(std::size_t bytes) const;
  static std::size_t smallest_chunk_for(std::size_t bytes);
  std::size_t bytes() const { return bytes_; }
  std::size_t in_use() const { return in_use_; }
  std::vector<Chunk> chunks;

  // Memory allocated before the recording and given back during it: the graph may use it.
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
