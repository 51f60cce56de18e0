#include <coshard/dtensor/tape/overlap.h>

#include <coshard/runtime/error.h>

namespace coshard {

std::string_view to_string(Overlap overlap) {
  switch (overlap) {
    case Overlap::Off: return "off";
    case Overlap::Auto: return "auto";
    case Overlap::Always: return "always";
  }
  return "?";
}
std::ostream& operator<<(std::ostream& out, Overlap overlap) { return out << to_string(overlap); }

Overlap parse_overlap(std::string_view text) {
  for (const Overlap each : {Overlap::Off, Overlap::Auto, Overlap::Always})
    if (text == to_string(each)) return each;
  fail(ErrorKind::BadInput, str_cat("overlap: expected off, auto or always, got '", text, "'"));
}

}  // namespace coshard
