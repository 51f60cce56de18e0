#include <coshard/dtensor/ops/attrs.h>

#include <coshard/runtime/error.h>
#include <coshard/runtime/type_name.h>

namespace coshard {

void Attrs::refuse(const std::type_info& wanted) const {
  fail(ErrorKind::BadInput,
       str_cat("the attributes of this call are ", type_ ? type_name_of(*type_) : "none", ", not ",
               type_name_of(wanted)));
}

}  // namespace coshard
