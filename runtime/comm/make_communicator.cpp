#include "runtime/comm/make_communicator.h"

#include "runtime/comm/backends.h"
#include "runtime/error.h"

namespace coshard {

#define X(name) extern const CommunicatorBackend name##_communicator_backend;
COSHARD_COMMUNICATOR_BACKENDS(X)
#undef X

namespace {

#define X(name) &name##_communicator_backend,
const CommunicatorBackend* const kBackends[] = {COSHARD_COMMUNICATOR_BACKENDS(X)};
#undef X

}  // namespace

std::string communicator_names() {
  std::string names;
  for (const CommunicatorBackend* backend : kBackends)
    names += cat(names.empty() ? "" : ", ", backend->name);
  return names;
}

bool has_communicator(std::string_view name) {
  for (const CommunicatorBackend* backend : kBackends)
    if (backend->name == name) return true;
  return false;
}

std::vector<std::pair<std::string, std::string>> communicator_versions() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const CommunicatorBackend* backend : kBackends)
    all.emplace_back(backend->name, backend->versions != nullptr ? backend->versions() : "");
  return all;
}

std::shared_ptr<Communicator> make_communicator(std::string_view name,
                                                std::shared_ptr<Communicator> control,
                                                const std::shared_ptr<Device>& device) {
  for (const CommunicatorBackend* backend : kBackends)
    if (backend->name == name) return backend->make(std::move(control), device);
  fail(ErrorKind::Unsupported,
       cat("communicator '", name, "': this build has ", communicator_names()));
}

}  // namespace coshard
