// A program as text, for who looks at a seed that failed.
#include <coshard/runtime/error.h>
#include "tests/runtime/simulation/random_program.h"

namespace coshard::testing {
namespace {

constexpr const char* kNames[] = {"issue", "await",   "await_any", "wait_in_place",
                                  "yield", "sleep",   "load",      "throw",
                                  "all",   "try_all", "overdue",   "in_time"};

std::string text_of(const std::vector<Node>& steps, const std::string& indent) {
  std::string text;
  for (const Node& node : steps) {
    text += str_cat(indent, node.number, " ", kNames[static_cast<int>(node.step)]);
    if (node.step == Step::Issue)
      text += str_cat(" ", to_string(node.kind), " g", node.group, " of ", node.counts.size());
    if (node.kind == CollectiveKind::Send) text += str_cat(" ", node.root, " to ", node.to);
    if (node.step == Step::Await || node.step == Step::AwaitAny || node.step == Step::WaitInPlace)
      text += str_cat(" ", node.of);
    for (const auto nap : node.nap) text += str_cat(" ", nap.count() / 1'000'000, "ms");
    text += "\n";
    for (const auto& branch : node.branches)
      text += indent + "-\n" + text_of(branch, indent + "  ");
  }
  return text;
}

}  // namespace

std::string to_text(const RandomProgram& program) {
  std::string text = str_cat(program.ranks, " ranks\n");
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    text += str_cat("g", g, ":");
    for (const int rank : program.groups[g]) text += str_cat(" ", rank);
    text += "\n";
  }
  return text + text_of(program.body, "");
}

}  // namespace coshard::testing
