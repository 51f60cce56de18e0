#include "runtime/launch/failure.h"

#include "runtime/comm/collective.h"
#include "runtime/error.h"

namespace coshard {

std::string Failure::line() const {
  std::string who = rank < 0 ? "" : cat("rank ", rank);
  if (!module.empty()) who += cat(who.empty() ? "" : ", ", module);
  return cat(who, who.empty() ? "" : ": ", text, where.line == 0 ? "" : cat(" at ", place(where)));
}

}  // namespace coshard
