#include "runtime/comm/make_communicator.h"

#include <coshard/runtime/error.h>
#include "runtime/comm/backends.h"

namespace coshard {

#define X(name) extern const CommunicatorBackend name##_communicator_backend;
COSHARD_COMMUNICATOR_BACKENDS(X)
#undef X

namespace {

using Backends = std::vector<const CommunicatorBackend*>;

// Written before any world is made.
Backends& backends() {
#define X(name) &name##_communicator_backend,
  static Backends all = {COSHARD_COMMUNICATOR_BACKENDS(X)};
#undef X
  return all;
}

const CommunicatorBackend* find_backend(std::string_view name) {
  for (const CommunicatorBackend* backend : backends())
    if (backend->name == name) return backend;
  return nullptr;
}

}  // namespace

std::string communicator_names() {
  std::string names;
  for (const CommunicatorBackend* backend : backends())
    names += str_cat(names.empty() ? "" : ", ", backend->name);
  return names;
}

std::vector<std::string> known_communicators() {
#define X(name) #name,
  return {COSHARD_COMMUNICATOR_KINDS(X)};
#undef X
}

bool has_communicator(std::string_view name) { return find_backend(name) != nullptr; }

void check_communicator(std::string_view name) {
  if (!has_communicator(name))
    fail(ErrorKind::Unsupported,
         str_cat("unknown communicator '", name, "'; this build has ", communicator_names()));
}

std::vector<CommunicatorLibrary> communicator_libraries() {
  std::vector<CommunicatorLibrary> all;
  for (const CommunicatorBackend* backend : backends()) {
    CommunicatorLibrary& one = all.emplace_back();
    one.communicator = backend->name;
    try {
      if (backend->versions != nullptr) one.version = backend->versions();
    } catch (const Error& missing) {
      one.problem = missing.message();
    }
  }
  return all;
}

bool add_communicator(const CommunicatorBackend& backend) {
  CS_REQUIRE(!has_communicator(backend.name), "add_communicator: '", backend.name,
             "' is already registered");
  backends().push_back(&backend);
  return true;
}

std::shared_ptr<Communicator> make_communicator(std::string_view name,
                                                std::shared_ptr<Communicator> control,
                                                const std::shared_ptr<Device>& device) {
  check_communicator(name);
  return find_backend(name)->make(std::move(control), device);
}

}  // namespace coshard
