#include "dtensor/tape/saved.h"

namespace coshard {

void Saved::refuse(std::string_view who) const {
  fail(ErrorKind::BadInput,
       str_cat(who, ": backward needs ", tensor_, ", which was changed in place since the call"));
}

}  // namespace coshard
