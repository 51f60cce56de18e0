#include "runtime/shared_library.h"

#include <dlfcn.h>

#include <utility>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

std::string last_problem() {
  const char* text = dlerror();
  return text != nullptr ? text : "the loader does not say why";
}

}  // namespace

SharedLibrary::SharedLibrary(std::string name, std::string remedy)
    : name_(std::move(name)), remedy_(std::move(remedy)) {
  handle_ = dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr)
    fail(ErrorKind::Unsupported,
         str_cat("cannot load ", name_, " (", last_problem(), "): ", remedy_));
}

void* SharedLibrary::find(const char* function) const noexcept { return dlsym(handle_, function); }

void* SharedLibrary::require(const char* function) const {
  void* found = find(function);
  if (found == nullptr)
    fail(ErrorKind::Unsupported,
         str_cat(name_, " has no ", function, " (", last_problem(), "): ", remedy_));
  return found;
}

std::string file_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace coshard
