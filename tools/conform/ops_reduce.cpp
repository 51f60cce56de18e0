#include "tools/conform/op_call.h"

namespace coshard::conform {

const OpTable& reduce_table() {
  static const OpTable table{
      {"sum",
       [](const OpCall& c) {
         return std::vector{sum(c[0], c.maybe_dim("dim"), c.flag("keepdim", false))};
       }},
  };
  return table;
}

}  // namespace coshard::conform
