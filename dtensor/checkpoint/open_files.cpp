#include "dtensor/checkpoint/open_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/wait_limit.h>
#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/agreement.h"
#include "dtensor/checkpoint/bands.h"
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/local_parts.h"

namespace coshard {
namespace {

constexpr std::size_t kOfFolder = 4, kOfFile = 4;  // texts

// `manifest`: "": it has none, or it is known.
std::vector<std::string> packed(FolderText text, std::string manifest) {
  std::vector<std::string> all{std::move(manifest), std::move(text.stem),
                               std::move(text.index_path), std::move(text.index)};
  for (HeaderText& file : text.files) {
    all.push_back(std::move(file.path));
    all.push_back(std::move(file.text));
    all.push_back(std::to_string(file.data_bytes));
    all.push_back(std::to_string(file.identity));
  }
  return all;
}

FolderText unpacked(std::vector<std::string> all) {
  FolderText text{std::move(all[1]), std::move(all[2]), std::move(all[3]), {}};
  for (std::size_t i = kOfFolder; i < all.size(); i += kOfFile)
    text.files.push_back({std::move(all[i]), std::move(all[i + 1]), std::stoull(all[i + 2]),
                          std::stoull(all[i + 3])});
  return text;
}

// Error{BadInput}: the files are not those that the manifest tells of, as far as sizes show it.
void require_known(const Manifest& manifest, const std::string& path, const ModelFolder& folder,
                   const FolderText& text) {
  if (!text.index.empty()) manifest.require_text(path, folder.index(), text.index);
  for (std::size_t i = 0; i < folder.files().size(); ++i) {
    const SafetensorsHeader& file = folder.files()[i];
    const auto bytes =
        static_cast<std::uint64_t>(manifest.file(path, folder.name_of_file(i)).bytes);
    CS_REQUIRE(file.file_bytes() == bytes, file.path(), ": has ", file.file_bytes(), " bytes, but ",
               bytes, " were written");
  }
}

// Error{BadInput}: a header is not what was written. Reads the chunks that it lies in.
void require_headers(const Manifest& manifest, const std::string& path, const ModelFolder& folder) {
  for (std::size_t i = 0; i < folder.files().size(); ++i) {
    const SafetensorsHeader& header = folder.files()[i];
    const auto whole = static_cast<std::int64_t>(header.file_bytes());
    const std::int64_t end =
        std::min(chunks_of(static_cast<std::int64_t>(header.data_begin())) * kChunk, whole);
    std::vector<std::byte> bytes(static_cast<std::size_t>(end));
    InputFile(header.path()).read(0, bytes);
    Manifest::require_same(manifest.file(path, folder.name_of_file(i)), header.path(), 0, bytes,
                           [&](auto from, auto to) { return header.names_in(from, to); });
  }
}

}  // namespace

Task<std::shared_ptr<const OpenFiles>> open_files(World& world, std::string path, std::string stem,
                                                  std::shared_ptr<const OpenFiles> beside) {
  const WaitLimit disk(limit_of_disks(world));
  std::vector<std::string> texts;
  std::exception_ptr failed;
  if (world.rank() == 0)
    failed = failure_of([&] {
      std::string manifest = beside == nullptr ? Manifest::text_of(path) : "";
      texts = packed(FolderText::of(path, stem), std::move(manifest));
    });
  Task<std::vector<std::string>> telling = texts_of_rank_0(world, std::move(texts), failed);
  std::vector<std::string> told = co_await std::move(telling);
  std::shared_ptr<const OpenFiles> made;
  failed = failure_of([&] {
    std::shared_ptr<const Manifest> manifest = beside == nullptr ? nullptr : beside->manifest;
    if (!told[0].empty())
      manifest = std::make_shared<Manifest>(Manifest::of_text(told[0], Manifest::path_in(path)));
    const FolderText text = unpacked(std::move(told));
    made = std::make_shared<OpenFiles>(OpenFiles{path, manifest, ModelFolder(text)});
    if (manifest == nullptr) return;
    require_known(*manifest, path, made->folder, text);
    if (world.rank() == 0) require_headers(*manifest, path, made->folder);
  });
  Task<void> agreed = agree(world, failed);
  co_await std::move(agreed);
  co_return made;
}

}  // namespace coshard
