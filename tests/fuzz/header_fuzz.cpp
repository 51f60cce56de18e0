// libFuzzer over headers of safetensors files; tests/fuzz/run builds and starts it.
#include "tests/fuzz/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  coshard::testing::read_header({reinterpret_cast<const char*>(data), size});
  return 0;
}
