#include <coshard/runtime/launch/failure.h>

#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"

namespace coshard {

std::string Failure::line() const {
  std::string who = rank < 0 ? "" : cat("rank ", rank);
  if (!module.empty()) who += cat(who.empty() ? "" : ", ", module);
  return cat(who, who.empty() ? "" : ": ", text, where.line == 0 ? "" : cat(" at ", place(where)));
}

Failure failure_of(int rank, const std::exception_ptr& error, std::string module) {
  Failure failure{rank, message_of(error), std::move(module)};
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    const CallSite site = known.site();
    if (site.known() && failure.text.find(place(site)) == std::string::npos) failure.where = site;
  } catch (...) {
  }
  return failure;
}

}  // namespace coshard
