#include "tools/conform/op_call.h"

namespace coshard::conform {

const OpTable& pointwise_table() {
  static const OpTable table{
      {"neg", [](const OpCall& c) { return std::vector{neg(c[0])}; }},
      {"add",
       [](const OpCall& c) {
         return std::vector{c[1].defined() ? add(c[0], c[1], c.number("alpha", 1))
                                           : add(c[0], c.number("other"))};
       }},
      {"relu", [](const OpCall& c) { return std::vector{relu(c[0])}; }},
  };
  return table;
}

}  // namespace coshard::conform
