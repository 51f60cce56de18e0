#pragma once
// Stores a calibration between runs. Any thread; a file is replaced atomically, so that ranks and
// processes may read and write it at once.
#include <optional>
#include <string>

#include "dtensor/mesh/calibration.h"

namespace coshard {

class CalibrationFile {
 public:
  // `named`: the caller's path, whose errors are reported; empty: a file for `about` in the user's
  // cache folder.
  CalibrationFile(std::string named, const std::string& about);

  const std::string& path() const { return path_; }  // empty: there is no cache folder
  // nullopt if it does not exist or is not for `about`. If it cannot be read or parsed:
  // Error{BadInput} for a named file, nullopt for an unnamed one.
  std::optional<Calibration> read(const std::string& about) const;
  // If it cannot be written: Error{BadInput} for a named file; an unnamed one is skipped.
  void write(const Calibration& measured) const;

 private:
  bool written(const Calibration& measured) const;
  bool named_;
  std::string path_;
};

}  // namespace coshard
