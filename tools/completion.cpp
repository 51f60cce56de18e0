#include "tools/completion.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/launch/cli_options.h"

namespace coshard::tools {
namespace {

constexpr const char* kBash = R"(# bash completion of {0}; made by `{0} completion bash`
_{0}() {{
  local word path= words= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word="$path ${{COMP_WORDS[i]}}"
    case "$word" in
      {1}) path=$word ;;
      ' run '*/*) COMPREPLY=(); return ;;  # a program, whose words are its own
    esac
  done
  case "$path ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{2}    *) case "$path" in
{3}    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _{0} {0}
)";

struct Cases {
  std::vector<std::string> paths;  // " bench train"
  std::string values, words;
};

// "TEXT:{cpu,cuda}": the words between the braces.
std::string known_words(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos) return "";
  std::string words = type.substr(begin + 1, end - begin - 1);
  std::replace(words.begin(), words.end(), ',', ' ');
  return words;
}

void add_cases(const CLI::App& app, const std::string& path, Cases& cases) {
  std::string words;
  for (const std::string& name : cli::command_names(app)) words += name + " ";
  for (const std::string& name : cli::option_names(app)) words += name + " ";
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_expected_max() == 0) continue;
    cases.values += fmt::format("    '{} --{}') words='{}' ;;\n", path, option->get_lnames()[0],
                                known_words(*option));
  }
  cases.words += fmt::format("      '{}') words='{}' ;;\n", path,
                             words.substr(0, words.find_last_not_of(' ') + 1));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string inner = path + " " + command->get_name();
    cases.paths.push_back(fmt::format("'{}'", inner));
    add_cases(*command, inner, cases);
  }
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  Cases cases;
  add_cases(app, "", cases);
  return fmt::format(fmt::runtime(kBash), app.get_name(), fmt::join(cases.paths, " | "),
                     cases.values, cases.words);
}

}  // namespace coshard::tools
