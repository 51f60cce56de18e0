#include "tools/conform/op_call.h"

namespace coshard::conform {

const OpTable& matmul_table() {
  static const OpTable table{
      {"matmul", [](const OpCall& c) { return std::vector{matmul(c[0], c[1])}; }},
      {"mm", [](const OpCall& c) { return std::vector{matmul(c[0], c[1])}; }},
      {"linear", [](const OpCall& c) { return std::vector{linear(c[0], c[1], c[2])}; }},
  };
  return table;
}

}  // namespace coshard::conform
