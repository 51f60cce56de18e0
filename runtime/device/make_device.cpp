#include "runtime/device/make_device.h"

#include <algorithm>

#include <coshard/runtime/error.h>
#include "runtime/device/backends.h"
#include "runtime/near_miss.h"

namespace coshard {

#define X(name) extern const DeviceBackend name##_device_backend;
COSHARD_DEVICE_BACKENDS(X)
#undef X

namespace {

const DeviceBackend* backend_of(DeviceKind kind) {
#define X(name) &name##_device_backend,
  static const DeviceBackend* const all[] = {COSHARD_DEVICE_BACKENDS(X)};
#undef X
  for (const DeviceBackend* backend : all)
    if (backend->kind == kind) return backend;
  return nullptr;
}

#define X(name) DeviceKind(#name),
constexpr DeviceKind kKinds[] = {COSHARD_DEVICE_KINDS(X)};
#undef X

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceKind kind : kKinds) names.emplace_back(kind.name());
  return names;
}

DeviceKind parse_device_kind(std::string_view text) {
  for (const DeviceKind kind : kKinds)
    if (text == kind.name()) return kind;
  fail(ErrorKind::BadInput,
       str_cat("unknown device '", text, "'; expected ", joined(device_names())));
}

bool has_backend(DeviceKind kind) { return backend_of(kind) != nullptr; }

void check_backend(DeviceKind kind) {
  if (has_backend(kind)) return;
  const BackendDescription missing = describe_backend(kind);
  fail(ErrorKind::Unsupported,
       str_cat("device '", to_string(kind), "' is ", missing.problem, "; ", missing.hint));
}

std::shared_ptr<Device> make_device(DeviceKind kind, const DeviceChoice& choice) {
  check_backend(kind);
  return backend_of(kind)->make(choice);
}

BackendDescription describe_backend(DeviceKind kind) {
  const DeviceBackend* backend = backend_of(kind);
  if (backend != nullptr) return backend->describe();
  BackendDescription missing;
  if (std::ranges::find(kKinds, kind) == std::end(kKinds)) {
    missing.problem = "unknown";
    missing.hint = str_cat("expected ", joined(device_names()));
  } else {
    missing.problem = "not in this build";
    missing.hint = str_cat("configure it with `meson setup -D", to_string(kind), "=enabled`");
  }
  return missing;
}

int device_count(DeviceKind kind) {
  const DeviceBackend* backend = backend_of(kind);
  return backend == nullptr ? 0 : backend->count();
}

}  // namespace coshard
