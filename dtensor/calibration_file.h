#pragma once
// Where a calibration is kept between runs. Any thread; a file is replaced as a whole, so that ranks
// and processes may read and write it at once.
#include <optional>
#include <string>

#include "dtensor/calibration.h"

namespace coshard {

class CalibrationFile {
 public:
  // `named` by the caller, whose errors are told; empty: one for `about` in the cache folder.
  CalibrationFile(std::string named, const std::string& about);

  const std::string& path() const { return path_; }  // empty: there is no cache folder
  // nullopt: not there, or of something else. Error{BadInput} for a named file that cannot be read,
  // or is none; unnamed, that is nullopt too.
  std::optional<Calibration> read(const std::string& about) const;
  // Error{BadInput} for a named file that cannot be written; unnamed, nothing is kept.
  void write(const Calibration& measured) const;

 private:
  bool written(const Calibration& measured) const;
  bool named_;
  std::string path_;
};

}  // namespace coshard
