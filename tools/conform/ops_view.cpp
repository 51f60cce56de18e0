#include "tools/conform/op_call.h"

namespace coshard::conform {

const OpTable& view_table() {
  static const OpTable table{
      {"view", [](const OpCall& c) { return std::vector{view(c[0], c.list("shape"))}; }},
      {"transpose",
       [](const OpCall& c) {
         return std::vector{transpose(c[0], c.integer("dim0"), c.integer("dim1"))};
       }},
  };
  return table;
}

}  // namespace coshard::conform
