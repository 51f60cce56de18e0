#pragma once
// Libraries that are opened when they are first needed and then stay open, so that a program starts
// without them. Any thread.
#include <string>

namespace coshard {

class SharedLibrary {
 public:
  // `name`: a soname, which the loader searches for, or a path. `remedy`: what a user can do when
  // it is not there, for the end of the error. Error{Unsupported}, in one line: the name, what the
  // loader says, the remedy.
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

// Where the library or program lies that this address is part of: "/usr/lib/libcoshard.so.0.1".
std::string file_of(const void* address);

}  // namespace coshard
