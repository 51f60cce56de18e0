// A module of another version (99.9.9), or of another build of this one: only what of it may be
// read.
#include <coshard/version.h>
#include <cstddef>

#ifndef COSHARD_STRANGER_VERSION
#define COSHARD_STRANGER_VERSION COSHARD_VERSION
#endif

struct Stranger {
  const char* version;
  std::size_t layout;
};

extern "C" const Stranger* coshard_cuda_module(const void*) {
  static const Stranger module = {COSHARD_STRANGER_VERSION, 1};
  return &module;
}
