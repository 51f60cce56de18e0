#pragma once
// Creates a rank's communicator by name, from the back ends in this build.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

// `control` joins the same ranks through host memory, on any device; a back end sets itself up over
// it, and may leave error messages and liveness to it. Called by all ranks. Error{Unsupported}: a
// name that is not in this build, or a device it does not support; names both.
std::shared_ptr<Communicator> make_communicator(std::string_view name,
                                                std::shared_ptr<Communicator> control,
                                                const std::shared_ptr<Device>& device);
std::string communicator_names();  // "local, nccl"
// All that the library knows, also those that are not in this build.
std::vector<std::string> known_communicators();
bool has_communicator(std::string_view name);
// Error{Unsupported} as make_communicator, for a name that is not in this build.
void check_communicator(std::string_view name);
// The library that a communicator uses: its version ("": it uses none), or why it cannot be used.
struct CommunicatorLibrary {
  std::string communicator, version, problem;
};
std::vector<CommunicatorLibrary> communicator_libraries();

// What a back end defines. A back end of this tree is a folder whose sources define
// `NAME_communicator_backend` and whose meson.build adds them and X(NAME); the folder is listed in
// comm/meson.build. WorldOptions::communicator selects it by name.
struct CommunicatorBackend {
  std::string_view name;
  std::shared_ptr<Communicator> (*make)(std::shared_ptr<Communicator> control,
                                        const std::shared_ptr<Device>& device);
  // "2.28.9, built with 2.28.7"; null: it uses no library. Error{Unsupported}: it is not there.
  std::string (*versions)() = nullptr;
};
// Registers a back end of the program's own, which must outlive its worlds. Call it before any
// world is made; returns true. Error{BadInput}: the name is taken.
bool add_communicator(const CommunicatorBackend& backend);

}  // namespace coshard
