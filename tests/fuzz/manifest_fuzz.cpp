// libFuzzer over training/coshard.json; tests/fuzz/run builds and starts it.
#include "tests/fuzz/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  coshard::testing::read_manifest({reinterpret_cast<const char*>(data), size});
  return 0;
}
