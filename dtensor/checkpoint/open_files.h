#pragma once
// The files of a folder that is loaded from. Rank 0 alone reads its index, its headers and its hashes;
// all ranks get them. Rank's thread.
#include <memory>
#include <string>

#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/model_folder.h"

namespace coshard {

struct OpenFiles {
  std::string path;                          // of the folder, or of one file
  std::shared_ptr<const Manifest> manifest;  // null: it has none
  ModelFolder folder;
};

// `stem`: as FolderText. `beside`: other files of the same folder, whose manifest is this one's, too.
// All ranks. Error{BadInput}, the same on all: as Manifest::of and ModelFolder; files that are not as
// long, or an index that is not, as the manifest says.
//   Moves:  as texts_of_rank_0.
Task<std::shared_ptr<const OpenFiles>> open_files(
    World& world, std::string path, std::string stem,
    std::shared_ptr<const OpenFiles> beside = nullptr);

}  // namespace coshard
