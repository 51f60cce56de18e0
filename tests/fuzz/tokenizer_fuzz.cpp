// libFuzzer over tokenizer.json; tests/fuzz/run builds and starts it.
#include "tests/fuzz/tokenizer_format.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  coshard::testing::read_tokenizer({reinterpret_cast<const char*>(data), size});
  return 0;
}
