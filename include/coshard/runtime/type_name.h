#pragma once
// Names of types, for errors and descriptions.
#include <string>
#include <typeinfo>

#include <coshard/export.h>

namespace COSHARD_API coshard {

std::string type_name_of(const std::type_info& type);  // without namespaces

}  // namespace coshard
