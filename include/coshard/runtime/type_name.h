#pragma once
// Names of types, for errors and descriptions.
#include <string>
#include <typeinfo>

#pragma GCC visibility push(default)
namespace coshard {

std::string type_name_of(const std::type_info& type);  // without namespaces

}  // namespace coshard
#pragma GCC visibility pop
