#pragma once
// save: writes tensors in any layout as a folder of safetensors files, as Hugging Face has them.
// The bytes depend on names, types, shapes and values alone: not on layouts, meshes, or the number
// of ranks.
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include <coshard/dtensor/checkpoint/state.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

struct SaveOptions {
  std::optional<DType> dtype =
      std::nullopt;  // of those of f16, bf16, f32 and f64; default: their own
  // Tensors of one file, at most; a larger tensor has a file alone.
  std::int64_t file_bytes = 5'000'000'000;
  // A model's folder that is there is replaced, with all files in it, at the end and at once.
  bool overwrite = false;
};
static_assert(std::is_trivially_destructible_v<SaveOptions>);  // C9: a default argument

// Writes model.safetensors, or files of SaveOptions::file_bytes and model.safetensors.index.json,
// into a new folder, on storage that all ranks share. All ranks of the world call it, with the same
// names. Tied tensors are written once, under their first name. A Partial is written as its sum (or
// mean, …), which loads into a Replicate or a Shard, not into a Partial again.
//   Resumes: when all is on the disk and the folder has its name; until then it is `folder`.part,
//            which a failure removes.
//   Memory:  this rank's share of at most 32 MiB per window, and what it sends for those;
//            copies of parts that are not row-major or are written in another dtype.
//   Moves:   one all_to_all of bytes per window, on World::files(); small all_gathers.
//   Fails:   the same error on all ranks, which names the rank that failed first. Error{BadInput}:
//            ranks with other tensors; a plain tensor that is known to differ by rank; a folder
//            that is not empty, without `overwrite`, or has no model or other folders with it; one that cannot be made, or that another save
//            is writing. Error{DeviceFailed}: the disk is full, or another error of the system.
Task<void> save(State state, std::string folder, SaveOptions options = {},
                CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
