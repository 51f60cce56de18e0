#include <coshard/version.h>

namespace coshard {

std::string_view version() { return COSHARD_VERSION; }

}  // namespace coshard
