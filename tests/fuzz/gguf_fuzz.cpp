// libFuzzer over GGUF files; tests/fuzz/run builds and starts it.
#include "tests/fuzz/gguf_format.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  coshard::testing::read_gguf({reinterpret_cast<const char*>(data), size});
  return 0;
}
