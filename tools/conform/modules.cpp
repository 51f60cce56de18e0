#include "tools/conform/modules.h"

namespace coshard::conform {

Task<bool> run_module_step(Program&, const Json&) { co_return false; }

Tensor find_parameter(const Program&, const std::string&) { return {}; }

}  // namespace coshard::conform
