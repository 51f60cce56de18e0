#pragma once
// Makes a rank's communicator by its name, from whichever back ends this build has.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

// `control` joins the same ranks through host memory, whatever the device; a back end that needs
// more sets itself up over it and leaves error messages and liveness to it. Called by all ranks.
// Error{Unsupported}: a name this build lacks, or a device it does not serve; names both.
std::shared_ptr<Communicator> make_communicator(std::string_view name,
                                                std::shared_ptr<Communicator> control,
                                                const std::shared_ptr<Device>& device);
std::string communicator_names();  // "local, nccl"
bool has_communicator(std::string_view name);
// Error{Unsupported} as of make_communicator: a name that this build lacks.
void check_communicator(std::string_view name);
// Of the libraries that they use, by name of the communicator; "" for none.
std::vector<std::pair<std::string, std::string>> communicator_versions();

// What a back end defines. One of this tree is a folder that defines `NAME_communicator_backend` in
// its sources, has a meson.build that adds them and X(NAME), and is named in the list of
// comm/meson.build; WorldOptions::communicator asks for it by its name.
struct CommunicatorBackend {
  std::string_view name;
  std::shared_ptr<Communicator> (*make)(std::shared_ptr<Communicator> control,
                                        const std::shared_ptr<Device>& device);
  // "2.28.9, built with 2.28.7"; null: it uses no library.
  std::string (*versions)() = nullptr;
};
// A back end of the program's own, which outlives its worlds. Before any is made; true.
// Error{BadInput}: the name is taken.
bool add_communicator(const CommunicatorBackend& backend);

}  // namespace coshard
