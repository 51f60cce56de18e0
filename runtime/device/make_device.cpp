#include "runtime/device/make_device.h"

#include <coshard/runtime/error.h>
#include "runtime/device/backends.h"

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

}  // namespace

bool has_backend(DeviceKind kind) { return backend_of(kind) != nullptr; }

void check_backend(DeviceKind kind) {
  if (!has_backend(kind))
    fail(ErrorKind::Unsupported,
         cat("device '", to_string(kind), "': this build has no such back end (meson setup -D",
             to_string(kind), "=enabled)"));
}

std::shared_ptr<Device> make_device(DeviceKind kind, const DeviceChoice& choice) {
  check_backend(kind);
  return backend_of(kind)->make(choice);
}

BackendDescription describe_backend(DeviceKind kind) {
  const DeviceBackend* backend = backend_of(kind);
  if (backend != nullptr) return backend->describe();
  BackendDescription missing;
  missing.problem = "this build has no such back end";
  missing.hint = cat("meson setup -D", to_string(kind), "=enabled");
  return missing;
}

int device_count(DeviceKind kind) {
  const DeviceBackend* backend = backend_of(kind);
  return backend == nullptr ? 0 : backend->count();
}

}  // namespace coshard
