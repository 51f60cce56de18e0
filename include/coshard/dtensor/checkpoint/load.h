#pragma once
// load: reads safetensors files, as Hugging Face or `save` wrote them, into tensors of any layout.
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <coshard/dtensor/checkpoint/state.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

// Which types of a file go into a tensor of another.
enum class Cast : std::uint8_t {
  Same,   // none
  Widen,  // those whose values it has exactly: f16 and bf16 into f32 and f64, f32 into f64, i32
          // into i64
  Any,    // f16, bf16, f32 and f64 into one another, rounded to nearest even; integers into
          // integers, as torch's copy_: what does not fit keeps its low bits
};

struct LoadOptions {
  // Names that the state or the files lack are errors; else they are reported.
  bool strict = true;
  Cast cast = Cast::Widen;
};
static_assert(std::is_trivially_destructible_v<LoadOptions>);  // C9: a default argument

struct LoadReport {
  std::vector<std::string> missing;     // in the state, not in the files: unchanged
  std::vector<std::string> unexpected;  // in the files, not in the state
  std::vector<std::string> unused;  // of those, what such a module computes (Module::unused_names)
  std::vector<std::string> cast;    // read from another type
  std::int64_t bytes = 0;           // read by this rank, headers aside
};

// Fills each rank's parts of the state's tensors, in place, also leaves that require a gradient.
// `path`: a folder with model.safetensors or model.safetensors.index.json, or one file, on storage
// that all ranks share. All ranks of the world call it, with the same names. Rank 0 reads the index
// and the headers; each byte of a tensor is read once, by one rank, and compared with its hash where
// the folder has training/coshard.json.
//   Resumes: when all tensors have their values.
//   Memory:  as save; a part that is cast or not row-major is read aside first.
//   Moves:   one all_to_all of bytes per window, on World::files(); small all_gathers; a broadcast of
//            the index and the headers.
//   Fails:   the same error on all ranks. Error{BadInput}: files that are missing or of another
//            length, headers that are damaged, and names, shapes and types that do not fit, all of
//            these in one error, with nothing changed; data that are damaged, when tensors may hold
//            those before; a tied tensor that the files have twice, with other values, once all are
//            filled. Error{DeviceFailed}: a read fails, or another save replaces the files; tensors
//            may hold parts of them then.
Task<LoadReport> load(State state, std::string path, LoadOptions options = {},
                      CallSite site = CallSite::current());

// The same from the tensors of another state, which may lie on other meshes in other layouts; they
// stay as they are.
Task<LoadReport> copy_state(State from, State to, LoadOptions options = {},
                            CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
