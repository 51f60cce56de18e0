#pragma once
// Creates a rank's communicator by name, from the back ends in this build.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

// `control` connects the same ranks through host memory, on any device; a back end bootstraps over
// it, and may leave error messages and liveness to it. Called by all ranks. Error{Unsupported}: a
// name that is not in this build, or a device it does not support; names both.
std::shared_ptr<Communicator> make_communicator(std::string_view name,
                                                std::shared_ptr<Communicator> control,
                                                const std::shared_ptr<Device>& device);
std::string communicator_names();  // "local, nccl"
// All names that the library knows, including those not in this build.
std::vector<std::string> known_communicators();
bool has_communicator(std::string_view name);
// Error{Unsupported} as make_communicator, for a name that is not in this build.
void check_communicator(std::string_view name);
// The library that a communicator uses: its version ("": none used), or why it cannot be used.
struct CommunicatorLibrary {
  std::string communicator, version, problem;
};
std::vector<CommunicatorLibrary> communicator_libraries();

// What a back end defines. A back end of this tree is a directory whose sources define
// `NAME_communicator_backend` and whose meson.build adds them and X(NAME); comm/meson.build lists
// the directory. WorldOptions::communicator selects it by name.
struct CommunicatorBackend {
  std::string_view name;
  std::shared_ptr<Communicator> (*make)(std::shared_ptr<Communicator> control,
                                        const std::shared_ptr<Device>& device);
  // "2.28.9, built with 2.28.7"; null: no library used. Error{Unsupported}: it is missing.
  std::string (*versions)() = nullptr;
};
// Registers a user-defined back end, which must outlive all worlds that use it. Call it before any
// world is created; returns true. Error{BadInput}: the name is taken.
bool add_communicator(const CommunicatorBackend& backend);

}  // namespace coshard
