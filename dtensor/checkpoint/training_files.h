#pragma once
// What a checkpoint of training has beside the model; save and load do without. Not in the public
// options: those are made within expressions that await, where g++ 12 takes no aggregate that owns
// memory (docs/install.md).
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <coshard/dtensor/checkpoint/async_save.h>
#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/checkpoint/save.h>
#include <coshard/dtensor/checkpoint/state.h>
#include <coshard/runtime/coro/task.h>
#include "dtensor/checkpoint/open_files.h"

namespace coshard {

struct TrainingFiles {
  // What training goes on from, such as the state of an optimizer, by the name of its file:
  // {"optimizer", …} is written as training/optimizer.safetensors, or as files and an index, in its
  // own dtypes. With it or a `step` the folder gets training/coshard.json (manifest.h).
  std::map<std::string, State> training;
  std::optional<std::int64_t> step;
  // Further files of the folder, such as config.json: bytes by name. Equal on all ranks.
  std::map<std::string, std::string> files;
  std::string stem = "model";  // of the files of the state itself
};

// As save. Error{BadInput}: also a name that is none of a file, or a negative step.
Task<void> save_with(State state, std::string folder, SaveOptions options, TrainingFiles beside);

Task<Saving> async_save_with(State state, std::string folder, SaveOptions options,
                             TrainingFiles beside);

struct FilesToLoad {
  std::string path, stem = "model";                 // as open_files
  std::shared_ptr<const OpenFiles> open = nullptr;  // null: they are opened
  // Ends of names that the files may have and the state has no use for: reported, and no error.
  std::vector<std::string> unused = {};
  // Of names of the state that the files may lack: reported as missing, and no error.
  std::vector<std::string> optional = {};
  bool only_checks = false;  // whether all fits; fills nothing
};

// As load.
Task<LoadReport> load_files(State state, FilesToLoad from, LoadOptions options);

}  // namespace coshard
