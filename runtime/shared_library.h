#pragma once
// Libraries that are opened on first use and stay open, so that a program starts without them. Any
// thread.
#include <string>

namespace coshard {

class SharedLibrary {
 public:
  // `name`: a soname, which the loader searches for, or a path. `remedy`: what a user can do when
  // it is missing, appended to the error. Error{Unsupported}, in one line: the name, the loader's
  // message, the remedy.
  SharedLibrary(std::string name, std::string remedy);

  // Null when the library has no function of this name.
  void* find(const char* function) const noexcept;
  // Error{Unsupported} names library and function.
  template <class F>
  void require(F& into, const char* function) const {
    into = reinterpret_cast<F>(require(function));
  }

 private:
  void* require(const char* function) const;

  std::string name_, remedy_;
  void* handle_;
};

// The path of the library or program that contains this address: "/usr/lib/libcoshard.so.0.1".
std::string file_of(const void* address);

}  // namespace coshard
